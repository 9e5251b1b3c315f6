"""Backups of one database: written, compared with the database, listed, verified."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from maos.backup import archive as archives
from maos.backup import commits
from maos.backup.archive import Archive, BackupHead
from maos.backup.locations import open_location
from maos.backup.restoration import RestoredEvents, check_hashes
from maos.backup.shipper import EVERY_S, Progress, Shipper, read_keys
from maos.clock import MICROSECONDS, Clock
from maos.errors import Corrupt, InvalidInput, MaosError, NotFound, UnknownFormat
from maos.journal.journal import Journal
from maos.model.events.records import BackupTested
from maos.store.chain import End
from maos.tuples import NamedTuple

STREAM = "backups"
LOOK_S = 5.0
"""How long to wait for a first backup before it is looked for again."""


class Restore(Protocol):
    """Restores a backup to a new database file."""

    async def __call__(
        self, location: str, target: Path, /, *, store: str, report: Callable[[int, int], None]
    ) -> RestoredEvents: ...


class BackupStatus(NamedTuple):
    """How far the backup of a database is."""

    location: str
    head: BackupHead | None
    """None when nothing was backed up there yet."""
    recorded: int
    """The newest position of the database."""
    behind_s: float
    """How long the oldest event that is not in the backup has been recorded: what a loss now would cost."""
    tested: BackupTested | None
    """The last time that the backup was restored for a test."""

    @property
    def missing(self) -> int:
        """How many positions are not in the backup."""
        return self.recorded - (self.head.position if self.head is not None else 0)


class BackupCheck(NamedTuple):
    """What the verification of a backup found."""

    head: BackupHead
    segments: int
    events: int
    bytes: int
    damage: str
    """What is wrong, with the name of the object; empty when everything is as it was written."""
    intact: int
    """The position up to which it can be restored."""


class Backups:
    """Backups of the open database."""

    def __init__(self, journal: Journal, clock: Clock, restore: Restore, *, merges: bool = True) -> None:
        """`merges`: whether small segments are merged, which needs the right to delete objects."""
        self._journal = journal
        self._clock = clock
        self._restore = restore
        self._merges = merges

    async def ship(self, location: str, report: Callable[[Progress], None] = lambda _: None) -> BackupHead:
        """Write everything that is recorded now and is not in the backup yet.

        Example::

            head = await m.backups.ship("backups")
            print(head.position, head.bytes)
        """
        return await self._shipper(location).ship(report)

    async def ship_keys(self, location: str) -> int:
        """Write the keys of an encrypted database to its backup as they are now, after an erasure or a rotation.

        Example::

            await m.backups.ship_keys("backups")
        """
        archive = Archive(open_location(location), await self._journal.store.identity())
        if self._journal.vault is None or await archive.head() is None:
            return 0
        return await archive.write_keys(await read_keys(self._journal.vault))

    async def follow(
        self, location: str, report: Callable[[Progress], None] = lambda _: None, *, every_s: float = EVERY_S
    ) -> None:
        """Write what is recorded to the backup, at most every `every_s` seconds, until cancelled."""
        await self._shipper(location, every_s=every_s).follow(report)

    async def identity(self) -> str:
        """The identity of this database, which tells its backup from those of others.

        Example::

            print((await m.backups.identity())[:8])
        """
        return await self._journal.store.identity()

    async def status(self, location: str) -> BackupStatus:
        """Compare the backup with the database.

        Example::

            await m.backups.ship("backups")
            print((await m.backups.status("backups")).missing)
        """
        place = open_location(location)
        head = await Archive(place, await self._journal.store.identity()).head()
        position = head.position if head is not None else 0
        oldest = await self._journal.store.read_log(after=position, limit=1)
        behind_us = self._clock.now_us() - oldest[0].time_us if oldest else 0
        tested = await self._last_test(place.name)
        return BackupStatus(place.name, head, await self._journal.head(), max(behind_us, 0) / 1e6, tested)

    async def test(self, location: str, report: Callable[[int, int], None] = lambda *_: None) -> BackupTested:
        """Restore the backup of this database to a temporary one, check all of it, and record the result.

        Example::

            await m.backups.ship("backups")
            print((await m.backups.test("backups")).problem or "it can be restored")
        """
        place, began_us = open_location(location), self._clock.steady_us()
        problem, position, events, size = "", 0, 0, 0
        with tempfile.TemporaryDirectory(prefix="maos-backup-test-") as folder:
            try:
                done = await self._restore(
                    place.name, Path(folder) / "maos.db", store=await self._journal.store.identity(), report=report
                )
                position, events, size = done.position, done.events, done.bytes
            except (Corrupt, InvalidInput, NotFound, UnknownFormat) as error:
                problem = error.what
        tested = BackupTested(
            location=place.name, position=position, events=events, bytes=size, problem=problem,
            took_us=self._clock.steady_us() - began_us, by=self._journal.by, at_us=self._clock.now_us(),
        )  # fmt: skip
        await self._journal.append(STREAM, tested)
        return tested

    async def test_when_due(self, location: str, every_s: float) -> None:
        """Test a backup once its last test is older than an interval; raise Corrupt when it cannot be restored."""
        last = await self._last_test(open_location(location).name)
        due_us = 0 if last is None else last.at_us + int(every_s * MICROSECONDS)
        await asyncio.sleep(max(LOOK_S, (due_us - self._clock.now_us()) / MICROSECONDS))
        if (await self.status(location)).head is not None:
            tested = await self.test(location)
            if tested.problem:
                raise Corrupt(tested.problem, hint="`maos backup verify` says what is damaged")

    async def _last_test(self, location: str) -> BackupTested | None:
        before: int | None = None
        while page := await self._journal.page_back(STREAM, before=before):
            for record in page:
                if isinstance(record.event, BackupTested) and record.event.location == location:
                    return record.event
            before = page[-1].version
        return None

    def _shipper(self, location: str, *, every_s: float = EVERY_S) -> Shipper:
        return Shipper(self._journal, self._clock, open_location(location), every_s=every_s, merges=self._merges)


async def find(location: str) -> list[BackupHead]:
    """Return the backups at a location, the newest first."""
    return await archives.find(open_location(location))


async def restore_files(
    location: str, *, store: str = "", into: Mapping[str, Path] | Path | None = None
) -> list[commits.RestoredCommits]:
    """Have repositories take the commits of agents from a backup; return what is there, and what was taken.

    `into` is the repository that takes them, or the one for each repository of the backup, where there are several.
    Without it nothing is taken.

    Example::

        await m.backups.ship("backups")
        print([each.repository for each in await maos.restore_files("backups")])
    """
    archive = await archives.choose(open_location(location), store)
    found = [each async for each in commits.find_indexes(archive.location, archive.store)]
    if isinstance(into, Path):
        if len(found) > 1:
            names = ", ".join(index.repository for _id, index in found)
            raise InvalidInput(f"the backup has commits of several repositories: {names}", hint="give one for each")
        into = {index.repository: into for _id, index in found}
    done: list[commits.RestoredCommits] = []
    for id, index in found:
        if into is None or index.repository not in into:
            done.append(commits.RestoredCommits(index.repository, "", 0))
        else:
            done.append(await commits.take(archive.location, archive.store, id, index, into[index.repository]))
    return done


async def remove(location: str, store: str, *, now_us: int) -> int:
    """Remove the backup of a database, named by its whole identity; return how many objects were deleted."""
    return await Archive(open_location(location), store).remove(now_us=now_us)


async def verify(location: str, store: str = "", report: Callable[[int, int], None] = lambda *_: None) -> BackupCheck:
    """Read a whole backup, and compare every event with its hash and its predecessor."""
    archive = await archives.choose(open_location(location), store)
    head = await archive.head()
    assert head is not None
    ends: dict[str, End] = {}
    segments = events = size = intact = 0
    try:
        async for segment in archive.read(until=head.position):
            check_hashes(segment.events, ends)
            segments += 1
            events += len(segment.events)
            size += segment.header.size
            intact = segment.header.last
            report(intact, head.position)
    except MaosError as error:
        return BackupCheck(head, segments, events, size, error.what, intact)
    return BackupCheck(head, segments, events, size, "", intact)
