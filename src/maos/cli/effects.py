"""`maos admin effects`: side effects of agents and workflows, and which outcomes are unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from maos.cli import completion, render
from maos.cli.agent import words
from maos.cli.commands import LazyCommand, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.render import Column, Listing, clean

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.views.effects import ExternalEffect

UNKNOWN_SHOWN_MAX = 5

EFFECTS: Listing[ExternalEffect] = Listing(
    "effects",
    (
        Column("by", lambda each: each.by, style="bold", yields=1),
        Column("id", lambda each: each.id, yields=4),
        Column("what", lambda each: each.what),
        Column("outcome", lambda each: each.outcome),
        Column("begun", lambda each: render.when(each.begun_us)),
        Column("given", lambda each: words.one_line(each.given, None), style="dim", yields=3),
    ),
)


@click.command(
    cls=LazyCommand,
    examples=["maos admin effects --unknown", "maos admin effects r-1a2b3c", "maos admin effects order-7 --json"],
)
@click.argument("id", metavar="[ID]", required=False, default="", shell_complete=completion.ids)
@click.option("--unknown", is_flag=True, help="Only those whose outcome is unknown.")
@json_option
@click.pass_obj
def effects(database: DatabaseTarget, id: str, unknown: bool, as_json: bool) -> None:
    """List side effects: tool calls, commands and workflow steps.

    ID is RUN, RUN/TASK, an agent or a workflow run; without it, everything. Each effect is recorded before it starts
    and when it has ended; the outcome of one that started and did not end is unknown. An agent that is resumed is told
    which of its tool calls are; a command is started again; of a step you are asked (`maos workflow resolve`).
    """

    async def work(m: Maos) -> list[ExternalEffect]:
        return await m.effects(id, unknown=unknown)

    found = database.read(work)
    if not found and not as_json:
        render.line("no outcome is unknown" if unknown else "no side effects")
        return
    EFFECTS.show(found, as_json=as_json)


def warn(unknown: Sequence[ExternalEffect]) -> None:
    """Print effects whose outcome is unknown, and where to see more."""
    for each in unknown[:UNKNOWN_SHOWN_MAX]:
        given = words.one_line(each.given, render.room_for_value(50))
        told = f"{clean(each.what)}{f'({given})' if given else ''}"
        render.line(("! ", "bold red"), (clean(each.by), "bold"), " unknown whether it took effect: ", told)
    if len(unknown) > UNKNOWN_SHOWN_MAX:
        render.line(("  … ", "dim"), f"and {len(unknown) - UNKNOWN_SHOWN_MAX} more: maos admin effects --unknown")
