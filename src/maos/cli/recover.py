"""`maos recover`: what a crash has left, and how to go on with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli.commands import LazyGroup, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.plain import clean

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.cli.status import Overview


@click.group(
    cls=LazyGroup,
    lazy={"cleanup": "maos.cli.orchestration.cleaning:cleanup"},
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

    async def work(m: Maos) -> Overview:
        from maos.cli.status import look

        return await look(m, messages=False)

    from maos.cli.orchestrate.interrupted import since_us

    database: DatabaseTarget = ctx.obj
    found = database.read(work)
    since = since_us(database.settings)
    runs = [each for each in found.runs if each.now.state == "interrupted" and each.run.updated_us >= since]
    agents = [each for each in found.agents if each.go_on]
    if as_json:
        from maos.cli.agent import documents as of_agents
        from maos.cli.orchestration import documents

        shared.show(
            {
                "orchestrations": [documents.summary(each) for each in runs],
                "agents": [of_agents.summary(each) for each in agents],
            }
        )
        return
    from maos.cli import render
    from maos.cli.status import trouble

    if not runs and not agents:
        render.line("nothing was interrupted")
    for run in runs:
        trouble(run)
    for agent in agents:
        name = clean(agent.attempt.agent)
        render.line(("! ", "bold red"), (name, "bold"), f" is {agent.status}")
        render.line(("  to go on: ", "dim"), (agent.go_on, "bold"))
