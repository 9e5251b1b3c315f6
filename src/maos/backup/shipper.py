"""Writes what is recorded to a backup, soon after it was recorded.

The shipper reads the journal like any follower: agents and engines never wait for it, and while the location cannot be
reached the backup falls behind and catches up afterwards. One process at a time ships a database to a location, under
a lease; the head of the backup refuses a second one all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
from collections.abc import AsyncIterator, Callable
from itertools import pairwise

from maos.backup import merger, segments
from maos.backup.archive import FORMAT, Archive, BackupHead, BackupKeys
from maos.backup.commits import CommitShipper
from maos.backup.locations import Location
from maos.clock import Clock
from maos.engine import log
from maos.errors import Conflict, HistoryLost, MaosError, StoreUnavailable
from maos.faults import crash_point
from maos.journal.journal import Journal
from maos.keys.vault import Vault
from maos.store.contract import GENESIS, Lease, Recorded
from maos.tuples import NamedTuple

EVERY_S = 1.0
SEGMENT_BYTES = 4 << 20
"""A segment is full when its events have so many bytes; those of one commit are never divided."""
PAGE_EVENTS = 1_000
LEASE_S = 10.0
PAUSE_S_MAX = 30.0
"""The longest pause before a location that cannot be reached is tried again."""


class Progress(NamedTuple):
    """How far the backup is, of what is recorded."""

    position: int
    of: int
    bytes: int
    """Written by this process."""
    trouble: str = ""
    """Why the location cannot be reached now; empty when it can."""


class Shipper:
    """Ships the journal of one database to one location."""

    def __init__(
        self, journal: Journal, clock: Clock, location: Location, *, every_s: float = EVERY_S, merges: bool = True
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._location = location
        self._every_s = every_s
        self._archive: Archive | None = None
        self._commits: CommitShipper | None = None
        self._head: BackupHead | None = None
        self._written = 0
        self._merges = merges
        self._unmerged = merger.NEIGHBOURS
        """Segments that were written since small ones were merged; at the start what others have left counts."""

    async def ship(self, report: Callable[[Progress], None] = lambda _: None) -> BackupHead:
        """Ship everything that is recorded now, and return how far the backup reaches."""
        async with self._leased() as lease:
            head, _lease = await self._ship(lease, report)
            await self._merge(head, report)
            return head

    async def follow(self, report: Callable[[Progress], None] = lambda _: None) -> None:
        """Ship what is recorded, until cancelled. A location that cannot be reached is tried again."""
        async with self._leased() as lease, self._merging(report) as merge:
            pause_s = self._every_s
            while True:
                lease = await self._renew(lease)
                try:
                    head, lease = await self._ship(lease, report)
                except StoreUnavailable as error:
                    log.write(log.OPS, log.BACKUP_BEHIND, reason=error.what)
                    self._archive = None  # what was written last is unknown: the head is read again
                    report(Progress(self._head.position if self._head else 0, 0, self._written, error.what))
                    lease = await self._rest(lease, pause_s)
                    pause_s = min(2 * pause_s, PAUSE_S_MAX)
                    continue
                pause_s = self._every_s
                merge(head)
                lease = await self._rest(lease, self._every_s)
                lease = await self._wait(lease, head.position)

    async def _ship(self, lease: Lease, report: Callable[[Progress], None]) -> tuple[BackupHead, Lease]:
        head = await self._begin()
        await self._ship_keys()  # also when nothing was recorded: one may have been erased
        until = await self._journal.head()
        while head.position < until:
            head = await self._add(head)
            until = max(until, head.position)
            report(Progress(head.position, until, self._written))
            lease = await self._renew(lease)
        return head, lease

    @contextlib.asynccontextmanager
    async def _merging(self, report: Callable[[Progress], None]) -> AsyncIterator[Callable[[BackupHead], None]]:
        """What merges small segments beside the block, once at a time; the shipment of new ones does not wait."""
        task: asyncio.Task[None] | None = None

        def merge(head: BackupHead) -> None:
            nonlocal task
            if task is None or task.done():
                task = asyncio.create_task(self._merge(head, report))

        try:
            yield merge
        finally:
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _merge(self, head: BackupHead, report: Callable[[Progress], None]) -> None:
        """Merge small segments; when that fails, the backup is complete all the same, and it is tried again later.

        That needs no lease: two processes that merge the same segments write the same objects.
        """
        if not self._merges or self._unmerged < merger.NEIGHBOURS:
            return
        assert self._archive is not None
        self._unmerged = 0
        try:
            await merger.merge(self._archive, until=head.position)
        except MaosError as error:
            log.write(log.OPS, log.BACKUP_UNMERGED, reason=error.what)
            report(Progress(head.position, head.position, self._written, error.what))

    async def _begin(self) -> BackupHead:
        """Return the head of the backup, after a comparison with the journal."""
        if self._archive is not None and self._head is not None:
            return self._head
        self._archive = Archive(self._location, await self._journal.store.identity())
        self._commits = CommitShipper(self._journal, self._location, self._archive.store)
        head = await self._archive.head()
        if head is None:
            place, host = _absolute(self._journal.store.place), socket.gethostname()
            head = BackupHead(
                format=FORMAT, store=self._archive.store, place=place, host=host, position=0, hash=GENESIS.hex(),
                recorded_us=0, written_us=0, events=0, bytes=0,
            )  # fmt: skip
        elif head.removed_us:
            what = f"the backup of this database at {self._location.name} was removed in part"
            hint = f"remove the rest of it: maos backup rm {self._location.name} {head.store}"
            raise Conflict("backup", what=what, hint=hint)
        elif head.position > await self._journal.head():
            raise HistoryLost(
                self._journal.store.place,
                acknowledged=head.position,
                found=await self._journal.head(),
                why="its backup has later events",
            )
        elif head.position and not await self._is_same(head.position, head.hash):
            raise self._other_events(f"position {head.position}")
        self._head = head
        return head

    async def _add(self, head: BackupHead) -> BackupHead:
        """Add the segment after the head to the backup."""
        assert self._archive is not None
        first, follows = head.position + 1, bytes.fromhex(head.hash)
        events = await self._next(head.position)
        assert self._commits is not None
        self._written += await self._commits.ship(events)  # before the events that name them
        await self._ship_keys()  # before the events that need them
        keys = await self._journal.store.read_keys(first=head.position, last=events[-1].position)
        content = segments.seal(self._archive.store, follows, first, events, keys)
        left = await self._archive.add(first, content)
        if left is None:
            header, size = segments.read_header("the segment", content), len(content)
        else:  # a writer was killed before it could count it
            found, size = left
            header = found.header
            same = [await self._is_same(event.position, event.hash.hex()) for event in found.events]
            if (header.store, header.follows) != (self._archive.store, head.hash) or not all(same):
                raise self._other_events(f"position {first}")
        head = BackupHead(
            format=FORMAT, store=head.store, place=head.place, host=head.host,
            position=header.last, hash=header.ends, recorded_us=header.ended_us, written_us=self._clock.now_us(),
            events=head.events + header.events, bytes=head.bytes + size,
            left_out=[f"{repository}: {why}" for repository, why in self._commits.problems.items()],
        )  # fmt: skip
        await self._archive.advance(head)
        crash_point("backup: segment counted")
        self._head = head
        self._written += size
        self._unmerged += 1
        return head

    async def _ship_keys(self) -> None:
        if self._journal.vault is not None:
            assert self._archive is not None
            self._written += await self._archive.write_keys(await read_keys(self._journal.vault))

    async def _next(self, after: int) -> list[Recorded]:
        """Return the events of a segment: all of the last commit, and no part of one.

        Events of one commit have the same time. Where a page ends before the journal does, those of the last time in it
        may not be all, and are left for the next segment, unless there are no others.
        """
        found: list[Recorded] = []
        size = 0
        while True:
            page = await self._journal.store.read_log(after=found[-1].position if found else after, limit=PAGE_EVENTS)
            found += page
            if len(page) < PAGE_EVENTS:
                return found
            size += sum(len(event.body) for event in page)
            if size < SEGMENT_BYTES:
                continue
            ends = [number for number, (one, two) in enumerate(pairwise(found), 1) if one.time_us != two.time_us]
            if ends:
                return found[: ends[-1]]

    async def _is_same(self, position: int, hash_: str) -> bool:
        """Return whether the journal has the event with this hash at a position, or has compacted it since."""
        found = await self._journal.store.read_log(after=position - 1, limit=1)
        return bool(found) and (found[0].position != position or found[0].hash.hex() == hash_)

    def _other_events(self, where: str) -> Conflict:
        return Conflict(
            "backup",
            what=f"the backup at {self._location.name} has other events than {self._journal.store.place} at {where}",
            hint="a copy of this database was backed up there, or this one was replaced; give it another place",
        )

    # --- one shipper at a time -----------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _leased(self) -> AsyncIterator[Lease]:
        name = f"backup/{hashlib.sha256(self._location.name.encode()).hexdigest()[:16]}"
        lease, waited_s = await self._journal.acquire(name, ttl_s=LEASE_S), 0.0
        while lease is None and waited_s < LEASE_S + LEASE_S / 3:  # that of a process that was killed runs out by then
            waited_s += LEASE_S / 10
            await asyncio.sleep(LEASE_S / 10)
            lease = await self._journal.acquire(name, ttl_s=LEASE_S)
        if lease is None:
            what = f"another process backs {self._journal.store.place} up to {self._location.name} already"
            raise Conflict(name, what=what, hint="see how far it is: `maos backup status`")
        try:
            yield lease
        finally:
            await self._journal.release(lease)

    async def _renew(self, lease: Lease) -> Lease:
        renewed = await self._journal.renew(lease, ttl_s=LEASE_S)
        if renewed is None:  # it ran out while the location did not answer; the head notices another writer
            renewed = await self._journal.acquire(lease.name, ttl_s=LEASE_S)
        if renewed is None:
            what = f"another process has taken over the backup to {self._location.name}"
            raise Conflict(lease.name, what=what, hint="see how far it is: `maos backup status`")
        return renewed

    async def _rest(self, lease: Lease, pause_s: float) -> Lease:
        while pause_s > 0:
            await asyncio.sleep(min(pause_s, LEASE_S / 3))
            pause_s -= LEASE_S / 3
            lease = await self._renew(lease)
        return lease

    async def _wait(self, lease: Lease, position: int) -> Lease:
        """Wait until there is more to ship."""
        while await self._journal.store.wait(after=position, timeout_s=LEASE_S / 3) <= position:
            lease = await self._renew(lease)
        return lease


async def read_keys(vault: Vault) -> BackupKeys:
    """Return the wrapped keys of a database, as a backup has them."""
    return BackupKeys(keyring=await vault.keyring(), data_keys=await vault.keys())


def _absolute(place: str) -> str:
    """Return the name of a database as other folders know it."""
    return place if "://" in place else os.path.abspath(place)
