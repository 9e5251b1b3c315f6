"""Runs that go elsewhere, for programs: written to a file, read from one, and moved to another folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from maos.clock import Clock
from maos.engine import consent
from maos.engine.attempts import Attempts
from maos.engine.runs import Runs
from maos.errors import InvalidInput, NotFound
from maos.journal.journal import Journal
from maos.model.attempt import inbox
from maos.transfer import bundle_import, exporter, file, materialization, preview
from maos.transfer.bundle_import import BundleImporter, Imported
from maos.transfer.exporter import Exported
from maos.transfer.preview import Action
from maos.travel import relocation
from maos.travel.relocation import Moved


class Transfer:
    """Runs that go elsewhere: exported to one file, imported from one, and moved to another folder."""

    def __init__(self, journal: Journal, clock: Clock, runs: Runs, attempts: Attempts, *, made_by: str) -> None:
        self._journal = journal
        self._clock = clock
        self._runs = runs
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
        """Bring what is in a file that `export` wrote, whoever has it from whom. Nothing of it is carried out before
        `agree`. `folder` is where its agents will work. Importing again brings what is new.

        Example::

            await m.transfer.export("r-1", "r-1.maos")
            print((await m.transfer.import_("r-1.maos", dry_run=True)).what)
        """
        with bundle_import.opened(Path(source), self._journal) as bundle:
            place = Path(os.getcwd(), folder)
            importer = BundleImporter(self._journal, self._clock, folder=place, home=self._attempts.folder)
            return await importer.bring(bundle, dry_run=dry_run)

    async def starts(self, id: str) -> list[Action]:
        """What going on with a run would start here: commands, agents, and what they may do unasked.

        Example::

            for each in await m.transfer.starts("r-1"):
                print(each.task, each.command or each.words)
        """
        run = await self._runs.get(id)
        waiting = self._journal.read(inbox(run.id), after=run.inbox_cursor)
        wishes = [(each.type, each.data) async for each in waiting]
        newest = {}
        for name in (*run.tasks, *(task.name for task in preview.asked(run, wishes))):
            try:
                newest[run.agent(name)] = await self._attempts.get(run.agent(name))
            except NotFound:
                continue  # it has not begun
        return preview.of_run(run, newest, wishes)

    async def waits(self, id: str) -> bool:
        """Whether a run came with a file, and nobody has agreed to what it would do here.

        Example::

            print(await m.transfer.waits("r-1"))
        """
        return bool(await consent.waits(self._journal, (await self._runs.get(id)).id))

    async def agree(self, id: str) -> dict[str, Any]:
        """Agree, as a person who has seen `starts`, to what an imported run will do, and lay out its files; the
        options that it goes on with.

        Example::

            run = await m.runs.execute("r-1", options=await m.transfer.agree("r-1"))
        """
        run = await self._runs.get(id)
        if not await self.waits(run.id):
            return {}
        return await materialization.materialize(self._journal, self._clock, self._attempts, run)

    async def move(self, id: str, folder: Path | str, *, dry_run: bool = False) -> Moved:
        """Have a run go on in another folder: it was moved, or another machine has a copy of its repository. Worktrees
        that are gone are made anew with what was last saved.

        Example::

            moved = await m.transfer.move("r-1", "work")
            print(moved.folder, moved.anew)
        """
        run = await self._runs.get(id)
        return await relocation.move(self._journal, self._clock, self._attempts, run.id, Path(folder), dry_run=dry_run)


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
    with file.written(path) as out:
        yield out
