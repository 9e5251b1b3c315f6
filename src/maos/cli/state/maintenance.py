"""`maos state snapshot`, `verify` and `compact`: saving states, checking them, and shortening their histories."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from maos.cli import documents, render
from maos.cli.arguments import DURATION, WHEN
from maos.cli.commands import command, dry_run_option, source_option, yes_option
from maos.cli.completion import agent_argument
from maos.cli.console import Field, Listing
from maos.cli.database import DatabaseTarget
from maos.cli.failures import FAILED
from maos.cli.plain import clean, shorten
from maos.cli.state.updates import agree
from maos.clock import SystemClock
from maos.errors import Corrupt, HistoryLost
from maos.model.agent import COMPRESSIONS, SNAPSHOT_KINDS, STRATEGIES

if TYPE_CHECKING:
    from maos import Report
    from maos.app import Maos
    from maos.state.records import Compaction, SnapshotInfo


def _kept(info: SnapshotInfo) -> str:
    if info.retention.permanent or info.retention.critical:
        return "permanently" if info.retention.permanent else "critical"
    return "" if info.retention.expires_us is None else f"until {render.when(info.retention.expires_us)}"


def _document(info: SnapshotInfo) -> documents.Document:
    document: documents.Document = documents.of(info)
    return {**document, **document.pop("retention")}


SNAPSHOTS: Listing[SnapshotInfo] = Listing(
    "snapshots",
    (
        Field("id", lambda each: each.id, style="bold"),
        Field("name", lambda each: shorten(each.name, 40), yields=1),
        Field("version", lambda each: str(each.version), right=True),
        Field("kind", lambda each: each.kind),
        Field("taken", lambda each: render.when(each.time_us)),
        Field("stored", lambda each: render.size(each.bytes_stored), right=True),
        Field("kept", _kept),
    ),
    document=_document,
)


@command(
    "maos state snapshot reviewer",
    "maos state snapshot reviewer --name before-upgrade --permanent",
    "maos state snapshot reviewer --kind checkpoint --name monday --keep-for 30d",
    "maos state snapshot reviewer --list",
)
@agent_argument
@click.option("--list", "as_list", is_flag=True, help="List the snapshots there are instead.")
@click.option("--name", default="", help="A name to restore it by.")
@click.option(
    "--kind", type=click.Choice(SNAPSHOT_KINDS), default=SNAPSHOT_KINDS[0], show_default=True,
    help="All data, what changed since the last snapshot, or only a name for the version.",
)  # fmt: skip
@click.option(
    "--compression", type=click.Choice(COMPRESSIONS), default=COMPRESSIONS[0], show_default=True,
    help="zstd is smallest, lz4 fastest.",
)  # fmt: skip
@click.option("--keep-for", type=DURATION, help="It may be removed after that long, such as 30d.  [default: kept]")
@click.option("--permanent", is_flag=True, help="Never removed unless by force.")
@source_option
def snapshot(database: DatabaseTarget, /, agent: str, as_list: bool, as_json: bool, **how: Any) -> None:
    """Take a snapshot of an agent's state, or list its snapshots.

    A rollback needs no snapshot: every version is kept. Snapshots remain when the history is compacted.
    """
    if as_list:
        _show_snapshots(database, agent, as_json)
        return
    keep_for, permanent = how.pop("keep_for"), how.pop("permanent")
    expires_us = None if keep_for is None else SystemClock().now_us() + keep_for

    async def work(m: Maos) -> SnapshotInfo:
        from maos.state.records import Retention

        return await m.state.snapshot(agent, retention=Retention(expires_us, permanent), **how)

    info = database.write(work)
    if as_json:
        documents.show(_document(info))
        return
    stored, whole = render.size(info.bytes_stored), render.size(info.bytes_plain)
    named = f" ({clean(info.name)})" if info.name else ""
    size = f"{whole} in {stored}" if info.bytes_stored else "a name only"
    text = f"{named} of {clean(agent)} at version {info.version}: {info.kind}, {size}"
    render.line("snapshot ", (info.id, "bold"), text)


def _show_snapshots(database: DatabaseTarget, agent: str, as_json: bool) -> None:
    async def work(m: Maos) -> list[SnapshotInfo]:
        await m.state.get(agent)  # an agent that does not exist is an error, one without snapshots is not
        return await m.state.snapshots(agent)

    found = database.read(work)
    if found or as_json:
        SNAPSHOTS.show(found, as_json=as_json, agent=agent)
    else:
        render.line(f"no snapshots of {clean(agent)}")


@command("maos admin verify", "maos admin verify reviewer", "maos admin verify --accept-loss --json")
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
        with _progress(f"checking {clean(agent or 'the journal')}", count=agent is None) as progress:
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
        raise Corrupt(error.what, hint="put back a copy of the database") from error
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
        render.line((f"note: {clean(text)}", "dim"))
    checked = f"{render.many(report.events, 'event')} in {render.many(report.streams, 'stream')}"
    if report.ok:
        render.line(("ok", "bold green"), f": {checked}, everything as it was written")
    else:
        places = render.many(len(report.damage), "place")
        render.line(("damaged", "bold red"), f": {places}; {checked} were checked")


@contextmanager
def _progress(what: str, *, count: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Draw a progress bar on standard error if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = [TextColumn("{task.description}", markup=False), BarColumn()]
    drawn = Progress(*columns, *([MofNCompleteColumn()] if count else []), console=Console(stderr=True), transient=True)
    with drawn:
        task = drawn.add_task(what, total=None)

        def advance(done: int, total: int) -> None:
            if count:
                now = what if done < total else "replaying the agents"
                drawn.update(task, description=now, completed=done, total=max(done, total))

        yield advance


@command(
    "maos state compact reviewer --keep-last 100 --dry-run",
    "maos state compact reviewer --strategy merge --keep-since 30d --yes",
)
@agent_argument
@click.option(
    "--strategy", type=click.Choice(STRATEGIES), default=STRATEGIES[0], show_default=True,
    help="One event for all before the kept ones, with or without a snapshot of it, or one for each run of "
    "uncritical events.",
)  # fmt: skip
@click.option("--keep-last", type=click.IntRange(min=0), metavar="N", help="Keep so many events as they are.")
@click.option("--keep-since", type=WHEN, help="Keep events since a time: ISO 8601, or 30d ago.")
@click.option("--critical-only", is_flag=True, help="Keep critical events as they are.")
@source_option
@dry_run_option
@yes_option
def compact(database: DatabaseTarget, /, agent: str, dry_run: bool, yes: bool, as_json: bool, **how: Any) -> None:
    """Compact the history of an agent.

    Its state does not change. Versions that become one event can no longer be rolled back to.
    """

    def show(done: Compaction) -> str:
        _show_compaction(done, dry_run=True, as_json=as_json)
        is_needed = done.events_after != done.events_before and not as_json
        return f"Compact {agent}? Versions in between cannot be rolled back to afterwards." if is_needed else ""

    agree(
        lambda: database.read(lambda m: m.state.compact(agent, dry_run=True, **how)), show,
        what=f"compacting removes versions of agent {agent!r} for good", dry_run=dry_run, yes=yes, as_json=as_json,
    )  # fmt: skip
    done = database.write(lambda m: m.state.compact(agent, **how))
    _show_compaction(done, dry_run=False, as_json=as_json)


def _show_compaction(done: Compaction, *, dry_run: bool, as_json: bool) -> None:
    agent = (clean(done.agent), "bold")
    if as_json:
        documents.show({"dry_run": dry_run, **documents.of(done)})
    elif done.events_after == done.events_before:
        render.line(agent, ": nothing to compact")
    else:
        verb = "would become" if dry_run else "became"
        events = f"{render.many(done.events_before, 'event')} {verb} {done.events_after}"
        kept = f", kept in snapshot {done.snapshot}" if done.snapshot else ""
        render.line(agent, f": versions 1 to {done.through}, {events}{kept}")
