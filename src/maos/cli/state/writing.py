"""`maos state create` and `update`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from maos.cli import documents
from maos.cli.arguments import JSON, JSON_OBJECT
from maos.cli.commands import LazyCommand, agent_argument, full_option, json_option, source_option
from maos.cli.database import DatabaseTarget
from maos.cli.plain import clean
from maos.errors import InvalidInput

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.state.records import State, Update

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
        return await m.agents.create(
            agent, data, source=source, metadata=metadata, correlation=correlation, causation=causation, key=key
        )

    state = database.write(work, create=True)
    if as_json:
        documents.show(documents.state(state))
        return
    from maos.cli import render

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
        return await m.agents.update(
            agent, _wanted(data, appended, deleted), expected=expected, type=type_, critical=critical, source=source,
            metadata=metadata, correlation=correlation, causation=causation, key=key,
        )  # fmt: skip

    done = database.write(work)
    if as_json:
        documents.show(documents.update(agent, done))
        return
    from maos.cli import render

    if done.version == done.previous:
        render.line((clean(agent), "bold"), f" is so already, and stays at version {done.version}")
        return
    render.line((clean(agent), "bold"), f" is now at version {done.version}")
    render.changes(done.changes, full=full)


def _wanted(
    data: dict[str, Any] | None, appended: tuple[tuple[str, Any], ...], deleted: tuple[str, ...]
) -> dict[str, Any]:
    from maos.model.changes import DELETE, Extend

    if data is None and not appended and not deleted:
        raise InvalidInput("there is nothing to change", hint="give a JSON object, --append or --delete")
    wanted = dict(data or {})
    added: dict[str, list[Any]] = {}
    for path, entry in appended:
        added.setdefault(_pointer(path), []).append(entry)
    wanted.update({path: Extend(entries) for path, entries in added.items()})
    wanted.update({_pointer(path): DELETE for path in deleted})
    return wanted


def _pointer(path: str) -> str:
    return path if path.startswith("/") else f"/{path}"
