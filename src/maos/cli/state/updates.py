"""`maos state create`, `update`, `rollback` and `restore`: changing the state of agents.

A rollback and a restore append: nothing that happened is rewritten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from maos.cli import documents, render
from maos.cli.arguments import JSON, JSON_OBJECT, VERSION, Version, pointer
from maos.cli.commands import (
    LazyCommand,
    dry_run_option,
    full_option,
    json_option,
    source_option,
    yes_option,
)
from maos.cli.completion import agent_argument
from maos.cli.database import DatabaseTarget, ask, need_yes
from maos.cli.plain import clean
from maos.cli.state.queries import change_documents, document
from maos.errors import InvalidInput
from maos.model.changes import DELETE, Extend

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.state.records import Preview, Restored, State, Update

_key_option = click.option("--key", help="Makes repeating the command harmless: the same key, the same change, once.")
_correlation_option = click.option("--correlation", help="What it belongs to, such as the id of a run.")
_causation_option = click.option("--causation", help="The id of the event that led to it, such as agent/planner@4.")
_meta_option = click.option("--meta", "metadata", type=JSON_OBJECT, metavar="JSON", help="More about it, an object.")


@click.command(
    cls=LazyCommand,
    examples=[
        "maos state create reviewer",
        """maos state create planner '{"status": "idle", "messages": []}'""",
        "maos state create writer @state.json",
        """echo '{"status": "idle"}' | maos state create tester -""",
    ],
)
@agent_argument
@click.argument("data", metavar="[JSON]", type=JSON_OBJECT, required=False)
@source_option
@_meta_option
@_correlation_option
@_causation_option
@_key_option
@json_option
@click.pass_obj
def create(
    database: DatabaseTarget,
    agent: str,
    data: dict[str, Any] | None,
    source: str,
    metadata: dict[str, Any] | None,
    correlation: str | None,
    causation: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Begin an agent, and the database if there is none yet.

    JSON is the state to begin with: an object, @FILE to read it from a file, or - for standard input. Without it the
    agent gets the usual fields, all empty.
    """

    async def work(m: Maos) -> State:
        return await m.state.create(
            agent, data, source=source, metadata=metadata, correlation=correlation, causation=causation, key=key
        )

    state = database.write(work, create=True)
    if as_json:
        documents.show(document(state))
        return
    fields = render.many(len(state.raw()), "field")
    render.line("created ", (clean(agent), "bold"), f" at version {state.version} with {fields}")


@click.command(
    cls=LazyCommand,
    examples=[
        """maos state update reviewer '{"status": "busy", "execution": {"task": "review"}}'""",
        """maos state update reviewer --append /messages '{"role": "user", "text": "hello"}'""",
        "maos state update reviewer --delete /execution/task --expected 7",
        """echo '{"status": "idle"}' | maos state update reviewer -""",
    ],
)
@agent_argument
@click.argument("data", metavar="[JSON]", type=JSON_OBJECT, required=False)
@click.option(
    "--append", "appended", type=(str, JSON), metavar="POINTER JSON", multiple=True,
    help="Add an entry to the end of the list at a path. Can be repeated.",
)  # fmt: skip
@click.option(
    "--delete", "deleted", metavar="POINTER", multiple=True, help="Remove what is at a path. Can be repeated."
)
@click.option("--expected", type=click.IntRange(min=1), metavar="N", help="Refuse unless the agent is at this version.")
@click.option("--type", "type_", help="The type of the event.  [default: what suits the change]")
@click.option("--critical", is_flag=True, help="Keep the event by itself when the history is compacted.")
@source_option
@_meta_option
@_correlation_option
@_causation_option
@_key_option
@full_option
@json_option
@click.pass_obj
def update(
    database: DatabaseTarget,
    agent: str,
    data: dict[str, Any] | None,
    appended: tuple[tuple[str, Any], ...],
    deleted: tuple[str, ...],
    expected: int | None,
    type_: str | None,
    critical: bool,
    source: str,
    metadata: dict[str, Any] | None,
    correlation: str | None,
    causation: str | None,
    key: str | None,
    full: bool,
    as_json: bool,
) -> None:
    """Change some fields; what is not named stays as it is.

    JSON is an object with the fields to change, @FILE to read it from a file, or - for standard input. Objects in it
    merge with those that are there; a key that begins with / is a path. Nothing is written when nothing changes.
    """

    async def work(m: Maos) -> Update:
        return await m.state.update(
            agent, _wanted(data, appended, deleted), expected=expected, type=type_, critical=critical, source=source,
            metadata=metadata, correlation=correlation, causation=causation, key=key,
        )  # fmt: skip

    done = database.write(work)
    if as_json:
        documents.show(_updated(agent, done))
        return
    if done.version == done.previous:
        render.line((clean(agent), "bold"), f" is so already, and stays at version {done.version}")
        return
    render.line((clean(agent), "bold"), f" is now at version {done.version}")
    render.changes(done.changes, full=full)


def _wanted(
    data: dict[str, Any] | None, appended: tuple[tuple[str, Any], ...], deleted: tuple[str, ...]
) -> dict[str, Any]:
    if data is None and not appended and not deleted:
        raise InvalidInput("there is nothing to change", hint="give a JSON object, --append or --delete")
    wanted = dict(data or {})
    added: dict[str, list[Any]] = {}
    for path, entry in appended:
        added.setdefault(pointer(path), []).append(entry)
    wanted.update({path: Extend(entries) for path, entries in added.items()})
    wanted.update({pointer(path): DELETE for path in deleted})
    return wanted


