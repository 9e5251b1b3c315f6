"""`maos pause` and `cancel`: runs are told to stop, and this waits until they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents, render
from maos.cli.commands import LazyCommand, forward, json_option
from maos.cli.completion import run_argument
from maos.cli.runs import page
from maos.ids import RUN, WORKFLOW, Target

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.runs.status import RunStatus


@click.command(cls=LazyCommand, examples=["maos pause r-1a2b3c", "maos pause 1a2b --json"])
@run_argument
@json_option
@click.pass_context
def pause(ctx: click.Context, id: str, as_json: bool) -> None:
    """Pause a run; `maos resume` continues it.

    Its agents are stopped, and this waits until they have ended. The engine that executes the run stops them; if there
    is none, agents of the run that still work are stopped all the same. Messages and questions are kept.
    """

    async def work(m: Maos) -> RunStatus | Target:
        target = await m.find(id, RUN, WORKFLOW)
        if target.kind == WORKFLOW:
            return target
        return await m.runs.status_of(await m.runs.pause_and_wait(target.id))

    now = ctx.obj.write(work)
    if isinstance(now, Target):
        forward(ctx, "workflow pause", now.id, *(["--json"] if as_json else []))
        return
    if as_json:
        documents.show(page.summary(now))
        return
    what = "is paused" if now.run.status == "paused" else f"is {page.spoken(now)}, and none of its agents works"
    render.line((now.run.id, "bold"), f" {what if now.run.is_open else 'had ended before: ' + now.run.status}")
    if now.resumable:
        render.line(("resume with: ", "dim"), (now.resumable, "bold"))
