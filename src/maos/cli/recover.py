"""`maos recover`: what a crash has left, and how to go on with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli import render
from maos.cli.commands import LazyGroup, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.plain import clean
from maos.cli.runs import documents
from maos.cli.status import trouble

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.views.overview import Overview


@click.group(
    cls=LazyGroup,
    lazy={"cleanup": ("maos.cli.runs.cleanup:cleanup", "Remove the worktrees of runs that were completed long ago.")},
    examples=["maos recover", "maos recover cleanup --older-than 30 --dry-run"],
    invoke_without_command=True,
)
@json_option
@click.pass_context
def recover(ctx: click.Context, as_json: bool) -> None:
    """List what was interrupted, and how to go on with each.

    Nothing has to be recovered before it can be used: whatever was acknowledged is there. This only says which runs
    and agents nobody carries on since a crash.
    """
    if ctx.invoked_subcommand is not None:
        return

    async def work(m: Maos) -> tuple[Overview, int]:
        return await m.overview(), m.runs.lookback_us()

    database: DatabaseTarget = ctx.obj
    found, since = database.read(work)
    runs = [each for each in found.runs if each.now.state == "interrupted" and each.run.updated_us >= since]
    agents = [each for each in found.agents if each.go_on]
    if as_json:
        shared.show(
            {
                "orchestrations": [documents.summary(each) for each in runs],
                "agents": shared.of(agents),
            }
        )
        return

    if not runs and not agents:
        render.line("nothing was interrupted")
    for run in runs:
        trouble(run)
    for agent in agents:
        name = clean(agent.agent)
        render.line(("! ", "bold red"), (name, "bold"), f" is {agent.status}")
        render.line(("  to go on: ", "dim"), (agent.go_on or "", "bold"))
