"""`maos state history`, `events`, `diff` and `stream`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from maos.cli import documents
from maos.cli.arguments import BEFORE_NEWEST, NEWEST, VERSION, WHEN, Version
from maos.cli.commands import LazyCommand, agent_argument, full_option, json_lines_option, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.plain import clean, shorten
from maos.errors import NotFound

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.changes import Change
    from maos.state import records

HISTORY_LAST = 50


@click.command(cls=LazyCommand, examples=["maos state history reviewer", "maos state history reviewer --last 5 --json"])
@agent_argument
@click.option(
    "--last",
    type=click.IntRange(min=1),
    default=HISTORY_LAST,
    metavar="N",
    show_default=True,
    help="How many versions to show.",
)
@click.option("--all", "everything", is_flag=True, help="Show every version.")
@json_option
@click.pass_obj
def history(database: DatabaseTarget, agent: str, last: int, everything: bool, as_json: bool) -> None:
    """List the versions of an agent, the newest last."""

    async def work(m: Maos) -> list[records.Version]:
        newest = await NEWEST.resolve(m, agent)
        return await m.agents.history(agent, after=0 if everything else max(0, newest - last))

    versions = database.read(work)
    earlier = versions[0].version - versions[0].spans
    if as_json:
        rows = [documents.version(each) for each in versions]
        documents.show({"agent": agent, "earlier": earlier, "versions": rows})
        return
    from maos.cli import render

    render.table(
        (
            render.Column("version", right=True, style="bold"),
            render.Column("event"),
            render.Column("changes", right=True),
            render.Column("time"),
            render.Column("by", style="dim", yields=1),
            render.Column("checksum", style="dim"),
        ),
        [
            (
                str(each.version) if each.spans == 1 else f"{each.version - each.spans + 1}–{each.version}",
                each.type, str(each.changes), render.when(each.time_us), shorten(each.source, 30),
                each.checksum[:12],
            )
            for each in versions
        ],
    )  # fmt: skip
    if earlier:
        render.line((f"{render.many(earlier, 'earlier version')} not shown (--all shows them)", "dim"))


@click.command(
    cls=LazyCommand,
    examples=[
        "maos state events reviewer",
        "maos state events reviewer --after -5 --full",
        "maos state events reviewer --type status_changed --since 2h --json",
        "maos state events reviewer --path /messages --limit 3",
    ],
)
@agent_argument
@click.option("--after", type=VERSION, default="0", help="Only events after this version; -5 for the last five.")
@click.option("--until", type=VERSION, help="Only events up to this version.")
@click.option("--type", "types", multiple=True, help="Only events of this type. Can be repeated.")
@click.option("--since", type=WHEN, help="Only events at or after a time: ISO 8601, or 15m, 2h, 3d ago.")
@click.option("--before", type=WHEN, help="Only events before a time.")
@click.option("--source", help="Only events made by this source.")
@click.option("--correlation", help="Only events with this correlation.")
@click.option("--path", metavar="POINTER", help="Only events that changed something at, above or below this path.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many, the oldest first.")
@full_option
@json_lines_option
@click.pass_obj
def events(
    database: DatabaseTarget,
    agent: str,
    after: Version,
    until: Version | None,
    types: tuple[str, ...],
    since: int | None,
    before: int | None,
    source: str | None,
    correlation: str | None,
    path: str | None,
    limit: int | None,
    full: bool,
    as_json: bool,
) -> None:
    """Show the events of an agent, with what each changed.

    With several filters, an event has to pass them all.
    """

    async def work(m: Maos) -> list[records.StateEvent]:
        return await m.agents.events(
            agent,
            after=await _start(after, m, agent),
            until=None if until is None else await until.resolve(m, agent),
            types=types or None,
            since=since,
            before=before,
            source=source,
            correlation=correlation,
            path=path if path is None or path.startswith("/") else f"/{path}",
            limit=limit,
        )

    for event in database.read(work):
        _show_event(event, full=full, as_json=as_json)


@click.command(
    cls=LazyCommand,
    examples=["maos state diff reviewer", "maos state diff reviewer 1 newest", "maos state diff reviewer -2 --full"],
)
@agent_argument
@click.argument("first", metavar="[FIRST]", type=VERSION, default=BEFORE_NEWEST)
@click.argument("second", metavar="[SECOND]", type=VERSION, default=NEWEST)
@full_option
@json_option
@click.pass_obj
def diff(database: DatabaseTarget, agent: str, first: Version, second: Version, full: bool, as_json: bool) -> None:
    """Show what changed between two versions.

    + stands before what came, - before what went, ~ before what changed from one value to another.

    FIRST is the version before the newest and SECOND the newest, unless given. Each is a number, `newest`, or counted
    from there: -2 is two before the newest.
    """

    async def work(m: Maos) -> tuple[int, int, list[Change]]:
        start, end = await first.resolve(m, agent), await second.resolve(m, agent)
        return start, end, await m.agents.diff(agent, start, end)

    start, end, changes = database.read(work)
    if as_json:
        documents.show({"agent": agent, "from": start, "to": end, "changes": documents.changes(changes)})
        return
    from maos.cli import render

    found = render.many(len(changes), "change") if changes else "no difference"
    render.line((clean(agent), "bold"), f" from version {start} to {end}: {found}")
    render.changes(changes, full=full)


@click.command(
    cls=LazyCommand,
    examples=[
        "maos state stream reviewer",
        "maos state stream reviewer --after -5",
        "maos state stream reviewer --json",
    ],
)
@agent_argument
@click.option(
    "--after", type=VERSION, default=NEWEST, help="Begin after this version; -5 for the last five, 0 for all."
)
@full_option
@json_lines_option
@click.pass_obj
def stream(database: DatabaseTarget, agent: str, after: Version, full: bool, as_json: bool) -> None:
    """Follow the events of an agent as they happen.

    Events of all processes and machines are seen. Ctrl+C ends it.
    """

    async def work(m: Maos) -> None:
        if not await NEWEST.resolve(m, agent):
            raise NotFound(f"there is no agent {agent!r}", hint="`maos state list` shows the agents there are")
        start = await _start(after, m, agent)
        if sys.stderr.isatty():
            click.echo(f"events of {clean(agent)} after version {start}, as they happen; Ctrl+C ends this", err=True)
        async for event in m.agents.stream(agent, after=start):
            _show_event(event, full=full, as_json=as_json)

    database.read(work)


async def _start(after: Version, m: Maos, agent: str) -> int:
    """Where to begin; counted further back than there are versions, it is the first."""
    newest = await NEWEST.resolve(m, agent)
    return max(0, newest - after.number) if after.from_newest else after.number


def _show_event(event: records.StateEvent, *, full: bool, as_json: bool) -> None:
    if as_json:
        documents.show_line(documents.event(event))
        return
    from maos.cli import render

    render.event(event, full=full)
    sys.stdout.flush()
