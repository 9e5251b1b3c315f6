"""Importers: packages of their own that read the files of another program and import its runs.

A package declares its importer as an entry point of the group `maos.importers`. maos-import-legacy has the one for the
database of maos-cli, the predecessor of maos.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

import apsw

from maos.clock import Clock
from maos.engine import ownership
from maos.errors import InvalidInput, NotFound
from maos.faults import crash_point
from maos.journal.journal import Append, Journal
from maos.model.events.parts import Owner
from maos.model.events.run import RunEvent
from maos.model.run import Run, stream
from maos.store.contract import Lease
from maos.tuples import NamedTuple

GROUP = "maos.importers"
LEGACY_PACKAGE = "maos-import-legacy"
LEGACY_TABLES = frozenset(("agents", "sessions", "tasks", "messages", "checkpoints", "orchestrations"))


class ImportedRun(NamedTuple):
    """A run of another program that was imported, or would be."""

    what: str
    """new, more, same or moved_on: a new run; new events for a run; nothing new; or the run was resumed here since."""
    run: Run
    """The run after the import."""
    original_id: str
    original_status: str
    """As the other program calls it; empty when it has recorded none."""
    messages: int
    """How many were imported."""
    waiting: int
    """How many of them are still to be delivered."""
    sessions: int
    """How many of its unfinished agents can resume their sessions."""
    unfinished: int


@dataclass(frozen=True)
class ImportTarget:
    """The journal that runs are imported into, and where their agents work from then on."""

    journal: Journal
    clock: Clock
    folder: Path
    """The folder that the agents work in."""
    home: Path
    """The folder for the files of agents on this machine."""

    def owner(self, run: str) -> Owner:
        """Return this process as the owner of a run's events; it holds no lease of the run."""
        return ownership.identity(Lease(stream(run), self.journal.owner, 0, 0))

    async def append(self, run: Run, version: int, events: Sequence[RunEvent], others: Sequence[Append]) -> None:
        """Append the events of a run and of other streams at once; Conflict unless the run is at this version.

        It needs no lease: a process that claims the run changes its version.
        """
        crash_point("import:before append")
        await self.journal.append_all([Append(stream(run.id), events, expected=version), *others])
        crash_point("import:after append")


class RunSource(Protocol):
    """The runs that an importer has found in a file."""

    left_out: Mapping[str, int]
    """How many things of each kind cannot be imported."""

    def import_into(
        self, target: ImportTarget, *, wanted: str = "", dry_run: bool = False
    ) -> AsyncIterator[ImportedRun]:
        """Import all runs, or the one with this id or unique beginning of an id."""
        ...


class Importer(Protocol):
    """What an entry point of the group `maos.importers` refers to."""

    def recognizes(self, path: Path) -> bool:
        """Return whether a file is of the program whose runs this importer reads."""
        ...

    def read(self, path: Path) -> RunSource:
        """Read a file without changing it; raise an error that says what is wrong with it."""
        ...


def read(path: Path) -> RunSource:
    """Read the runs of another program with the installed importer that recognizes its file.

    A file that none recognizes is given to the first of them, whose error says what it expects.
    """
    if path.exists() and not path.is_file():
        raise InvalidInput(f"{path} is not a file", hint="name a file; - reads a bundle from standard input")
    installed: list[Importer] = [each.load() for each in sorted(entry_points(group=GROUP))]
    for importer in installed:
        if importer.recognizes(path):
            return importer.read(path)
    if installed:
        return installed[0].read(path)
    if not path.exists():
        raise NotFound(f"there is no file {path}", hint="name a file that `maos admin export` wrote")
    if is_legacy(path):
        raise InvalidInput(
            f"{path} is a database of maos-cli, and the package that imports these is not installed",
            hint=f"install it, and import again: pip install {LEGACY_PACKAGE}",
        )
    raise InvalidInput(f"{path} is not a bundle", hint="name a file that `maos admin export` wrote")


def is_legacy(path: Path) -> bool:
    """Return whether a file has the tables of a database of maos-cli; neither it nor its folder is changed."""
    try:
        place = f"file:{urllib.parse.quote(str(path.absolute()))}?mode=ro&immutable=1"
        with closing(apsw.Connection(place, apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READONLY)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    except apsw.Error:
        return False
    return tables >= LEGACY_TABLES
