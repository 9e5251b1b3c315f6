"""`maos orchestration pause`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli.commands import LazyCommand, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.orchestration.showing import id_argument

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.cli.orchestration.standing import RunStanding
    from maos.model.run import Run

LOOK_EVERY_S = 1.0
GRACE_S = 10.0


@click.command(cls=LazyCommand, examples=["maos orchestration pause r-1a2b3c", "maos orchestration pause 1a2b --json"])
@id_argument
@json_option
@click.pass_obj
def pause(database: DatabaseTarget, id: str, as_json: bool) -> None:
    """Stop a run so that it can go on later.

    Its agents are stopped, and this waits until they have. Whichever process carries the run out does it, and then
    ends. If none does, agents of the run that still work are stopped all the same. Messages and questions are kept.
    """

    async def work(m: Maos) -> RunStanding:
        from maos.cli.orchestration import standing

        return await standing.of_run(m, await paused(m, await standing.find(m, id)))

    now = database.write(work)
    if as_json:
        from maos.cli.orchestration import documents

        shared.show(documents.summary(now))
        return
    from maos.cli import render
    from maos.cli.orchestration import page

    what = "is paused" if now.run.status == "paused" else f"is {page.spoken(now)}, and none of its agents works"
    render.line((now.run.id, "bold"), f" {what if now.run.is_open else 'had ended before: ' + now.run.status}")
    if now.go_on:
        render.line(("to go on: ", "dim"), (now.go_on, "bold"))


async def paused(m: Maos, run: Run) -> Run:
    """A run that nobody carries out any more, and whose agents do not work."""
    from maos.cli.agent.standing import is_unattended
    from maos.errors import InvalidInput

    if not run.is_open:
        raise InvalidInput(f"{run.id} has ended: {run.status}", hint="only a run that goes on can be paused")
    asked = False
    while run.status in ("planning", "running"):
        if is_unattended(run.owner):
            await _stop_agents(m, run)
            return await m.runs.get(run.id)
        if not asked:
            # Not asked of a run that nobody carries out: whoever resumed it would pause it at once.
            await m.runs.pause(run.id)
            asked = True
        run = await until(m, run, lambda each: each.status not in ("planning", "running"))
    return run


async def until(m: Maos, run: Run, condition: Condition) -> Run:
    """The run when something has become true of it, or after a while, so that the caller can look who runs it."""
    import asyncio

    from maos.model.run import stream

    async def follow() -> None:
        async for record in m.journal.follow_stream(stream(run.id), after=run.version):
            run.apply(record.type, record.data)
            if condition(run):
                return

    if not condition(run):
        try:
            await asyncio.wait_for(follow(), LOOK_EVERY_S)
        except TimeoutError:
            pass
    return run


async def _stop_agents(m: Maos, run: Run) -> None:
    """Stop agents that work though nobody carries their run out."""
    from maos.cli.orchestration import standing
    from maos.engine.stopping import end

    for attempt in (await standing.at_work(m, run)).values():
        await end(m.attempts, attempt, GRACE_S)


if TYPE_CHECKING:
    from collections.abc import Callable

    Condition = Callable[[Run], bool]
