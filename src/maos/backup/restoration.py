"""Writes the events of a backup to a new database, up to a position or a time, and checks every one of them.

A commit is never divided: a position inside one means the end of the commit before it.
"""

from __future__ import annotations

import glob
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from maos.backup.archive import Archive
from maos.backup.segments import Segment
from maos.clock import MICROSECONDS, Clock
from maos.errors import Corrupt, InvalidInput, NotFound, StoreUnavailable
from maos.faults import crash_point
from maos.files import sync_folder
from maos.keys.erased import ErasedKeys
from maos.store import chain, sqlite_file
from maos.store.chain import End
from maos.store.contract import GENESIS, Recorded, Store, UsedKey
from maos.store.sql_store import SqlStore
from maos.tuples import NamedTuple

PAGE_EVENTS = 1_000


class RestorePoint(NamedTuple):
    """Where a restoration ends: at a position, at a time, or where the backup does."""

    position: int | None = None
    time_us: int | None = None

    def part_of(self, events: list[Recorded]) -> list[Recorded]:
        """Return the events up to it, without a part of a commit."""
        end = len(events)
        if self.time_us is not None:
            end = next((number for number, event in enumerate(events) if event.time_us > self.time_us), end)
        if self.position is not None:
            beyond = (number for number, event in enumerate(events[:end]) if event.position > self.position)
            end = next(beyond, end)
            while 0 < end < len(events) and events[end].time_us == events[end - 1].time_us:
                end -= 1
        return events[:end]


class RestoredEvents(NamedTuple):
    """What a restoration has written."""

    store: str
    """The identity of the database that was backed up."""
    position: int
    recorded_us: int
    """When its last event was recorded."""
    events: int
    bytes: int
    replaced: str = ""
    """Where the database is kept that was there before; empty when there was none."""


async def write_events(
    archive: Archive,
    target: Store,
    point: RestorePoint,
    report: Callable[[int, int], None],
    *,
    reads_back: bool = False,
) -> RestoredEvents:
    """Write the events of a backup up to a point to a store, which is empty or has the first of them already.

    With `reads_back` all of them are read from the store afterwards, and compared with their hashes once more.
    """
    head = await archive.head()
    if head is None:
        raise NotFound(f"there is no backup of {archive.store} at {archive.location.name}")
    until = head.position if point.position is None else min(point.position, head.position)
    versions, done = 0, RestoredEvents(archive.store, 0, 0, 0, 0)
    async for segment in archive.read(until=until):
        events = point.part_of(segment.events)
        if events:
            await _write(target, events, _keys(segment, events[-1].position))
            crash_point("restore: segment written")
            versions += sum(event.spans for event in events)
            size = done.bytes + sum(len(event.body) for event in events)
            done = RestoredEvents(
                archive.store, events[-1].position, events[-1].time_us, done.events + len(events), size
            )
            report(done.position, until)
        if len(events) < len(segment.events):
            break
    if not done.events:
        what = "the backup has no events up to then"
        raise InvalidInput(what, hint="`maos backup list` shows what it covers; nothing was restored")
    if versions != done.position:
        raise InvalidInput(
            f"the events before position {done.position} were compacted before they were backed up",
            hint="restore to a later position or time; nothing was restored",
        )
    health = await target.check()
    if health.problems or health.versions != done.position:
        what = "; ".join(health.problems) or f"{health.versions} versions are there, {done.position} were written"
        raise Corrupt(f"{target.place} is damaged: {what}", hint="check the disk; the backup was not restored")
    if reads_back:
        await _read_back(target)
    return done


async def _read_back(target: Store) -> None:
    ends: dict[str, End] = {}
    after = 0
    while page := await target.read_log(after=after, limit=PAGE_EVENTS):
        check_hashes(page, ends)
        after = page[-1].position


def check_hashes(events: list[Recorded], ends: dict[str, End]) -> None:
    """Raise Corrupt unless all events follow the ends of their streams, and move these."""
    by_stream: dict[str, list[Recorded]] = {}
    for event in events:
        by_stream.setdefault(event.stream, []).append(event)
    for name, found in by_stream.items():
        chain.check(found, ends.get(name, End(0, GENESIS)))
        ends[name] = End(found[-1].version, found[-1].hash)


