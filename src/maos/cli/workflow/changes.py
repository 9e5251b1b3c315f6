"""A plan file that has changed since its run began: how it differs, and what a resume does about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli.documents import Document
from maos.cli.failures import note
from maos.cli.render import clean

if TYPE_CHECKING:
    from maos.model.run import Run
    from maos.runs.file_changes import Look

on_change_option = click.option(
    "--on-change", type=click.Choice(["keep", "replay", "refuse"]),
    help="When it has changed since: resume with the old one (keep), with the new one if that fits what was done "
    "(replay), or refuse.  [default: keep for a file, refuse for a function]",
)  # fmt: skip


def tell(run: Run, found: Look, on_change: str, *, as_json: bool) -> None:
    """Print that the file of a run has changed, and with which one the run is resumed."""
    from maos.runs.file_changes import ways

    if as_json:
        shared.show_line({"kind": "workflow_changed", "run": run.id, **_document(found, on_change)})
    elif on_change == "replay":
        note(f"resumed with {found.origin.file} as it is now")
        for line in _lines(found):
            click.echo(f"  {clean(line)}", err=True)
    else:
        note(f"{found.describe(run)}; it is resumed with the file as it was ({ways(run)})")


def document(run: Run, on_change: str = "keep") -> Document:
    """The file that a run was made from, for programs; nothing when it was made from none."""
    from maos.runs.file_changes import look

    found = look(run)
    return {} if found is None else {"made_from": _document(found, on_change)}


def _document(found: Look, on_change: str) -> Document:
    changes: Document = shared.of(found.changes)
    head = {"file": found.origin.file, "state": found.state, "on_change": on_change}
    return {**head, **changes, "what": found.what or None}


def line(run: Run) -> str:
    """The file that a run was made from, and whether it has changed; empty when it was made from none."""
    from maos.runs.file_changes import STATES, look

    found = look(run)
    if found is None:
        return ""
    state = STATES.get(found.state, "")
    return f"{found.origin.file}{f', which {state}' if state else ''}"


def show(run: Run, on_change: str) -> None:
    """Print what a changed file means for a resume, before that is done."""
    from maos.cli import render
    from maos.runs.file_changes import CHANGED, SAME, look, ways

    found = look(run)
    if found is None or found.state == SAME:
        return
    does_fit = found.state == CHANGED and not found.changes.misfits
    meant = {
        "keep": "it is resumed with the file as it was",
        "refuse": "it is refused",
        "replay": "it is resumed with the new one" if does_fit else "it is refused, as what was done does not fit",
    }[on_change if found.state == CHANGED or on_change != "replay" else "refuse"]
    render.line((found.describe(run), "yellow"), f"; {meant}")
    for each in _lines(found):
        render.line(f"  {clean(each)}")
    if on_change != "replay":
        render.line((f"  {ways(run)}", "dim"))


def _lines(found: Look) -> list[str]:
    """What the new file means for each task."""
    changes = found.changes
    return [
        *(f"+ {name} is new" for name in changes.added),
        *(f"~ {name} changes as in the file" for name in changes.changed),
        *(f"- {name} is removed" for name in changes.removed),
        *(f"~ {name} is set as in the file" for name in changes.settings),
        *(f"! {name} {why}" for name, why in changes.misfits),
    ]
