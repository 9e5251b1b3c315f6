"""`maos state list`, `show`, `at`, `peek`, `history`, `events`, `diff` and `stream`: reading the state of agents."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from maos.cli import documents, render
from maos.cli.arguments import BEFORE_NEWEST, NEWEST, VERSION, WHEN, Version, pointer
from maos.cli.commands import LazyCommand, full_option, json_lines_option, json_option, path_option
from maos.cli.completion import agent_argument
from maos.cli.console import Field, Listing
from maos.cli.database import DatabaseTarget
from maos.cli.failures import code_for, report
from maos.cli.plain import clean, shorten
from maos.errors import Corrupt, InvalidInput, NotFound
from maos.model.changes import MISSING, lookup, parse_pointer
from maos.model.view import plain

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.changes import Change
    from maos.state import records
    from maos.state.records import Peek, State, Summary

HISTORY_LAST = 50


def _status(status: Any) -> str:
    return "" if status is None else status if isinstance(status, str) else render.compact(status)


def _range(each: records.Version) -> str:
    return str(each.version) if each.spans == 1 else f"{each.version - each.spans + 1}–{each.version}"


AGENTS: Listing[Summary] = Listing(
    "agents",
    (
        Field("agent", lambda each: each.agent, style="bold", yields=1),
        Field("version", lambda each: str(each.version), right=True),
        Field("status", lambda each: shorten(_status(each.status), 30), yields=2),
        Field("last event", lambda each: each.type, style="dim", yields=2),
        Field("changed", lambda each: render.when(each.time_us)),
        Field("by", lambda each: shorten(each.source, 30), style="dim", yields=2),
    ),
    empty="no agents; `maos state create AGENT` makes one",
)

VERSIONS: Listing[records.Version] = Listing(
    "versions",
    (
        Field("version", _range, right=True, style="bold"),
        Field("event", lambda each: each.type),
        Field("changes", lambda each: str(each.changes), right=True),
        Field("time", lambda each: render.when(each.time_us)),
        Field("by", lambda each: shorten(each.source, 30), style="dim", yields=1),
        Field("checksum", lambda each: each.checksum[:12], style="dim"),
    ),
)


@click.command("list", cls=LazyCommand, examples=["maos state list", "maos state list --prefix team-a/ --json"])
@click.option("--prefix", default="", help="Only agents whose names begin with this.")
@json_option
@click.pass_context
def list_(ctx: click.Context, prefix: str, as_json: bool) -> None:
    """List the agents there are.

    A damaged one is named on standard error, the others are listed all the same; the exit code is then 1.
    """
    damaged: list[Corrupt] = []

    async def work(m: Maos) -> list[Summary]:
        found = []
        async for name in m.state.names(prefix):
            try:
                found.append(await m.state.summary(name))
            except Corrupt as error:
                damaged.append(error)
        return found

    AGENTS.show(ctx.obj.read(work), as_json=as_json)
    for error in damaged:
        report(error.what, error.hint if error is damaged[-1] else "")
    if damaged:
        ctx.exit(code_for(damaged[0]))


@click.command(cls=LazyCommand, examples=["maos state show reviewer", "maos state show reviewer --path /messages/0"])
@agent_argument
@path_option
@json_option
@click.pass_obj
def show(database: DatabaseTarget, agent: str, path: str | None, as_json: bool) -> None:
    """Show the newest state of an agent."""

    async def work(m: Maos) -> State:
        return await m.state.get(agent)

    _show_state(database.read(work), path, as_json)


@click.command(
    cls=LazyCommand,
    examples=[
        "maos state at reviewer 3",
        "maos state at reviewer -1 --path /status",
        "maos state at reviewer --time 2h",
        "maos state at reviewer --time 2026-03-01T14:30:00+01:00",
    ],
)
@agent_argument
@click.argument("version", metavar="[VERSION]", type=VERSION, required=False)
@click.option("--time", type=WHEN, help="ISO 8601 (local unless it says otherwise), or how long ago: 15m, 2h, 3d.")
@path_option
@json_option
@click.pass_obj
def at(
    database: DatabaseTarget, agent: str, version: Version | None, time: int | None, path: str | None, as_json: bool
) -> None:
    """Show the state of an agent as it was at a version or a time.

    VERSION is a number, or counted from the newest: -1 is the one before it.
    """
    if (version is None) == (time is None):
        raise InvalidInput("give either a version or --time", hint="`maos state at --help` shows how it is used")

    async def work(m: Maos) -> State:
        if version is None:
            return await m.state.at(agent, time=time)
        return await m.state.at(agent, version=await version.resolve(m, agent))

    _show_state(database.read(work), path, as_json)


def _show_state(state: State, path: str | None, as_json: bool) -> None:
    if path is None:
        if as_json:
            documents.show(document(state))
        else:
            render.state(state)
        return
    path = pointer(path)
    found = _value(state, path)
    if as_json:
        documents.show({"agent": state.agent, "version": state.version, "path": path, "value": found})
    else:
        render.pretty(found)


def _value(state: State, path: str) -> Any:
    found = lookup(state.raw(), parse_pointer(path, state.raw()))
    if found is MISSING:
        raise NotFound(
            f"agent {state.agent!r} has nothing at {path} in version {state.version}",
            hint="`maos state show` without --path shows what there is",
        )
    return found


def document(state: State) -> documents.Document:
    """A state with its data, for programs."""
    return {
        "agent": state.agent,
        "version": state.version,
        "status": state.raw().get("status"),
        "type": state.type,
        "source": state.source,
        **documents.time(state.time_us),
        "checksum": state.checksum,
        "data": state.raw(),
    }


@click.command(
    cls=LazyCommand, examples=["maos state peek reviewer /messages", "maos state peek reviewer messages --last 3"]
)
@agent_argument
@click.argument("path", metavar="POINTER")
@click.option(
    "--last", type=click.IntRange(min=0), default=10, metavar="N", show_default=True, help="How many entries."
)
@full_option
@json_option
@click.pass_obj
def peek(database: DatabaseTarget, agent: str, path: str, last: int, full: bool, as_json: bool) -> None:
    """Show the end of a long list without reading the rest of it.

    The state is shown with it, without its long lists.
    """
    path = pointer(path)

    async def work(m: Maos) -> Peek:
        return await m.state.peek(agent, path, last=last)

    found = database.read(work)
    head = plain(found.head)
    if as_json:
        more = {"left_out": dict(found.elided), "path": path, "length": found.length, "start": found.start}
        documents.show(
            {
                "agent": found.agent,
                "version": found.version,
                "checksum": found.checksum,
                "head": head,
                **more,
                "entries": found.entries,
            }
        )
        return
    render.line((clean(found.agent), "bold"), f" at version {found.version}")
    render.pretty(head)
    for name, length in found.elided.items():
        if name != path:
            render.line((f"left out: {clean(name)}, {render.many(length, 'entry', 'entries')}", "dim"))
    shown = f"the last {len(found.entries)}" if found.start else "all"
    render.line((clean(path), "bold"), f": {shown} of {render.many(found.length, 'entry', 'entries')}")
    width = len(str(found.length))
    room = None if full else render.room_for_value(width + 2)
    for index, entry in enumerate(found.entries, found.start):
        render.line((f"{index:>{width}}  ", "dim"), shorten(render.compact(entry), room))


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
        return await m.state.history(agent, after=0 if everything else max(0, newest - last))

    versions = database.read(work)
    earlier = versions[0].version - versions[0].spans
    if as_json:
        documents.show({"agent": agent, "earlier": earlier, **VERSIONS.document(versions)})
        return
    VERSIONS.table(versions)
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
        return await m.state.events(
            agent,
            after=await _start(after, m, agent),
            until=None if until is None else await until.resolve(m, agent),
            types=types or None,
            since=since,
            before=before,
            source=source,
            correlation=correlation,
            path=None if path is None else pointer(path),
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
        return start, end, await m.state.diff(agent, start, end)

    start, end, changes = database.read(work)
    if as_json:
        documents.show({"agent": agent, "from": start, "to": end, "changes": change_documents(changes)})
        return
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
        async for event in m.state.stream(agent, after=start):
            _show_event(event, full=full, as_json=as_json)

    database.read(work)


async def _start(after: Version, m: Maos, agent: str) -> int:
    """Where to begin; counted further back than there are versions, it is the first."""
    newest = await NEWEST.resolve(m, agent)
    return max(0, newest - after.number) if after.from_newest else after.number


def _show_event(event: records.StateEvent, *, full: bool, as_json: bool) -> None:
    if as_json:
        documents.show_line(
            {
                "id": event.id,
                **documents.of(event),
                "metadata": dict(event.metadata),
                "changes": change_documents(event.changes),
            }
        )
        return
    render.event(event, full=full)
    sys.stdout.flush()


def change_documents(found: Sequence[Change]) -> list[documents.Document]:
    """Changes for programs; `kind` tells whether null in `old` or `new` stands for nothing at all."""
    return [
        {
            "path": each.path,
            "kind": each.kind,
            "old": None if each.kind == "create" else each.old,
            "new": None if each.kind == "delete" else each.new,
        }
        for each in found
    ]
