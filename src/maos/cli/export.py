"""`maos export`: a run or a workflow as one file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from maos.cli import completing, documents, ids
from maos.cli.commands import LazyCommand, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.failures import note
from maos.cli.plain import clean
from maos.errors import InvalidInput

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.transfer.exporter import Exported

SUFFIX = ".maos"


@click.command(
    cls=LazyCommand,
    examples=[
        "maos export r-1a2b3c",
        "maos export r-1a -o parser.maos --json",
        "maos export r-1a -o - | ssh other 'cd project && maos import -'",
    ],
)
@click.argument("id", metavar="ID", shell_complete=completing.runs)
@click.option("-o", "--output", metavar="FILE", default="", help="Where to; - is standard output.  [default: ID.maos]")
@click.option("--to-stdout", is_flag=True, help="The same as -o -.")
@click.option("--without-files", is_flag=True, help="Without the commits of its files: only what is in the journal.")
@json_option
@click.pass_obj
def export(database: DatabaseTarget, id: str, output: str, to_stdout: bool, without_files: bool, as_json: bool) -> None:
    """Write a run or a workflow to one file, for another machine: `maos import` reads it there.

    It has the events of the run and its agents, their messages and conversations, and the commits of their files with
    the history that these need. All of it is of one moment; the run may go on meanwhile. The file is for you alone,
    and so should its copies be: what agents said and did is in it, without keys and passwords.
    """
    from pathlib import Path

    is_piped = to_stdout or output == "-"
    if is_piped and (as_json or output not in ("", "-")):
        raise InvalidInput("standard output is for the bundle itself", hint="give one of -o FILE, --to-stdout, --json")
    if is_piped and sys.stdout.isatty():
        raise InvalidInput("a bundle is not for a terminal to show", hint="send it to a file or a program: `… > FILE`")

    async def work(m: Maos) -> tuple[str, Exported]:
        known = await ids.meant(m.journal, id, ids.RUN, ids.WORKFLOW_RUN)
        found = known.id if known else id
        if is_piped:
            made = await m.transfer.export(found, sys.stdout.buffer, files=not without_files)
            sys.stdout.buffer.flush()
            return "-", made
        path = Path(output or f"{found}{SUFFIX}")
        return str(path), await m.transfer.export(found, path, files=not without_files)

    target, made = database.read(work)
    if as_json:
        documents.show(_document(target, made))
    elif not is_piped:
        _show(target, made)
    for text in made.manifest.left_out:
        note(f"left out: {clean(text)}")
    if made.manifest.carried_out:
        note(
            f"{made.manifest.id} is being carried out: what is done from now on is not in the file; pause it to move it"
        )


def _document(target: str, made: Exported) -> dict[str, Any]:
    manifest = made.manifest
    return {
        "file": target, "id": manifest.id, "kind": manifest.kind, "status": manifest.status, "bytes": made.bytes,
        "sha256": made.sha256, "position": manifest.position, "streams": len(manifest.streams), "events": made.events,
        "refs": len(manifest.refs), "carried_out": manifest.carried_out, "left_out": manifest.left_out,
    }  # fmt: skip


def _show(target: str, made: Exported) -> None:
    from maos.cli import render

    manifest = made.manifest
    commits = f", {render.many(len(manifest.refs), 'commit')}" if manifest.refs else ""
    render.line(
        (clean(manifest.id), "bold"),
        f": {render.many(made.events, 'event')} of {render.many(len(manifest.streams), 'stream')}{commits} "
        f"→ {clean(target)} ({render.size(made.bytes)})",
    )
