"""`maos state create`, `update`, `rollback`, `restore`, `snapshot` and `compact`: changing the state of agents.

A rollback and a restore append a version: nothing that happened is rewritten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from maos.cli import commands, documents, render
from maos.cli.commands import Version, consent_options, full_option, json_command, pointer, state_argument
from maos.cli.database import DatabaseTarget, ask, need_yes
from maos.cli.render import Column, Listing, clean, shorten
from maos.cli.state.queries import document, show_changes
from maos.clock import SystemClock
from maos.errors import InvalidInput
from maos.model.agent import COMPRESSIONS, SNAPSHOT_KINDS, STRATEGIES
from maos.model.changes import DELETE, Extend

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.state.records import Compaction, SnapshotInfo, SnapshotRestored, StatePreview, Update

T = TypeVar("T")

expected_option = click.option(
    "--expected", type=click.IntRange(min=1), metavar="N", help="Refuse unless the state is at this version."
)


_event_options = commands.options(
    commands.source_option,
    click.option("--meta", "metadata", type=commands.JSON_OBJECT, metavar="JSON", help="More about it, an object."),
    click.option("--correlation", help="What it belongs to, such as the id of a run."),
    click.option("--causation", help="The id of the event that led to it, such as agent/planner@4."),
    click.option("--key", help="A command that is repeated with the same key changes nothing more."),
)
_return_options = commands.options(commands.source_option, consent_options, full_option)


def _signed(m: Maos, given: dict[str, Any]) -> dict[str, Any]:
    """Options of a change, with its author: the one that --source names, else the principal of this process."""
    return {**given, "source": given["source"] or str(m.principal)}


@json_command(
    "maos state create reviewer",
    """maos state create planner '{"status": "idle", "messages": []}'""",
    "maos state create writer @state.json",
    """echo '{"status": "idle"}' | maos state create tester -""",
)
@state_argument
@click.argument("data", metavar="[JSON]", type=commands.JSON_OBJECT, required=False)
@_event_options
def create(database: DatabaseTarget, /, agent: str, data: dict[str, Any] | None, as_json: bool, **event: Any) -> None:
    """Create the state of an agent.

    A database that does not exist is created too. JSON is the first state: an object, @FILE to read it from a file, or
    - for standard input. Without it the state gets the usual fields, all empty.
    """
    state = database.write(lambda m: m.state.create(agent, data, **_signed(m, event)), create=True)
    what = f" at version {state.version} with {render.many(len(state.raw()), 'field')}"
    render.show(document(state), "created ", (clean(agent), "bold"), what, as_json=as_json)


@json_command(
    """maos state update reviewer '{"status": "busy", "execution": {"task": "review"}}'""",
    """maos state update reviewer --append /messages '{"role": "user", "text": "hello"}'""",
    "maos state update reviewer --delete /execution/task --expected 7",
    """echo '{"status": "idle"}' | maos state update reviewer -""",
)
@state_argument
@click.argument("data", metavar="[JSON]", type=commands.JSON_OBJECT, required=False)
@click.option(
    "--append", "appended", type=(str, commands.JSON), metavar="POINTER JSON", multiple=True,
    help="Add an entry to the end of the list at a path. Can be repeated.",
)  # fmt: skip
@click.option(
    "--delete", "deleted", metavar="POINTER", multiple=True, help="Remove what is at a path. Can be repeated."
)
@expected_option
@click.option("--type", help="The type of the event.  [default: chosen by the change]")
@click.option("--critical", is_flag=True, help="Keep the event when the history is compacted.")
@_event_options
@full_option
def update(
    database: DatabaseTarget, /, agent: str, data: dict[str, Any] | None, full: bool, as_json: bool, **event: Any
) -> None:
    """Change some fields of a state; the others stay as they are.

    JSON is an object with the fields to change, @FILE to read it from a file, or - for standard input. Objects in it
    merge with those that are there; a key that begins with / is a path. Nothing is written when nothing changes.
    """
    appended, deleted = event.pop("appended"), event.pop("deleted")
    if data is None and not appended and not deleted:
        raise InvalidInput("there is nothing to change", hint="give a JSON object, --append or --delete")
    added: dict[str, list[Any]] = {}
    for path, entry in appended:
        added.setdefault(pointer(path), []).append(entry)
    wanted = {
        **(data or {}),
        **{path: Extend(entries) for path, entries in added.items()},
        **{pointer(path): DELETE for path in deleted},
    }
    done = database.write(lambda m: m.state.update(agent, wanted, **_signed(m, event)))
    if as_json:
        documents.show(_update_document(agent, done))
    elif done.version == done.previous:
        render.line((clean(agent), "bold"), f" has these values already, and stays at version {done.version}")
    else:
        render.line((clean(agent), "bold"), f" is now at version {done.version}")
        render.changes(done.changes, full=full)


def _update_document(agent: str, done: Update) -> documents.Document:
    return {"agent": agent, **documents.of(done, "version", "previous", "checksum", "changes")}


# --- back to an earlier state ------------------------------------------------------------------------------------


def agree(
    preview: Callable[[], T], show: Callable[[T], str], *, what: str, dry_run: bool, yes: bool, as_json: bool
) -> T | None:
    """Have a person agree to a change: print a preview and ask. None when --yes was given, and nothing is asked.

    `show` prints the preview and returns the question; an empty one when there is nothing to do. A dry run ends with
    the preview; so does the command when the answer is no.
    """
    if not dry_run:
        need_yes(what, yes=yes, as_json=as_json)
        if yes:
            return None
    found = preview()
    question = show(found)
    if dry_run or not question:
        raise click.exceptions.Exit(0)
    ask(question)
    return found


@json_command(
    "maos state rollback reviewer 3 --dry-run",
    "maos state rollback reviewer -1",
    "maos state rollback reviewer 3 --yes --expected 7",
)
@state_argument
@click.argument("version", metavar="VERSION", type=commands.VERSION)
@expected_option
@_return_options
def rollback(
    database: DatabaseTarget, /, agent: str, version: Version, expected: int | None, source: str | None, **how: bool
) -> None:
    """Roll a state back to a version.

    This appends a new version; nothing that happened is rewritten. On a terminal the changes are shown first. VERSION
    is a number, or counted from the newest: -1 undoes the last change.
    """

    async def look(m: Maos) -> StatePreview:
        return await m.state.preview_rollback(agent, await version.resolve(m, agent))

    agreed = _agreed(lambda: database.read(look), agent, "version", "a rollback", "Roll {} back to version {}?", **how)

    async def work(m: Maos) -> tuple[int, Update]:
        target = int(agreed.target) if agreed else await version.resolve(m, agent)
        at = expected or (agreed.newest if agreed else None)  # the person agreed to what was shown
        return target, await m.state.rollback(agent, target, expected=at, source=source or str(m.principal))

    target, done = database.write(work)
    if how["as_json"]:
        documents.show({"dry_run": False, "to": target, **_update_document(agent, done), "warnings": []})
        return
    render.line((clean(agent), "bold"), f" is now at version {done.version}, with the state of version {target}")
    if agreed is None:
        render.changes(done.changes, full=how["full"])


@json_command(
    "maos state restore reviewer before-upgrade --dry-run", "maos state restore reviewer before-upgrade --yes"
)
@state_argument
@click.argument("snapshot", metavar="SNAPSHOT")
@_return_options
def restore(database: DatabaseTarget, /, agent: str, snapshot: str, source: str | None, **how: bool) -> None:
    """Restore a state from a snapshot.

    SNAPSHOT is its id or name; `maos state snapshot AGENT --list` shows them. It is verified first.

    This appends a new version; nothing that happened is rewritten. On a terminal the changes are shown first.
    """

    def look() -> StatePreview:
        return database.read(lambda m: m.state.preview_restore(agent, snapshot))

    agreed = _agreed(look, agent, "snapshot", "restoring a snapshot", "Restore {} from snapshot {}?", **how)
    expected = agreed.newest if agreed else None  # the person agreed to what was shown

    async def work(m: Maos) -> SnapshotRestored:
        return await m.state.restore(agent, snapshot, expected=expected, source=source or str(m.principal))

    done = database.write(work)
    if how["as_json"]:
        document = documents.of(done)
        document["verified"] = document.pop("integrity_verified")
        documents.show({"dry_run": False, "agent": agent, **document})
        return
    for warning in done.warnings if agreed is None else ():
        render.line((f"warning: {clean(warning)}", "yellow"))
    version, source = done.version, done.snapshot
    render.line((clean(agent), "bold"), f" is now at version {version}, with the state of snapshot {source}")


def _agreed(
    look: Callable[[], StatePreview], agent: str, noun: str, act: str, question: str, *, full: bool, **consent: bool
) -> StatePreview | None:
    """Have a person agree to what a rollback to a version, or a restore from a snapshot, would change."""

    def show(preview: StatePreview) -> str:
        if consent["as_json"]:
            to: documents.Document = {"to": int(preview.target)} if noun == "version" else {noun: preview.target}
            changes, warnings = documents.of((preview.changes, preview.warnings))
            documents.show({"dry_run": True, "agent": agent, **to, "version": None, "previous": preview.newest,
                            "changes": changes, "warnings": warnings})  # fmt: skip
            return ""
        for warning in preview.warnings:
            render.line((f"warning: {clean(warning)}", "yellow"))
        what = f"from version {preview.newest} to the state of {noun} {clean(preview.target)}"
        show_changes(what, agent, preview.changes, full=full)
        return question.format(agent, preview.target)

    return agree(look, show, what=f"{act} changes state {agent!r}", **consent)


# --- snapshots and compaction ------------------------------------------------------------------------------------


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
        Column("id", lambda each: each.id, style="bold"),
        Column("name", lambda each: shorten(each.name, 40), yields=1),
        Column("version", lambda each: str(each.version), right=True),
        Column("kind", lambda each: each.kind),
        Column("taken", lambda each: render.when(each.time_us)),
        Column("stored", lambda each: render.size(each.bytes_stored), right=True),
        Column("kept", _kept),
    ),
    of=_document,
)


@json_command(
    "maos state snapshot reviewer",
    "maos state snapshot reviewer --name before-upgrade --permanent",
    "maos state snapshot reviewer --kind checkpoint --name monday --keep-for 30d",
    "maos state snapshot reviewer --list",
)
@state_argument
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
@click.option(
    "--keep-for", type=commands.DURATION, help="It may be removed after that long, such as 30d.  [default: kept]"
)
@click.option("--permanent", is_flag=True, help="Never removed unless by force.")
@commands.source_option
def snapshot(database: DatabaseTarget, /, agent: str, as_list: bool, as_json: bool, **how: Any) -> None:
    """Take a snapshot of a state, or list its snapshots.

    A rollback needs no snapshot: every version is kept. Snapshots remain when the history is compacted.
    """

    async def listed(m: Maos) -> list[SnapshotInfo]:
        await m.state.get(agent)  # an agent that does not exist is an error, one without snapshots is not
        return await m.state.snapshots(agent)

    if as_list:
        SNAPSHOTS.show(database.read(listed), as_json=as_json, empty=f"no snapshots of {clean(agent)}", agent=agent)
        return
    keep_for, permanent = how.pop("keep_for"), how.pop("permanent")
    expires_us = None if keep_for is None else SystemClock().now_us() + keep_for

    async def work(m: Maos) -> SnapshotInfo:
        from maos.state.records import Retention

        return await m.state.snapshot(agent, retention=Retention(expires_us, permanent), **_signed(m, how))

    info = database.write(work)
    stored, whole = render.size(info.bytes_stored), render.size(info.bytes_plain)
    named = f" ({clean(info.name)})" if info.name else ""
    size = f"{whole} in {stored}" if info.bytes_stored else "a name only"
    text = f"{named} of {clean(agent)} at version {info.version}: {info.kind}, {size}"
    render.show(_document(info), "snapshot ", (info.id, "bold"), text, as_json=as_json)


@json_command(
    "maos state compact reviewer --keep-last 100 --dry-run",
    "maos state compact reviewer --strategy merge --keep-since 30d --yes",
)
@state_argument
@click.option(
    "--strategy", type=click.Choice(STRATEGIES), default=STRATEGIES[0], show_default=True,
    help="One event for all before the kept ones, with or without a snapshot of it, or one for each run of "
    "uncritical events.",
)  # fmt: skip
@click.option("--keep-last", type=click.IntRange(min=0), metavar="N", help="Keep so many events as they are.")
@click.option("--keep-since", type=commands.WHEN, help="Keep events since a time: ISO 8601, or 30d ago.")
@click.option("--critical-only", is_flag=True, help="Keep critical events as they are.")
@commands.source_option
@consent_options
def compact(database: DatabaseTarget, /, agent: str, dry_run: bool, yes: bool, as_json: bool, **how: Any) -> None:
    """Compact the history of a state.

    Its state does not change. Versions that become one event can no longer be rolled back to.
    """

    def show(done: Compaction) -> str:
        _show_compaction(done, dry_run=True, as_json=as_json)
        is_needed = done.events_after != done.events_before and not as_json
        return f"Compact {agent}? Versions in between cannot be rolled back to afterwards." if is_needed else ""

    agree(
        lambda: database.read(lambda m: m.state.compact(agent, dry_run=True, **_signed(m, how))), show,
        what=f"compacting removes versions of state {agent!r} for good", dry_run=dry_run, yes=yes, as_json=as_json,
    )  # fmt: skip
    done = database.write(lambda m: m.state.compact(agent, **_signed(m, how)))
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
