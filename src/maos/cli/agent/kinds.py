"""`maos agent kinds`: what can be run, what it can do, and whether it is here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import click

from maos.cli import documents as shared
from maos.cli.commands import LazyCommand, json_option
from maos.errors import InvalidInput, MaosError

if TYPE_CHECKING:
    from maos.agents.contract import Capabilities

ABILITIES = ("resume", "steer", "cost", "mcp", "permission")


class KindRow(NamedTuple):
    """A kind of agent on this machine."""

    name: str
    summary: str
    capabilities: Capabilities
    found: str
    """The program and its version; empty when it is not here, or when the order names it."""
    missing: str
    """Why it cannot run here."""
    hint: str


@click.command(cls=LazyCommand, examples=["maos agent kinds", "maos agent kinds --json"])
@json_option
def kinds(as_json: bool) -> None:
    """List the kinds of agents, and which are on this machine.

    resume: goes on in its own session after it was killed. steer: takes messages while it works. cost: says what it
    costs. mcp: can be given tools. permission: asks before it does something, and can be answered.
    """
    found = find()
    if as_json:
        documents = [
            {"kind": each.name, "summary": each.summary, "found": each.found or None, "missing": each.missing or None,
             "hint": each.hint or None, **{name: getattr(each.capabilities, name) for name in ABILITIES}}
            for each in found
        ]  # fmt: skip
        shared.show({"kinds": documents})
        return
    from maos.cli import render

    columns = (
        render.Column("kind", style="bold"),
        *(render.Column(name) for name in ABILITIES),
        render.Column("here", yields=2),
        render.Column("what it is", style="dim", yields=1),
    )
    rows = []
    for each in found:
        abilities = ["yes" if getattr(each.capabilities, name) else "" for name in ABILITIES]
        rows.append((each.name, *abilities, "missing" if each.missing else each.found or "yes", each.summary))
    render.table(columns, rows)
    for each in found:
        if each.missing:
            render.line((f"{each.name}: {each.missing}; ", "dim"), each.hint)


def find() -> list[KindRow]:
    """Every kind, looked for on this machine."""
    from maos.agents import kinds as known

    return [_look(name) for name in known.names()]


def _look(name: str) -> KindRow:
    from maos.agents import kinds as known

    dialect = known.dialect("acp:" if name == "acp" else name)
    shown = "acp:COMMAND" if name == "acp" else name
    found = missing = hint = ""
    try:
        program = dialect.find(os.environ)
        found = program.version or str(program.path)
    except InvalidInput:
        pass  # it runs what it is told to, and has been told nothing yet
    except MaosError as error:
        missing, hint = error.what, error.hint
    return KindRow(shown, dialect.summary, dialect.capabilities, found, missing, hint)
