"""`maos effects`: what agents and workflows did outside, and what is unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from maos.cli import render
from maos.cli.agent import words
from maos.cli.commands import LazyCommand, json_option
from maos.cli.console import Field, Listing
from maos.cli.database import DatabaseTarget
from maos.cli.plain import clean

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.views.effects import ExternalEffect

UNKNOWN_SHOWN_MAX = 5

EFFECTS: Listing[ExternalEffect] = Listing(
    "effects",
    (
        Field("by", lambda each: each.by, style="bold", yields=1),
        Field("id", lambda each: each.id, yields=4),
        Field("what", lambda each: each.what),
        Field("outcome", lambda each: each.outcome),
        Field("begun", lambda each: render.when(each.begun_us)),
        Field("given", lambda each: words.one_line(each.given, None), style="dim", yields=3),
    ),
)


@click.command(
    cls=LazyCommand, examples=["maos effects --unknown", "maos effects r-1a2b3c", "maos effects order-7 --json"]
)
@click.argument("id", metavar="[ID]", required=False, default="")
@click.option("--unknown", is_flag=True, help="Only those of which nobody knows whether they took effect.")
@json_option
@click.pass_obj
def effects(database: DatabaseTarget, id: str, unknown: bool, as_json: bool) -> None:
    """List what was done outside: tools that agents ran, commands, and steps of workflows.

    ID is a run, an agent or a workflow; without it, everything. Each was recorded before it began and when it had
    ended. One that began and did not end is unknown. An agent that is resumed is told which of its tools are; a step is
    asked for, and `maos workflow settle` says what became of it; a command is started again from the beginning.
    """

    async def work(m: Maos) -> list[ExternalEffect]:
        return await m.effects(id, unknown=unknown)

    found = database.read(work)
    if not found and not as_json:
        render.line("nothing is unknown" if unknown else "nothing was done outside")
        return
    EFFECTS.show(found, as_json=as_json)


def warn(unknown: Sequence[ExternalEffect]) -> None:
    """Print effects whose outcome is unknown, and where to see more."""
    for each in unknown[:UNKNOWN_SHOWN_MAX]:
        given = words.one_line(each.given, render.room_for_value(50))
        told = f"{clean(each.what)}{f'({given})' if given else ''}"
        render.line(("! ", "bold red"), (clean(each.by), "bold"), " unknown whether it took effect: ", told)
    if len(unknown) > UNKNOWN_SHOWN_MAX:
        render.line(("  … ", "dim"), f"and {len(unknown) - UNKNOWN_SHOWN_MAX} more: maos effects --unknown")
