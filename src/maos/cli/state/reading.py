"""`maos state list`, `show`, `at` and `peek`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from maos.cli import documents
from maos.cli.arguments import VERSION, WHEN, Version
from maos.cli.commands import LazyCommand, agent_argument, full_option, json_option, path_option
from maos.cli.database import DatabaseTarget
from maos.cli.failures import code_for, report
from maos.cli.plain import clean, shorten
from maos.errors import Corrupt, InvalidInput, NotFound

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.state.records import Peek, State


@click.command("list", cls=LazyCommand, examples=["maos state list", "maos state list --prefix team-a/ --json"])
@click.option("--prefix", default="", help="Only agents whose names begin with this.")
@json_option
@click.pass_context
def list_(ctx: click.Context, prefix: str, as_json: bool) -> None:
    """List the agents there are.

    A damaged one is named on standard error, the others are listed all the same; the exit code is then 1.
    """
    damaged: list[Corrupt] = []

    async def work(m: Maos) -> list[State]:
        from maos.model.agent import PREFIX

        found = []
        async for stream in m.journal.streams(PREFIX + prefix):
            try:
                found.append(await m.agents.get(stream.removeprefix(PREFIX)))
            except Corrupt as error:
                damaged.append(error)
        return found

    states = ctx.obj.read(work)
    if as_json:
        documents.show({"agents": [documents.summary(state) for state in states]})
    else:
        _show_list(states)
    for error in damaged:
        report(error.what, error.hint if error is damaged[-1] else "")
    if damaged:
        ctx.exit(code_for(damaged[0]))


def _show_list(states: list[State]) -> None:
    from maos.cli import render

    if not states:
        render.line("no agents; `maos state create AGENT` makes one")
        return
    columns = (
        render.Column("agent", style="bold", yields=1),
        render.Column("version", right=True),
        render.Column("status", yields=2),
        render.Column("last event", style="dim", yields=2),
        render.Column("changed"),
        render.Column("by", style="dim", yields=2),
    )
    rows = []
    for state in states:
        status = state.raw().get("status")
        text = "" if status is None else status if isinstance(status, str) else render.compact(status)
        rows.append(
            (state.agent, str(state.version), shorten(text, 30), state.type, render.when(state.time_us),
             shorten(state.source, 30))
        )  # fmt: skip
    render.table(columns, rows)


@click.command(cls=LazyCommand, examples=["maos state show reviewer", "maos state show reviewer --path /messages/0"])
@agent_argument
@path_option
@json_option
@click.pass_obj
def show(database: DatabaseTarget, agent: str, path: str | None, as_json: bool) -> None:
    """Show the newest state of an agent."""

    async def work(m: Maos) -> State:
        return await m.agents.get(agent)

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
            return await m.agents.at(agent, time=time)
        return await m.agents.at(agent, version=await version.resolve(m, agent))

    _show_state(database.read(work), path, as_json)


def _show_state(state: State, path: str | None, as_json: bool) -> None:
    from maos.cli import render

    if path is None:
        if as_json:
            documents.show(documents.state(state))
        else:
            render.state(state)
        return
    path = _pointer(path)
    found = _value(state, path)
    if as_json:
        documents.show(documents.value(state, path, found))
    else:
        render.pretty(found)


def _value(state: State, path: str) -> Any:
    from maos.model.changes import MISSING, lookup, parse_pointer

    found = lookup(state.raw(), parse_pointer(path, state.raw()))
    if found is MISSING:
        raise NotFound(
            f"agent {state.agent!r} has nothing at {path} in version {state.version}",
            hint="`maos state show` without --path shows what there is",
        )
    return found


def _pointer(path: str) -> str:
    return path if path.startswith("/") or not path else f"/{path}"


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
    path = _pointer(path)

    async def work(m: Maos) -> Peek:
        return await m.agents.peek(agent, path, last=last)

    found = database.read(work)
    from maos.model.view import plain

    head = plain(found.head)
    if as_json:
        documents.show(documents.peek(found, path, head))
        return
    from maos.cli import render

    render.line((clean(found.agent), "bold"), f" at version {found.version}")
    render.pretty(head)
    for pointer, length in found.elided.items():
        if pointer != path:
            render.line((f"left out: {clean(pointer)}, {render.many(length, 'entry', 'entries')}", "dim"))
    shown = f"the last {len(found.entries)}" if found.start else "all"
    render.line((clean(path), "bold"), f": {shown} of {render.many(found.length, 'entry', 'entries')}")
    width = len(str(found.length))
    room = None if full else render.room_for_value(width + 2)
    for index, entry in enumerate(found.entries, found.start):
        render.line((f"{index:>{width}}  ", "dim"), shorten(render.compact(entry), room))