async def write_keys(archive: Archive, target: SqlStore, erased: ErasedKeys, now_us: int) -> None:
    """Write the keys of an encrypted database before its events; those that were erased on this machine stay erased.

    The keys are as they are now, whatever time is restored: an erasure since then is honoured.
    """
    keys = await archive.keys()
    if keys is None:
        return
    if not await target.database.fetch("keyring"):  # or an interrupted restoration has written them
        target.database.is_encrypted = True
        await target.change_keys([("insert_keyring", keys.keyring)], what="restore keys")
        await target.change_keys([("restore_data_key", keys.data_keys)], what="restore keys")
    gone = erased.of(key.id for key in keys.data_keys if not key.erased_us)
    if gone:
        await target.change_keys([("erase_data_key", [(id, now_us) for id in gone])], what="restore keys")


async def _write(target: Store, events: list[Recorded], keys: list[UsedKey]) -> None:
    """Write events that the store does not have; raise InvalidInput when it has others."""
    head = await target.head()
    here = [event for event in events if event.position <= head]
    if here:
        found = await target.read_log(after=here[-1].position - 1, limit=1)
        if not found or found[0].hash != here[-1].hash:
            hint = "give the name of a database that does not exist; nothing was changed"
            raise InvalidInput(f"{target.place} has other events than the backup", hint=hint)
    if len(here) < len(events):
        await target.restore(events[len(here) :], keys)


def _keys(segment: Segment, last: int) -> list[UsedKey]:
    return [key for key in segment.keys if key.position <= last]


class NewDatabase(NamedTuple):
    """A database file that is being restored."""

    path: Path
    replaced: Path | None
    """The name that the database gets in whose place it comes; None when there is none."""


@contextmanager
def new_database(path: Path, *, clock: Clock, replace: bool = False) -> Iterator[NewDatabase]:
    """A SQLite database to be written in the block, which gets its name once it is complete.

    With `replace` it takes the place of the one of that name, which is kept under another; no process may have that one
    open.
    """
    partial, replaced = path.with_name(f"{path.name}.restoring"), None

    def remove() -> None:
        for file in partial.parent.glob(f"{glob.escape(partial.name)}*"):
            shutil.rmtree(file) if file.is_dir() and not file.is_symlink() else file.unlink()

    if replace and path.exists():
        seconds, part_us = divmod(clock.now_us(), MICROSECONDS)
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(seconds))
        replaced = path.with_name(f"{path.name}.replaced-{stamp}.{part_us:06d}Z")
        with sqlite_file.closed_to_others(path, str(path)):  # before the work of restoring, and again at its end
            pass
    else:
        for file in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-head")):
            if os.path.lexists(file):
                hint = "name a file that does not exist, or replace this one, which is kept: --replace"
                raise InvalidInput(f"{file} exists", hint=hint)
    remove()
    try:
        yield NewDatabase(partial, replaced)
        if replaced is None:
            crash_point("restore: not yet named")
            _name(partial, path)
        else:
            with sqlite_file.closed_to_others(path, str(path)):
                _keep(path, replaced)
                _name(partial, path)
        sync_folder(path.absolute().parent)
    finally:
        remove()


def _keep(path: Path, replaced: Path) -> None:
    """Give a database a second name, and take its mark away, so that another file can get its first name at once.

    A process that was killed in between has left the database as it was; its second name is removed by the next one.
    """
    for left in path.parent.glob(f"{glob.escape(path.name)}.replaced-*"):
        if left.is_file() and left.samefile(path):
            left.unlink()
    mark = path.with_name(f"{path.name}-head")
    if mark.exists():
        shutil.copy2(mark, replaced.with_name(f"{replaced.name}-head"))
    try:
        os.link(path, replaced)
    except OSError as error:
        what = f"{path} cannot be kept as {replaced.name}: {error.strerror}"
        raise StoreUnavailable(what, written=False, hint="restore to a new file; nothing was replaced") from error
    sync_folder(path.absolute().parent)
    crash_point("replace: kept under a second name")
    mark.unlink(missing_ok=True)  # it is that of the other one, and would be taken for a loss
    crash_point("replace: without a mark")


def _name(partial: Path, path: Path) -> None:
    for suffix in ("", "-head"):
        partial.with_name(partial.name + suffix).rename(path.with_name(path.name + suffix))
        crash_point(f"replace: named {suffix or 'the database'}")
