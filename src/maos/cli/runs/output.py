"""`maos logs` and `maos attach`: what a run did, and what it does now, from any terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import completion
from maos.cli.commands import LazyCommand, forward, json_lines_option
from maos.errors import InvalidInput
from maos.ids import AGENT, RUN, Target

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.cli.runs.live import LiveView
    from maos.runs.feed import RunFeed

LOOK_EVERY_S = 1.0
"""How often to check that the engine of a run is alive; its end is not recorded."""

id_argument = click.argument("id", metavar="[ID]", required=False, default="", shell_complete=completion.ids)


@click.command(
    cls=LazyCommand,
    examples=["maos logs", "maos logs r-1a2b3c", "maos logs r-1a2b3c/api -f", "maos logs nightly --since 10m --json"],
)
@id_argument
@click.option("-f", "--follow", is_flag=True, help="Continue until the run or the agent's attempt has ended.")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Only this attempt of an agent.")
@click.option("--since", metavar="TIME", help="Only what an agent did since a time: ISO 8601, or 15m, 2h, 3d ago.")
@click.option("--raw", is_flag=True, help="Exactly the bytes that an agent printed; not for terminals.")
@json_lines_option
@click.pass_context
def logs(
    ctx: click.Context, id: str, follow: bool, attempt: int | None, since: str | None, raw: bool, as_json: bool
) -> None:
    """Print what a run or an agent did, in order.

    ID is RUN, RUN/TASK, an agent, or a unique prefix of one; without it, the newest run. Of a run it prints what the
    live view printed: tasks that start and end, questions, messages and discoveries. Of an agent it prints all output,
    over all its attempts. Ctrl+C ends only the printing.
    """

    async def work(m: Maos) -> Target | None:
        target = await _find(m, id)
        if target.kind == RUN and not (attempt or since or raw):
            await _print_run(m, target.id, follow=follow, live=False, as_json=as_json)
            return None
        return target

    target = ctx.obj.read(work)
    if target is None:
        return
    if target.kind == RUN:
        raise InvalidInput("--attempt, --since and --raw are for one agent", hint=f"name a task: {target.id}/TASK")
    flags = {"-f": follow, "--raw": raw, "--json": as_json}
    values = {"--attempt": attempt, "--since": since}
    forward(
        ctx,
        "agent logs",
        target.id,
        *(name for name, given in flags.items() if given),
        *(f"{name}={value}" for name, value in values.items() if value is not None),
    )


@click.command(cls=LazyCommand, examples=["maos attach", "maos attach r-1a2b3c", "maos attach r-1a2b3c/api --json"])
@id_argument
@json_lines_option
@click.pass_context
def attach(ctx: click.Context, id: str, as_json: bool) -> None:
    """Follow a run or an agent until it ends.

    ID is RUN, RUN/TASK, an agent, or a unique prefix of one; without it, the newest run. A run is shown as by the
    engine that executes it. An agent that no engine records is attached to: its output since then comes first, and is
    recorded. Ctrl+C detaches; the run continues.
    """

    async def work(m: Maos) -> Target | None:
        from maos.runs.status import is_executing

        target = await _find(m, id)
        if target.kind != RUN:
            return target
        run = await m.runs.get(target.id)
        if not is_executing(run):
            status = await m.runs.status_of(run)
            hint = f"`{status.resumable}` resumes it" if status.resumable else f"`maos status {run.id}` shows it"
            raise InvalidInput(f"no engine executes {run.id}", hint=hint)
        await _print_run(m, run.id, follow=True, live=True, as_json=as_json)
        return None

    target = ctx.obj.read(work)
    if target is not None:
        forward(ctx, "agent attach", target.id, *(["--json"] if as_json else []))


async def _find(m: Maos, id: str) -> Target:
    return await m.find(id, RUN, AGENT) if id else Target(RUN, (await m.runs.newest()).id)


async def _print_run(m: Maos, id: str, *, follow: bool, live: bool, as_json: bool) -> None:
    """Print what is recorded of a run: from its beginning, or with a live view from now on."""
    from maos.cli.runs.live import LiveView
    from maos.runs.status import is_executing

    async with m.runs.follow(id, from_start=not live) as feed:
        view = LiveView(feed.run, as_json=as_json)
        if not live:
            view.terminal = None
        for update in await feed.recorded():
            view.update(update)
        if follow and is_executing(feed.run):
            await _follow(feed, view)
        await view.close()


async def _follow(feed: RunFeed, view: LiveView) -> None:
    """Show updates until the run has ended or is paused, or its engine has exited."""
    import asyncio

    from maos.cli.runs.live_run import cancel
    from maos.runs.status import is_executing

    async def read() -> None:
        async for _update in view.follow(feed):
            pass

    tasks = asyncio.create_task(read()), asyncio.create_task(view.show())
    try:
        while is_executing(feed.run):
            done, _pending = await asyncio.wait(tasks, timeout=LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        await cancel(*tasks)
