"""Export and import of runs, for programs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from maos.clock import Clock
from maos.engine.attempts import Attempts
from maos.errors import InvalidInput
from maos.files import whole_file
from maos.journal.journal import Journal
from maos.transfer import bundle_import, exporter
from maos.transfer.bundle_import import BundleImporter, Imported
from maos.transfer.exporter import Exported
from maos.transfer.importers import ImportedRun, ImportTarget, RunSource


class Transfer:
    """Runs as files: exported to one, and imported from one."""

    def __init__(self, journal: Journal, clock: Clock, attempts: Attempts, *, made_by: str) -> None:
        self._journal = journal
        self._clock = clock
        self._attempts = attempts
        self._made_by = made_by

    async def export(self, id: str, target: Path | str | BinaryIO, *, files: bool = True) -> Exported:
        """Write a run or a workflow to one file, or to something that takes bytes: its events, conversations and
        messages, and the commits of its files unless `files` is off.

        Example::

            made = await m.transfer.export("r-1", "r-1.maos")
            print(made.bytes, made.sha256)
        """
        kind = await exporter.kind_of(self._journal, id)
        with _writable(target) as out:
            return await exporter.export(self._journal, self._clock, out, kind, id, made_by=self._made_by, files=files)

    async def import_(self, source: Path | str, *, folder: Path | str = ".", dry_run: bool = False) -> Imported:
        """Import what is in a file that `export` wrote, on any machine. Nothing of it is executed before
        `Runs.agree`. `folder` is where its agents will work. Importing again brings what is new.

        Example::

            await m.transfer.export("r-1", "r-1.maos")
            print((await m.transfer.import_("r-1.maos", dry_run=True)).what)
        """
        with bundle_import.opened(Path(source), self._journal) as bundle:
            place = Path(os.getcwd(), folder)
            importer = BundleImporter(self._journal, self._clock, folder=place, home=self._attempts.folder)
            return await importer.bring(bundle, dry_run=dry_run)

    async def import_runs(
        self, source: RunSource, *, folder: Path, wanted: str = "", dry_run: bool = False
    ) -> list[ImportedRun]:
        """Import runs of another program, which `importers.read` found in a file. `folder` is where their agents will
        work. Importing again brings what is new.
        """
        target = ImportTarget(self._journal, self._clock, folder, self._attempts.folder)
        return [each async for each in source.import_into(target, wanted=wanted, dry_run=dry_run)]


@contextmanager
def _writable(target: Path | str | BinaryIO) -> Iterator[BinaryIO]:
    if not isinstance(target, (Path, str)):
        yield target
        return
    path = Path(target)
    if path.is_dir():
        raise InvalidInput(f"{path} is a folder", hint=f"name a file in it, such as {path / 'run.maos'}")
    if path.exists() or path.is_symlink():
        raise InvalidInput(f"{path} exists already", hint="name a file that does not exist, or move that one away")
    if not path.parent.is_dir():
        raise InvalidInput(f"there is no folder {path.parent}", hint="make it first")
    with whole_file(path) as partial, partial.open("wb") as out:
        yield out
