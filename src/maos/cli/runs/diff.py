"""`maos orchestration diff`: how two moments of a run differ, or two runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli import render
from maos.cli.agent import words
from maos.cli.commands import LazyCommand, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.plain import clean
from maos.cli.runs import points
from maos.cli.runs.status import id_argument
from maos.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from maos.app import Maos
    from maos.cli.documents import Document
    from maos.model.run import Run
    from maos.travel.comparison import ChangedField, Difference, Side
    from maos.travel.points_in_time import PointInTime
    from maos.travel.service import Comparison

SHOWN_MAX = 50


@click.command(
    cls=LazyCommand,
    examples=[
        "maos orchestration diff r-1a2b3c before-refactoring",
        "maos orchestration diff r-1a2b3c 12 20 --patch",
        "maos orchestration diff r-1a2b3c r-4d5e6f",
    ],
)
@id_argument
@click.argument("first", metavar="A")
@click.argument("second", metavar="[B]", required=False)
@click.option("--patch", is_flag=True, help="Also the changes of files, line by line.")
@json_option
@click.pass_obj
def diff(database: DatabaseTarget, id: str, first: str, second: str | None, patch: bool, as_json: bool) -> None:
    """Show how a run differs between two moments, or from another run.

    Tasks and their results, questions, findings, messages, and merged files. A and B are moments: a checkpoint's name,
    a version, @POSITION or a time; without B, now is meant. A can also be another run, and then this shows what is
    different in that one.
    """

    async def work(m: Maos) -> Comparison:
        run = await m.runs.find(id)
        one, other = await _moments(m, run, first, second)
        return await m.travel.diff(run.id, one, other, other=other.run, patch=patch)

    one, other, found = database.read(work)
    if as_json:
        shared.show(_document(one, other, found))
        return
    _show(one, other, found)


async def _moments(m: Maos, run: Run, first: str, second: str | None) -> tuple[PointInTime, PointInTime]:

    if second is not None:
        return await points.moment(m, run, first), await points.moment(m, run, second)
    now = await m.travel.moment(run.id)
    try:
        return await points.moment(m, run, first), now
    except (InvalidInput, NotFound):
        try:
            other = await m.runs.find(first)
        except NotFound:
            other = None
        if other is None:
            raise
        return now, await m.travel.moment(other.id)


def _show(one: Side, other: Side, found: Difference) -> None:

    render.line((f"{_name(one)} → {_name(other)}", "bold"))
    nothing = True
    for title, changed in (("tasks", found.tasks), ("questions", found.questions)):
        if changed:
            nothing = False
            _table(title, changed)
    for title, (gone, new) in (("findings", found.findings), ("messages", _told(found))):
        for sign, style, rows in (("-", "red", gone), ("+", "green", new)):
            for who, text in rows[:SHOWN_MAX]:
                nothing = False
                render.line((f"{sign} {title[:-1]} ", style), f"{clean(who)}: {_short(text)}")
            if len(rows) > SHOWN_MAX:
                render.line((f"… and {len(rows) - SHOWN_MAX} more (--json shows all)", "dim"))
    for each in found.files or ():
        nothing = False
        counts = "" if each.added is None else f"  +{each.added} -{each.removed}"
        render.line((f"{each.kind:<12} ", "dim"), clean(each.path), (counts, "dim"))
    if found.patch:
        click.echo(clean(found.patch, lines=True), nl=False)
    if nothing:
        render.line("no difference")


def _table(title: str, changed: Sequence[ChangedField]) -> None:
    columns = (
        render.Column(title[:-1], style="bold", yields=1), render.Column("before"), render.Column("after"),
        render.Column("said before", style="dim", yields=3), render.Column("says after", style="dim", yields=2),
    )  # fmt: skip
    rows = [
        (each.name, each.before or "-", each.after or "-", _short(each.said_before), _short(each.said_after))
        for each in changed[:SHOWN_MAX]
    ]
    render.table(columns, rows)


def _told(found: Difference) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    gone, new = found.messages
    return [(each.sender, each.text) for each in gone], [(each.sender, each.text) for each in new]


def _short(text: str) -> str:

    return words.one_line(text, 80)


def _name(side: Side) -> str:
    return f"{side.run.id}, {side.moment.spoken}"


def _document(one: Side, other: Side, found: Difference) -> Document:
    return {
        "before": _side(one, found.commits[0]),
        "after": _side(other, found.commits[1]),
        "tasks": [each._asdict() for each in found.tasks],
        "questions": [each._asdict() for each in found.questions],
        "messages": {
            "removed": [{"id": each.id, "from": each.sender, "text": each.text} for each in found.messages[0]],
            "added": [{"id": each.id, "from": each.sender, "text": each.text} for each in found.messages[1]],
        },
        "findings": {
            "removed": [{"task": task, "text": text} for task, text in found.findings[0]],
            "added": [{"task": task, "text": text} for task, text in found.findings[1]],
        },
        "files": None if found.files is None else [each._asdict() for each in found.files],
        "patch": found.patch or None,
    }


def _side(side: Side, commit: str) -> Document:
    from maos.model.branch import digest

    moment = side.moment
    return {"id": moment.run, "version": moment.version, "position": moment.position, "commit": commit or None,
            "checkpoint": moment.name or None, "state": digest(side.run), **shared.time(moment.time_us)}  # fmt: skip
