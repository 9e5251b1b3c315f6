"""`maos copy`: a copy of everything, while work goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents
from maos.cli.commands import LazyCommand, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.plain import clean
from maos.errors import InvalidInput

if TYPE_CHECKING:
    from maos.app import Maos


@click.command(cls=LazyCommand, examples=["maos copy backup.db", "maos --db /srv/agents.db copy backup.db --json"])
@click.argument("target", metavar="TARGET")
@json_option
@click.pass_obj
def copy(database: DatabaseTarget, target: str, as_json: bool) -> None:
    """Copy everything to a new file, while others go on writing.

    The copy is of one moment, and complete or not there at all. A SQLite database becomes another SQLite database that
    maos can open; a PostgreSQL database becomes one line of JSON for each row. TARGET must not exist yet.
    """
    from pathlib import Path

    path = Path(target)
    if path.exists() or path.is_symlink():
        raise InvalidInput(f"{target} exists already", hint="name a file that does not, or move that one away")
    if not path.parent.is_dir():
        raise InvalidInput(f"there is no folder {path.parent}", hint="make it first")

    async def work(m: Maos) -> int:
        return await m.copy_to(path)

    position = database.read(work)
    size = path.stat().st_size
    if as_json:
        documents.show({"target": target, "position": position, "bytes": size})
        return
    from maos.cli import render

    render.line(f"copied everything up to position {position} to {clean(target)} ({render.size(size)})")
