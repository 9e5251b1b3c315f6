"""`maos workflow state`: what is kept of workflows (R-1006)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli.commands import LazyCommand, LazyGroup, dry_run_option, json_option, yes_option
from maos.cli.database import DatabaseTarget, ask, need_yes

if TYPE_CHECKING:
    from maos.app import Maos


SHOWN_MAX = 20


@click.group(
    cls=LazyGroup,
    lazy={
        "list": ("maos.cli.workflow.listing:list_", "List workflows, functions and files, those that may go on first."),
        "show": (
            "maos.cli.workflow.showing:show",
            "Show a workflow: its calls with their outcomes, what it waits for, and what nobody knows.",
        ),
        "cleanup": (
            "maos.cli.workflow.states:cleanup",
            "Remove the calls of workflows that ended so long ago; that they were there, and their results, stay.",
        ),
    },
    examples=["maos workflow state list", "maos workflow state cleanup --retention-days 30 --dry-run"],
)
def state() -> None:
    """Look at what is kept of workflows, and remove what is old."""


@click.command(cls=LazyCommand, examples=["maos workflow state cleanup --retention-days 30"])
@click.option(
    "--retention-days",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Those that ended so many days ago.",
)
@dry_run_option
@yes_option
@json_option
@click.pass_obj
def cleanup(database: DatabaseTarget, retention_days: float, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove the calls of workflows that ended so long ago; that they were there, and their results, stay.

    The worktrees of agents, which a plan file has too, are removed by `maos admin cleanup`.
    """
    from maos.cli import render

    async def look(m: Maos) -> list[str]:
        return await m.workflows.old(retention_days * 86_400)

    found = database.read(look)
    if dry_run or not found:
        if as_json:
            shared.show({"removed": [], "would_remove": found})
        else:
            shown = f": {', '.join(found[:SHOWN_MAX])}{', …' if len(found) > SHOWN_MAX else ''}"
            many = render.many(len(found), "workflow")
            render.line(f"would clean up {many}{shown}" if found else "nothing is that old")
        return
    need_yes(f"{render.many(len(found), 'workflow')} would be cleaned up", yes=yes, as_json=as_json)
    if not yes:
        ask(f"clean up {render.many(len(found), 'workflow')}?")

    async def work(m: Maos) -> int:
        return await m.workflows.forget(found)

    events = database.write(work)
    if as_json:
        shared.show({"removed": found, "events": events})
    else:
        render.line(f"cleaned up {render.many(len(found), 'workflow')}, {render.many(events, 'event')}")
