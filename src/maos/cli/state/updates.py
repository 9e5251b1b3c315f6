"""`maos state create`, `update`, `rollback` and `restore`: changing the state of agents.

A rollback and a restore append a version: nothing that happened is rewritten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from maos.cli import documents, render
from maos.cli.arguments import JSON, JSON_OBJECT, VERSION, Version, pointer
from maos.cli.commands import command, dry_run_option, full_option, options, source_option, yes_option
from maos.cli.completion import agent_argument
from maos.cli.database import DatabaseTarget, ask, need_yes
from maos.cli.plain import clean
from maos.cli.state.queries import document, show_changes
from maos.errors import InvalidInput
from maos.model.changes import DELETE, Extend

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.state.records import StatePreview, Update

T = TypeVar("T")

expected_option = click.option(
    "--expected", type=click.IntRange(min=1), metavar="N", help="Refuse unless the agent is at this version."
)


_event_options = options(
    source_option,
    click.option("--meta", "metadata", type=JSON_OBJECT, metavar="JSON", help="More about it, an object."),
    click.option("--correlation", help="What it belongs to, such as the id of a run."),
    click.option("--causation", help="The id of the event that led to it, such as agent/planner@4."),
    click.option("--key", help="Makes repeating the command harmless: the same key, the same change, once."),
)
_return_options = options(source_option, dry_run_option, yes_option, full_option)


@command(
    "maos state create reviewer",
    """maos state create planner '{"status": "idle", "messages": []}'""",
    "maos state create writer @state.json",
    """echo '{"status": "idle"}' | maos state create tester -""",
)
@agent_argument
@click.argument("data", metavar="[JSON]", type=JSON_OBJECT, required=False)
@_event_options
def create(database: DatabaseTarget, /, agent: str, data: dict[str, Any] | None, as_json: bool, **event: Any) -> None:
    """Create the state of an agent.

    A database that does not exist is created too. JSON is the first state: an object, @FILE to read it from a file, or
    - for standard input. Without it the agent gets the usual fields, all empty.
    """
    state = database.write(lambda m: m.state.create(agent, data, **event), create=True)
    if as_json:
        documents.show(document(state))
        return
    fields = render.many(len(state.raw()), "field")
    render.line("created ", (clean(agent), "bold"), f" at version {state.version} with {fields}")


@command(
    """maos state update reviewer '{"status": "busy", "execution": {"task": "review"}}'""",
    """maos state update reviewer --append /messages '{"role": "user", "text": "hello"}'""",
    "maos state update reviewer --delete /execution/task --expected 7",
    """echo '{"status": "idle"}' | maos state update reviewer -""",
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
@expected_option
@click.option("--type", help="The type of the event.  [default: chosen by the change]")
@click.option("--critical", is_flag=True, help="Keep the event by itself when the history is compacted.")
@_event_options
@full_option
def update(
    database: DatabaseTarget,
    /,
    agent: str,
    data: dict[str, Any] | None,
    appended: tuple[tuple[str, Any], ...],
    deleted: tuple[str, ...],
    full: bool,
    as_json: bool,
    **event: Any,
) -> None:
    """Change some fields of a state; the others stay as they are.

    JSON is an object with the fields to change, @FILE to read it from a file, or - for standard input. Objects in it
    merge with those that are there; a key that begins with / is a path. Nothing is written when nothing changes.
    """
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
    done = database.write(lambda m: m.state.update(agent, wanted, **event))
    if as_json:
        documents.show(_update_document(agent, done))
    elif done.version == done.previous:
        render.line((clean(agent), "bold"), f" has these values already, and stays at version {done.version}")
    else:
        render.line((clean(agent), "bold"), f" is now at version {done.version}")
        render.changes(done.changes, full=full)


def _update_document(agent: str, done: Update) -> documents.Document:
    head = {name: getattr(done, name) for name in ("version", "previous", "checksum")}
    return {"agent": agent, **head, "changes": documents.of(done.changes)}


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


@command(
    "maos state rollback reviewer 3 --dry-run",
    "maos state rollback reviewer -1",
    "maos state rollback reviewer 3 --yes --expected 7",
)
@agent_argument
@click.argument("version", metavar="VERSION", type=VERSION)
@expected_option
@_return_options
def rollback(
    database: DatabaseTarget, /, agent: str, version: Version, expected: int | None, source: str, **how: bool
) -> None:
    """Roll the state of an agent back to a version.

    This appends a new version; nothing that happened is rewritten. On a terminal the changes are shown first. VERSION
    is a number, or counted from the newest: -1 undoes the last change.
    """

    async def look(m: Maos) -> StatePreview:
        return await m.state.preview_rollback(agent, await version.resolve(m, agent))

    agreed = _agreed(lambda: database.read(look), agent, "version", "a rollback", "Roll {} back to version {}?", **how)

    async def work(m: Maos) -> tuple[int, Update]:
        target = int(agreed.target) if agreed else await version.resolve(m, agent)
        at = expected or (agreed.newest if agreed else None)  # the person agreed to what was shown
        return target, await m.state.rollback(agent, target, expected=at, source=source)

    target, done = database.write(work)
    if how["as_json"]:
        documents.show({"dry_run": False, "to": target, **_update_document(agent, done), "warnings": []})
        return
    render.line((clean(agent), "bold"), f" is now at version {done.version}, with the state of version {target}")
    if agreed is None:
        render.changes(done.changes, full=how["full"])


@command("maos state restore reviewer before-upgrade --dry-run", "maos state restore reviewer before-upgrade --yes")
@agent_argument
@click.argument("snapshot", metavar="SNAPSHOT")
@_return_options
def restore(database: DatabaseTarget, /, agent: str, snapshot: str, source: str, **how: bool) -> None:
    """Restore the state of an agent from a snapshot.

    SNAPSHOT is its id or name; `maos state snapshot AGENT --list` shows them. It is verified first.

    This appends a new version; nothing that happened is rewritten. On a terminal the changes are shown first.
    """

    def look() -> StatePreview:
        return database.read(lambda m: m.state.preview_restore(agent, snapshot))

    agreed = _agreed(look, agent, "snapshot", "restoring a snapshot", "Restore {} from snapshot {}?", **how)
    expected = agreed.newest if agreed else None  # the person agreed to what was shown
    done = database.write(lambda m: m.state.restore(agent, snapshot, expected=expected, source=source))
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

    return agree(look, show, what=f"{act} changes agent {agent!r}", **consent)
