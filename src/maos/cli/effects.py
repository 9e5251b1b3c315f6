"""`maos effects`: what agents and workflows did outside, and what nobody knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli.commands import LazyCommand, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.documents import Document, time
from maos.cli.plain import clean

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.engine.effects import Effect

UNKNOWN_SHOWN_MAX = 5


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

    async def work(m: Maos) -> list[Effect]:
        return await m.effects(await _meant(m, id), unknown=unknown)

    found = database.read(work)
    if as_json:
        shared.show({"effects": [document(each) for each in found]})
        return
    from maos.cli import render

    if not found:
        render.line("nothing is unknown" if unknown else "nothing was done outside")
        return
    columns = (
        render.Column("by", style="bold", yields=1), render.Column("id", yields=4), render.Column("what"),
        render.Column("outcome"), render.Column("begun"), render.Column("given", style="dim", yields=3),
    )  # fmt: skip
    rows = [
        (each.owner, each.id, each.what, each.outcome, render.when(each.begun_us), _line(each.given)) for each in found
    ]
    render.table(columns, rows)


async def _meant(m: Maos, given: str) -> str:
    """The whole id of a run or a workflow; the name of an agent as it is."""
    from maos.cli import ids
    from maos.model.attempt import stream

    if not given or [name async for name in m.journal.streams(stream(f"{given}."))]:
        return given
    found = await ids.meant(m.journal, given, ids.RUN, ids.WORKFLOW_RUN)
    return found.id if found else given


def warn(unknown: Sequence[Effect]) -> None:
    """Name what nobody knows the outcome of, with where to look."""
    from maos.cli import render
    from maos.cli.agent import words

    for each in unknown[:UNKNOWN_SHOWN_MAX]:
        given = words.one_line(each.given, render.room_for_value(50))
        told = f"{clean(each.what)}{f'({given})' if given else ''}"
        render.line(("! ", "bold red"), (clean(each.owner), "bold"), " unknown whether it took effect: ", told)
    if len(unknown) > UNKNOWN_SHOWN_MAX:
        render.line(("  … ", "dim"), f"and {len(unknown) - UNKNOWN_SHOWN_MAX} more: maos effects --unknown")


def _line(text: str) -> str:
    return clean(text).replace("\n", " ")


def document(effect: Effect) -> Document:
    """What a program is told of it."""
    return {
        "by": effect.owner, "id": effect.id, "what": effect.what, "given": effect.given, "outcome": effect.outcome,
        "said": effect.said, **time(effect.begun_us, "begun"), **time(effect.ended_us or None, "ended"),
    }  # fmt: skip
