"""`maos state list`, `show`, `at`, `history`, `events`, `diff`, `stream` and `verify`: reading the state of agents."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from maos.cli import commands, documents, remote, render
from maos.cli.commands import LINES, VERSION, WHEN, Version, full_option, json_command, pointer, state_argument
from maos.cli.database import DatabaseTarget
from maos.cli.failures import FAILED, code_for, report
from maos.cli.progress import progress_bar
from maos.cli.render import Column, Listing, clean, shorten
from maos.errors import Corrupt, HistoryLost, InvalidInput, NotFound
from maos.model.changes import MISSING, lookup, parse_pointer, plain

if TYPE_CHECKING:
    from maos import Report
    from maos.app import Maos
    from maos.model.changes import Change
    from maos.state.records import Peek, State, StateEvent, StateSummary, StateVersion
    from maos.web.client import Client
    from maos.web.documents import StateInfo, StateSummaryInfo, StateVersionInfo


def _status(status: Any) -> str:
    return "" if status is None else status if isinstance(status, str) else render.compact(status)


def _range(each: StateVersion | StateVersionInfo) -> str:
    return str(each.version) if each.spans == 1 else f"{each.version - each.spans + 1}–{each.version}"


AGENTS: Listing[StateSummary | StateSummaryInfo] = Listing(
    "agents",
    (
        Column("agent", lambda each: each.agent, style="bold", yields=1),
        Column("version", lambda each: str(each.version), right=True),
        Column("status", lambda each: shorten(_status(each.status), 30), yields=2),
        Column("last event", lambda each: each.type, style="dim", yields=2),
        Column("changed", lambda each: render.when(each.time_us)),
        Column("by", lambda each: shorten(each.source, 30), style="dim", yields=2),
    ),
    empty="no agent has a state; `maos state create AGENT` creates one",
)

VERSIONS: Listing[StateVersion | StateVersionInfo] = Listing(
    "versions",
    (
        Column("version", _range, right=True, style="bold"),
        Column("event", lambda each: each.type),
        Column("changes", lambda each: str(each.changes), right=True),
        Column("time", lambda each: render.when(each.time_us)),
        Column("by", lambda each: shorten(each.source, 30), style="dim", yields=1),
        Column("checksum", lambda each: each.checksum[:12], style="dim"),
    ),
)


@json_command("maos state list", "maos state list --prefix team-a/ --json")
@click.option("--prefix", default="", help="Only agents whose names begin with this.")
def list_(database: DatabaseTarget, prefix: str, as_json: bool) -> int:
    """List the agents that have a state.

    `maos agent list` lists those that run or ran. A damaged state is named on standard error, the others are listed all
    the same; the exit code is then 1.
    """
    damaged: list[Corrupt] = []

    async def work(m: Maos) -> list[StateSummary]:
        found = []
        async for name in m.state.names(prefix):
            try:
                found.append(await m.state.summary(name))
            except Corrupt as error:
                damaged.append(error)
        return found

    async def work_remotely(client: Client) -> list[StateSummaryInfo]:
        found = await remote.all_of(lambda cursor: client.states(limit=remote.PAGE, cursor=cursor), "agents")
        return [each for each in found if each.agent.startswith(prefix)]

    found = remote.call(work_remotely) if database.is_remote else database.read(work)
    AGENTS.show(found, as_json=as_json)
    for error in damaged:
        report(error.what, error.hint if error is damaged[-1] else "")
    return code_for(damaged[0]) if damaged else 0


@json_command(
    "maos state show reviewer",
    "maos state show reviewer --path /messages/0",
    "maos state show reviewer --path /messages --last 3",
)
@state_argument
@commands.path_option
@click.option(
    "--last", type=click.IntRange(min=0), metavar="N", help="Only so many entries of the list at --path, the last ones."
)
@full_option
def show(database: DatabaseTarget, agent: str, path: str | None, last: int | None, full: bool, as_json: bool) -> None:
    """Show the newest version of a state, or a part of it.

    With --last, the end of a long list is read without the rest of it, and the state is shown without its long lists.
    """
    if database.is_remote:
        remote.refuse(last="--last")
        found = remote.call(lambda client: client.state(agent))
        _show_state(found, found.data, path, as_json)
    elif last is None:
        state = database.read(lambda m: m.state.get(agent))
        _show_state(state, state.raw(), path, as_json)
    elif path is None:
        raise InvalidInput("--last needs a list", hint="name it with --path, such as --path /messages")
    else:
        _show_peek(database.read(lambda m: m.state.peek(agent, pointer(path), last=last)), pointer(path), full, as_json)


@json_command("maos state peek reviewer /messages")
@state_argument
@click.argument("path", metavar="POINTER")
@click.option("--last", type=click.IntRange(min=0), default=10, metavar="N", show_default=True, help="How many.")
@full_option
@click.pass_context
def peek(ctx: click.Context, _database: DatabaseTarget, /, **given: Any) -> None:
    """The older name of `maos state show AGENT --path POINTER --last N`."""
    ctx.invoke(show, **given)


@json_command(
    "maos state at reviewer 3",
    "maos state at reviewer -1 --path /status",
    "maos state at reviewer --time 2h",
    "maos state at reviewer --time 2026-03-01T14:30:00+01:00",
)
@state_argument
@click.argument("version", metavar="[VERSION]", type=VERSION, required=False)
@click.option("--time", type=WHEN, help="ISO 8601 (local unless it says otherwise), or how long ago: 15m, 2h, 3d.")
@commands.path_option
def at(
    database: DatabaseTarget, agent: str, version: Version | None, time: int | None, path: str | None, as_json: bool
) -> None:
    """Show a state as it was at a version or a time.

    VERSION is a number, or counted from the newest: -1 is the one before it.
    """
    if (version is None) == (time is None):
        raise InvalidInput("give either a version or --time", hint="`maos state at --help` shows how it is used")

    async def work(m: Maos) -> State:
        return await m.state.at(agent, version=await version.resolve(m, agent) if version else None, time=time)

    state = database.read(work)
    _show_state(state, state.raw(), path, as_json)


def _show_state(state: State | StateInfo, data: dict[str, Any], path: str | None, as_json: bool) -> None:
    if path is None and as_json:
        documents.show(_document(state, data))
        return
    if path is None:
        render.state(state, data)
        return
    path = pointer(path)
    found = lookup(data, parse_pointer(path, data))
    if found is MISSING:
        raise NotFound(
            f"agent {state.agent!r} has nothing at {path} in version {state.version}",
            hint="`maos state show` without --path shows what there is",
        )
    if as_json:
        documents.show({"agent": state.agent, "version": state.version, "path": path, "value": found})
    else:
        render.pretty(found)


def _show_peek(found: Peek, path: str, full: bool, as_json: bool) -> None:
    if as_json:
        document: documents.Document = documents.of(found)
        documents.show({**document, "left_out": document.pop("elided"), "path": path})
        return
    render.line((clean(found.agent), "bold"), f" at version {found.version}")
    render.pretty(plain(found.head))
    for name, length in found.elided.items():
        if name != path:
            render.line((f"left out: {clean(name)}, {render.many(length, 'entry', 'entries')}", "dim"))
    shown = f"the last {len(found.entries)}" if found.start else "all"
    render.line((clean(path), "bold"), f": {shown} of {render.many(found.length, 'entry', 'entries')}")
    width = len(str(found.length))
    room = None if full else render.room_for_value(width + 2)
    for index, entry in enumerate(found.entries, found.start):
        render.line((f"{index:>{width}}  ", "dim"), shorten(render.compact(entry), room))


def document(state: State) -> documents.Document:
    """A state with its data, for programs."""
    return _document(state, state.raw())


def _document(state: State | StateInfo, data: dict[str, Any]) -> documents.Document:
    head = documents.of(state, "agent", "version", "type", "source", "checksum", "time_us")
    return {**head, "status": data.get("status"), "data": data}


# --- its history -------------------------------------------------------------------------------------------------


@json_command("maos state history reviewer", "maos state history reviewer --last 5 --json")
@state_argument
@click.option(
    "--last", type=click.IntRange(min=1), default=50, metavar="N", show_default=True, help="How many versions to show."
)
@click.option("--all", "everything", is_flag=True, help="Show every version.")
def history(database: DatabaseTarget, agent: str, last: int, everything: bool, as_json: bool) -> None:
    """List the versions of a state, the newest last."""

    async def work(m: Maos) -> list[StateVersion]:
        newest = await m.state.version(agent)
        return await m.state.history(agent, after=0 if everything else max(0, newest - last))

    async def work_remotely(client: Client) -> list[StateVersionInfo]:
        after = 0 if everything else max(0, (await client.state(agent)).version - last)
        return await remote.all_of(
            lambda cursor: client.state_versions(agent, limit=remote.PAGE, cursor=cursor or str(after)), "versions"
        )

    versions: Sequence[StateVersion | StateVersionInfo]
    versions = remote.call(work_remotely) if database.is_remote else database.read(work)
    earlier = versions[0].version - versions[0].spans
    VERSIONS.show(versions, as_json=as_json, agent=agent, earlier=earlier)
    if earlier and not as_json:
        render.line((f"{render.many(earlier, 'earlier version')} not shown (--all shows them)", "dim"))


@json_command(
    "maos state events reviewer",
    "maos state events reviewer --after -5 --full",
    "maos state events reviewer --type status_changed --since 2h --json",
    "maos state events reviewer --path /messages --limit 3",
    json=LINES,
)
@state_argument
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
def events(
    database: DatabaseTarget, /, agent: str, after: Version, until: Version | None, full: bool, as_json: bool, **by: Any
) -> None:
    """Show the events of a state, with what each changed.

    With several filters, an event has to pass them all.
    """
    filters = {name: value for name, value in by.items() if value not in (None, ())}
    if "path" in filters:
        filters["path"] = pointer(filters["path"])

    async def work(m: Maos) -> list[StateEvent]:
        end = None if until is None else await until.resolve(m, agent)
        return await m.state.events(agent, after=await _start(after, m, agent), until=end, **filters)

    for event in database.read(work):
        _show_event(event, full=full, as_json=as_json)


@json_command(
    "maos state stream reviewer", "maos state stream reviewer --after -5", "maos state stream reviewer --json",
    json=LINES,
)  # fmt: skip
@state_argument
@click.option(
    "--after", type=VERSION, default="newest", help="Start after this version; -5 for the last five, 0 for all."
)
@full_option
def stream(database: DatabaseTarget, agent: str, after: Version, full: bool, as_json: bool) -> None:
    """Follow the events of a state as they happen.

    Events of all processes and machines are seen. Ctrl+C ends it.
    """

    async def work(m: Maos) -> None:
        if not await m.state.version(agent):
            from maos.state.loader import missing

            raise missing(agent)
        start = await _start(after, m, agent)
        if sys.stderr.isatty():
            click.echo(f"events of {clean(agent)} after version {start}, as they happen; Ctrl+C ends this", err=True)
        async for event in m.state.stream(agent, after=start):
            _show_event(event, full=full, as_json=as_json)

    database.read(work, waits=True)


async def _start(after: Version, m: Maos, agent: str) -> int:
    """The version to start after; 0 when it is counted further back than there are versions."""
    return max(0, await m.state.version(agent) - after.number) if after.from_newest else after.number


def _show_event(event: StateEvent, *, full: bool, as_json: bool) -> None:
    if as_json:
        documents.show_line({"id": event.id, **documents.of(event)})
        return
    render.event(event, full=full)
    sys.stdout.flush()


@json_command("maos state diff reviewer", "maos state diff reviewer 1 newest", "maos state diff reviewer -2 --full")
@state_argument
@click.argument("first", metavar="[FIRST]", type=VERSION, default="newest-1")
@click.argument("second", metavar="[SECOND]", type=VERSION, default="newest")
@full_option
def diff(database: DatabaseTarget, agent: str, first: Version, second: Version, full: bool, as_json: bool) -> None:
    """Show what changed between two versions.

    + stands before what was added, - before what was removed, ~ before what changed from one value to another.

    FIRST is the version before the newest and SECOND the newest, unless given. Each is a number, `newest`, or counted
    from there: -2 is two before the newest.
    """

    async def work(m: Maos) -> tuple[int, int, list[Change]]:
        start, end = await first.resolve(m, agent), await second.resolve(m, agent)
        return start, end, await m.state.diff(agent, start, end)

    start, end, changes = database.read(work)
    if as_json:
        documents.show({"agent": agent, "from": start, "to": end, "changes": documents.of(changes)})
    else:
        show_changes(f"from version {start} to {end}", agent, changes, full=full)


def show_changes(what: str, agent: str, changes: Sequence[Change], *, full: bool) -> None:
    """Print how many changes there are between two states of an agent, and each of them."""
    found = render.many(len(changes), "change") if changes else "no difference"
    render.line((clean(agent), "bold"), f" {what}: {found}")
    render.changes(changes, full=full)


@json_command("maos admin verify", "maos admin verify reviewer", "maos admin verify --accept-loss --json")
@click.argument("agent", metavar="[AGENT]", required=False)
@click.option(
    "--accept-loss", is_flag=True,
    help="Accept that the database lost events from its end, and report which. This cannot be undone.",
)  # fmt: skip
def verify(database: DatabaseTarget, agent: str | None, accept_loss: bool, as_json: bool) -> int:
    """Check that everything is as it was written.

    Reads every event, snapshot and saved state. Names each damaged place as STREAM@VERSION and what can be recovered;
    exits with 1 if there is any.
    """
    lost: HistoryLost | None = None

    async def work(m: Maos) -> Report:
        with progress_bar(f"checking {clean(agent or 'the journal')}", count=agent is None) as progress:
            return await m.verify(agent, progress=progress)

    try:
        try:
            report = database.read(work)
        except HistoryLost as error:
            if not accept_loss:
                raise
            lost = error
            report = database.read(work, accept_loss=True)
    except Corrupt as error:  # not even opened; the usual hint would lead back here
        raise Corrupt(error.what, hint="restore a copy of the database") from error
    if as_json:
        losses = None if lost is None else {"acknowledged": lost.acknowledged, "found": lost.found, "what": lost.what}
        documents.show({"ok": report.ok, **documents.of(report), "lost": losses})
    else:
        _show_report(report, lost)
    return 0 if report.ok else FAILED


def _show_report(report: Report, lost: HistoryLost | None) -> None:
    if lost is not None:
        render.line(("lost: ", "bold yellow"), clean(lost.what))
        if lost.acknowledged > lost.found:
            events = render.many(lost.acknowledged - lost.found, "event")
            render.line(f"      lost after position {lost.found}: {events}; the database is used without them")
    for each in report.damage:
        place = (f"{each.stream}@{each.version}" if each.version else each.stream) or "the journal"
        render.line((clean(place), "bold red"), f"  {clean(each.what)}")
        render.line((f"    can be recovered: {clean(each.recoverable)}", "dim"))
    for text in report.notes:
        render.line((render.wrap(f"note: {clean(text)}", sys.stdout, indent="  "), "dim"))
    checked = f"{render.many(report.events, 'event')} in {render.many(report.streams, 'stream')}"
    if report.ok:
        render.line(("ok", "bold green"), f": {checked}, everything as it was written")
    else:
        places = render.many(len(report.damage), "place")
        render.line(("damaged", "bold red"), f": {places}; {checked} were checked")