def _updated(agent: str, done: Update) -> documents.Document:
    return {
        "agent": agent,
        "version": done.version,
        "previous": done.previous,
        "checksum": done.checksum,
        "changes": change_documents(done.changes),
    }


@click.command(
    cls=LazyCommand,
    examples=[
        "maos state rollback reviewer 3 --dry-run",
        "maos state rollback reviewer -1",
        "maos state rollback reviewer 3 --yes --expected 7",
    ],
)
@agent_argument
@click.argument("version", metavar="VERSION", type=VERSION)
@click.option("--expected", type=click.IntRange(min=1), metavar="N", help="Refuse unless the agent is at this version.")
@source_option
@dry_run_option
@yes_option
@full_option
@json_option
@click.pass_obj
def rollback(
    database: DatabaseTarget,
    agent: str,
    version: Version,
    expected: int | None,
    source: str,
    dry_run: bool,
    yes: bool,
    full: bool,
    as_json: bool,
) -> None:
    """Make the state of an agent what it was at a version.

    This appends a new version; nothing that happened is rewritten. On a terminal the changes are shown first. VERSION
    is a number, or counted from the newest: -1 undoes the last change.
    """
    if not dry_run:
        need_yes(f"a rollback changes agent {agent!r}", yes=yes, as_json=as_json)

    async def look(m: Maos) -> Preview:
        return await m.state.preview_rollback(agent, await version.resolve(m, agent))

    if dry_run or not yes:
        preview = database.read(look)
        question = f"Roll {agent} back to version {preview.target}?"
        if not _agreed(agent, preview, "version", question, dry_run=dry_run, full=full, as_json=as_json):
            return
        expected = expected or preview.newest  # what was agreed to is what was shown
        version = Version(int(preview.target), from_newest=False)

    async def work(m: Maos) -> tuple[int, Update]:
        target = await version.resolve(m, agent)
        return target, await m.state.rollback(agent, target, expected=expected, source=source)

    target, done = database.write(work)
    if as_json:
        documents.show({"dry_run": False, "to": target, **_updated(agent, done), "warnings": []})
        return
    text = f" is now at version {done.version}, with the state of version {target}"
    render.line((clean(agent), "bold"), text)
    if yes:
        render.changes(done.changes, full=full)


@click.command(
    cls=LazyCommand,
    examples=[
        "maos state restore reviewer before-upgrade --dry-run",
        "maos state restore reviewer before-upgrade --yes",
    ],
)
@agent_argument
@click.argument("snapshot", metavar="SNAPSHOT")
@source_option
@dry_run_option
@yes_option
@full_option
@json_option
@click.pass_obj
def restore(
    database: DatabaseTarget,
    agent: str,
    snapshot: str,
    source: str,
    dry_run: bool,
    yes: bool,
    full: bool,
    as_json: bool,
) -> None:
    """Make the state of an agent what a snapshot holds.

    SNAPSHOT is its id or name; `maos state snapshot AGENT --list` shows them. It is verified first.

    This appends a new version; nothing that happened is rewritten. On a terminal the changes are shown first.
    """
    if not dry_run:
        need_yes(f"restoring a snapshot changes agent {agent!r}", yes=yes, as_json=as_json)

    async def look(m: Maos) -> Preview:
        return await m.state.preview_restore(agent, snapshot)

    if dry_run or not yes:
        preview = database.read(look)
        question = f"Restore {agent} from snapshot {preview.target}?"
        if not _agreed(agent, preview, "snapshot", question, dry_run=dry_run, full=full, as_json=as_json):
            return

    async def work(m: Maos) -> Restored:
        return await m.state.restore(agent, snapshot, source=source)

    done = database.write(work)
    if as_json:
        document = documents.of(done)
        document["verified"] = document.pop("integrity_verified")
        documents.show({"dry_run": False, "agent": agent, **document})
        return
    for warning in done.warnings:
        render.line((f"warning: {clean(warning)}", "yellow"))
    text = f" is now at version {done.version}, with the state of snapshot {clean(done.snapshot)}"
    render.line((clean(agent), "bold"), text)


def _agreed(
    agent: str, preview: Preview, noun: str, question: str, *, dry_run: bool, full: bool, as_json: bool
) -> bool:
    """Print what would change, and ask whether to do it; `noun` is what has the state that it leads to."""
    if as_json:
        to: documents.Document = {"to": int(preview.target)} if noun == "version" else {noun: preview.target}
        documents.show(
            {
                "dry_run": True,
                "agent": agent,
                **to,
                "version": None,
                "previous": preview.newest,
                "changes": change_documents(preview.changes),
                "warnings": list(preview.warnings),
            }
        )
        return False
    for warning in preview.warnings:
        render.line((f"warning: {clean(warning)}", "yellow"))
    found = render.many(len(preview.changes), "change") if preview.changes else "no difference"
    target = f"the state of {noun} {clean(preview.target)}"
    render.line((clean(agent), "bold"), f" from version {preview.newest} to {target}: {found}")
    render.changes(preview.changes, full=full)
    if not dry_run:
        ask(question)
    return not dry_run
