"""`maos resume` and `maos orchestration resume`: go on with a run, after minutes, days or weeks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from maos.cli import completing, render
from maos.cli.agent.options import seconds
from maos.cli.arguments import DURATION
from maos.cli.commands import LazyCommand, dry_run_option, json_lines_option
from maos.cli.database import DatabaseTarget
from maos.cli.orchestrate import moving
from maos.cli.orchestrate.bundles import trust_option
from maos.cli.orchestrate.options import limits, notify_addresses, notify_option, run_limits, summary_option
from maos.errors import NotFound

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.plan import Plan
    from maos.model.run import Run

task_option = click.option(
    "--task", "tasks", multiple=True, metavar="TEXT",
    help="More work: TEXT, 'NAME: TEXT', 'NAME after A, B: TEXT', or @FILE for a plan. Can be repeated.",
)  # fmt: skip
auto_option = click.option("--auto", is_flag=True, help="Add the work without asking.")
concurrency_option = click.option(
    "--concurrency", type=click.IntRange(min=1, max=1000), metavar="N",
    help="How many agents work at once.  [default: as before]",
)  # fmt: skip
now_option = click.option(
    "--now",
    is_flag=True,
    help="Do not wait for the end of a rate limit. Also for a run that another engine carries out.",
)
cwd_option = click.option(
    "--cwd", type=click.Path(exists=True, file_okay=False), metavar="DIRECTORY",
    help="Where the folder it works in is now, if that was moved, or this machine has a copy of it.",
)  # fmt: skip
time_limit_option = click.option("--time-limit", type=DURATION, help="For each agent.  [default: as before]")


def _options_of_resuming(command: Callable[..., None]) -> Callable[..., None]:
    """The options of both commands, in the order of their help."""
    options = (
        task_option, auto_option, concurrency_option, time_limit_option, run_limits, summary_option, notify_option,
        now_option, cwd_option, trust_option, dry_run_option, json_lines_option,
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@click.command(
    "resume",
    cls=LazyCommand,
    examples=[
        "maos resume",
        "maos resume r-1a2b --dry-run",
        "maos resume r-1a2b --task 'Write the release notes'",
        "maos resume r-1a2b --cwd .",
    ],
)
@click.argument("id", metavar="[ID]", required=False, default="", shell_complete=completing.runs)
@_options_of_resuming
@click.pass_context
def resume_latest(ctx: click.Context, /, id: str, **given: Any) -> None:
    """Go on with a run that was paused, interrupted or failed.

    Without ID, the latest that is not completed. Finished tasks are not run again. Agents that still work are taken up,
    those that were interrupted go on in their own sessions, and are told what happened. Tasks that failed are tried
    again.
    """
    go_on(ctx, id, **given)


@click.command(
    cls=LazyCommand,
    examples=[
        "maos orchestration resume r-1a2b3c",
        "maos orchestration resume r-1a --dry-run",
        "maos orchestration resume r-1a --task 'docs after api: Document the new calls' --auto",
    ],
)
@click.argument("id", metavar="ID", shell_complete=completing.runs)
@_options_of_resuming
@click.pass_context
def resume(ctx: click.Context, /, id: str, **given: Any) -> None:
    """Go on with a run, and give it more to do.

    Finished tasks are not run again. Agents that still work are taken up, those that were interrupted go on in their
    own sessions, and are told what happened. Tasks that failed are tried again.

    --task adds work to a run that is finished, paused or interrupted; it begins with the files the run has made.
    """
    go_on(ctx, id, **given)


def go_on(
    ctx: click.Context,
    id: str,
    *,
    trust: bool,
    dry_run: bool,
    as_json: bool,
    tasks: Sequence[str] = (),
    auto: bool = False,
    concurrency: int | None = None,
    time_limit: int | None = None,
    budget: float | None = None,
    tokens: int | None = None,
    run_time: int | None = None,
    summary: str = "",
    notify: Sequence[str] = (),
    now: bool = False,
    cwd: str | None = None,
    on_change: str = "keep",
) -> None:
    """Go on with a run in the foreground, and leave; `on_change` is what to do when its workflow file has changed."""
    database: DatabaseTarget = ctx.obj
    options = _options(concurrency, time_limit, limits(budget, tokens, run_time))
    told = notify_addresses(notify)
    added: Plan | None = None
    agents: dict[str, Any] = {}
    if tasks or dry_run:
        from maos.cli.orchestrate import adding, foreseeing

        run = database.read(lambda m: _find(m, id))
        id = run.id
        if tasks:
            from maos.engine import agent_types

            types = adding.types_for(run)
            added = adding.plan(run, tasks, types)
            agents = {"agents": {**agent_types.to_data(added, types), **(run.options.get("agents") or {})}}
        if dry_run:
            if cwd is not None:
                database.read(lambda m: moving.foresee(m, run, cwd, as_json=as_json))
            ctx.exit(database.read(lambda m: foreseeing.show(m, run, added, on_change, as_json=as_json)))
        assert added is not None
        adding.approve(run, added, agents, auto=auto, as_json=as_json)

    async def work(m: Maos) -> int:
        from maos.cli.orchestrate import bundles, interrupted
        from maos.cli.orchestrate.conducting import Conductor
        from maos.cli.workflow import changes
        from maos.engine import orchestration

        run = await _find(m, id)
        if cwd is not None:
            run = await moving.move(m, run, cwd, as_json=as_json)
        settled = await bundles.agree(m, run, trust=trust, as_json=as_json)
        if not as_json:
            await interrupted.tell(m, but=run.id)
        run = await changes.heed(m, run, on_change, as_json=as_json)
        if added is not None:
            await m.runs.add(run.id, added, options=agents)
            run = await m.runs.get(run.id)
        orchestration.check_resumable(run)
        if now and await orchestration.wake(m.runs, run):
            render.line(f"{run.id} goes on now; another engine carries it out")
            return 0
        return await Conductor(m, run, as_json=as_json, summary=summary, notify=told).execute(
            options={**_with_limits_of(run, options), **settled}
        )

    ctx.exit(database.write(work))


def _options(concurrency: int | None, time_limit: int | None, budget: dict[str, float]) -> dict[str, Any]:
    """What is to be otherwise from now on."""
    given = {"concurrency": concurrency, "time_limit_s": seconds(time_limit), "budget": budget or None}
    return {name: value for name, value in given.items() if value is not None}


def _with_limits_of(run: Run, options: dict[str, Any]) -> dict[str, Any]:
    """The new options, with the limits that nobody has named as they were."""
    if "budget" not in options:
        return options
    return {**options, "budget": {**(run.options.get("budget") or {}), **options["budget"]}}


async def _find(m: Maos, id: str) -> Run:
    """The run that is meant: by its id, or the latest that somebody could go on with."""
    from maos.cli.orchestrate import interrupted
    from maos.cli.orchestration import standing
    from maos.engine import orchestration

    if id:
        return await standing.find(m, id)
    found = await orchestration.unfinished(m.runs)
    if not found:
        raise NotFound("there is no orchestration to go on with", hint="`maos orchestration list` shows all")
    return next((run for run in found if not interrupted.is_carried_out(run)), found[0])
