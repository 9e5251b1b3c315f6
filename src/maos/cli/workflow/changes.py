"""A workflow file that has changed since its run began, as it is told to people and programs, and what is done then."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli.documents import Document
from maos.cli.failures import note
from maos.cli.plain import clean

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.run import Run
    from maos.workflows.files.changing import Look

on_change_option = click.option(
    "--on-change", type=click.Choice(["keep", "replay", "refuse"]),
    help="When it has changed since: finish with the old (keep), go on with the new one if that fits what was done "
    "(replay), or refuse.  [default: keep for a file, refuse for a function]",
)  # fmt: skip

STATES = {"changed": "has changed since", "gone": "cannot be read any more", "wrong": "has changed since, and is wrong"}


async def heed(m: Maos, run: Run, on_change: str, *, as_json: bool) -> Run:
    """The run that is to be gone on with, after what was said about a changed file is done, or refused."""
    from maos.workflows.errors import WorkflowChanged
    from maos.workflows.files import changing

    found = changing.look(run)
    if found is None or found.state == changing.SAME:
        return run
    if on_change == changing.REFUSE:
        raise WorkflowChanged(_sentence(run, found), hint=_ways(run))
    if on_change == changing.REPLAY:
        from maos.cli.orchestrate import adding, plans
        from maos.clock import SystemClock
        from maos.engine import agent_types

        read, types = changing.reread(found.origin), adding.types_for(run)
        agents = agent_types.to_data(plans.checked(read.plan, types), types)
        run = await changing.go_over(m.journal, SystemClock(), run, read, agents=agents)
    if as_json:
        shared.show_line({"kind": "workflow_changed", "run": run.id, **_document(found, on_change)})
    elif on_change == changing.REPLAY:
        note(f"goes on with {found.origin.file} as it is now")
        for line in _lines(found):
            click.echo(f"  {clean(line)}", err=True)
    else:
        note(f"{_sentence(run, found)}; it goes on with the file as it was ({_ways(run)})")
    return run


def document(run: Run, on_change: str = "keep") -> Document:
    """What a program is told of the file that a run was made from; nothing when it was made from none."""
    from maos.workflows.files import changing

    found = changing.look(run)
    return {} if found is None else {"made_from": _document(found, on_change)}


def _document(found: Look, on_change: str) -> Document:
    return {
        "file": found.origin.file,
        "state": found.state,
        "on_change": on_change,
        "added": list(found.changes.added),
        "changed": list(found.changes.changed),
        "removed": list(found.changes.removed),
        "settings": list(found.changes.settings),
        "misfits": [each._asdict() for each in found.changes.misfits],
        "what": found.what or None,
    }


def line(run: Run) -> str:
    """The file that a run was made from, and whether it is another one now; empty when it was made from none."""
    from maos.workflows.files import changing

    found = changing.look(run)
    if found is None:
        return ""
    state = STATES.get(found.state, "")
    return f"{found.origin.file}{f', which {state}' if state else ''}"


def show(run: Run, on_change: str) -> None:
    """What a changed file means for going on with a run, before that is done."""
    from maos.cli import render
    from maos.workflows.files import changing

    found = changing.look(run)
    if found is None or found.state == changing.SAME:
        return
    does_fit = found.state == changing.CHANGED and not found.changes.misfits
    meant = {
        "keep": "it goes on with the file as it was",
        "refuse": "it is refused",
        "replay": "it goes on with the new one" if does_fit else "it is refused, as what was done does not fit",
    }[on_change if found.state == changing.CHANGED or on_change != "replay" else "refuse"]
    render.line((_sentence(run, found), "yellow"), f"; {meant}")
    for each in _lines(found):
        render.line(f"  {clean(each)}")
    if on_change != "replay":
        render.line((f"  {_ways(run)}", "dim"))


def _sentence(run: Run, found: Look) -> str:
    """What has become of the file."""
    why = f": {found.what}" if found.state == "wrong" else ""
    return f"{Path(found.origin.file).name}, which {run.id} was made from, {STATES[found.state]}{why}"


def _lines(found: Look) -> list[str]:
    """What the new file means, step by step."""
    changes = found.changes
    return [
        *(f"+ {name} is new" for name in changes.added),
        *(f"~ {name} is as it is now in the file" for name in changes.changed),
        *(f"- {name} is left out" for name in changes.removed),
        *(f"~ {name} is as the file says now" for name in changes.settings),
        *(f"! {name} {why}" for name, why in changes.misfits),
    ]


def _ways(run: Run) -> str:
    return (
        f"`maos workflow resume {run.id}` finishes with the file as it was, and with --on-change replay takes the new "
        "one if that fits; --dry-run shows what would be done"
    )
