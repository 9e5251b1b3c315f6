"""Power cuts: what was acknowledged was synced (I2), and whatever else survives is a whole journal (I3, I4, I7)."""

import asyncio
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import apsw
import pytest

from maos.errors import HistoryLost
from maos.store import sqlite
from maos.store.contract import Document, Store, Write
from maos_testing.power_cut import Disk, Survivors, Truncate, beginning, nothing, some, torn
from maos_testing.power_cut import DiskWrite as Written
from tests.crash.promises import Found, Step, compaction, damage, events, everything, key
from tests.crash.stores import Place, house_keeping

KINDS = (nothing, beginning, some, torn)


class Cuts:
    """Cuts the power of a disk again and again, and looks at what is left."""

    def __init__(self, place: Place, scratch: Path, seed: int) -> None:
        self.disk = Disk()
        self.place = place
        self.acks: list[tuple[Step, int, tuple[int, ...]]] = []
        self.done = 0
        self._scratch = scratch
        self._chance = Random(seed)
        self._folders = itertools.count(1)
        self._left: list[tuple[Place, int, str]] = []

    def cut(self, survivors: Survivors) -> None:
        """Keep what a cut at this moment would leave, and how much had been acknowledged by then."""
        folder = self._scratch / str(next(self._folders))
        folder.mkdir()
        left = Place(str(folder))
        known = len(self.acks)
        # The mark is not synced, so any may survive: the newest one is the hardest to agree with. It is taken first,
        # because a writer's thread goes on meanwhile.
        if self.place.mark.exists() and self._chance.random() < 0.8:
            shutil.copyfile(self.place.mark, left.mark)
        self.disk.cut_power(folder, survivors, self._chance)
        self._left.append((left, known, survivors.__name__))

    async def told(self, store: Store, step: Step) -> None:
        """Make an append; at the moment of its acknowledgement the power may go."""
        reply = await step.take(store)
        self.acks.append((step, reply.position, reply.versions))

    async def look(self) -> None:
        """Open everything that is left, with SQLite's own VFS, and compare."""
        for left, known, survivors in self._left:
            try:
                async with left.open() as store:
                    assert await damage(store) == []
                    log = await everything(store)
                    found = Found(log)
                    for step, position, versions in self.acks[:known]:
                        found.keeps(step, position, versions)
                    for step, _position, _versions in self.acks[known:]:
                        found.has(step)
                    reply = await store.append(Write("after", events("the power is back")))
                    assert reply.position == (log[-1].position if log else 0) + 1
            except BaseException as error:
                error.add_note(f"after a cut with {known} acknowledged, left: {survivors}, in {left.folder}")
                raise
            shutil.rmtree(left.folder)
            self.done += 1
        self._left.clear()


@pytest.fixture
def cuts(tmp_path: Path) -> Iterator[Cuts]:
    """A disk with an empty folder on it, and a folder for what is left after cuts."""
    (tmp_path / "live").mkdir()
    (tmp_path / "left").mkdir()
    return Cuts(Place(str(tmp_path / "live")), tmp_path / "left", seed=7)


def steps(count: int) -> Iterator[Step]:
    """Appends of all sorts."""
    for number in range(count):
        name = f"step {number}"
        if number % 10 == 9:
            yield compaction(f"agent/{number}", 1, 3, name)
            continue
        stream = f"agent/{number + 9 - number % 10}" if number % 10 < 6 else f"run/{number % 3}"
        yield Step(
            (Write(stream, events(name, 1 + number % 2, 5_000 if number % 6 == 0 else 40)),),
            key(name),
            (Document("view", stream, number, b"." * (number * 37 % 6_000)),),
        )


async def one_by_one(cuts: Cuts, count: int, every: int = 1) -> None:
    """Appends one after the other, with cuts after acknowledgements."""
    async with cuts.place.open(vfs=cuts.disk.name) as store:
        for number, step in enumerate(steps(count)):
            await cuts.told(store, step)
            if number % every == 0:
                for kind in KINDS:
                    cuts.cut(kind)
        cuts.cut(some)
    cuts.cut(nothing)  # the log was copied into the database and deleted
    cuts.cut(torn)


async def test_nothing_acknowledged_is_lost(cuts: Cuts) -> None:
    await one_by_one(cuts, 40, every=2)
    await cuts.look()
    assert cuts.done > 80


async def test_nothing_acknowledged_is_lost_while_the_log_is_copied_and_starts_over(
    cuts: Cuts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cuts after every sync, also in the middle of a checkpoint, a vacuum and a reset of the log."""
    monkeypatch.setattr(sqlite, "WAL_PAGES_MAX", 40)
    monkeypatch.setattr(sqlite, "WAL_PAGES_PREALLOCATED", 1)
    monkeypatch.setattr(sqlite, "WAL_PREALLOCATED_PAGES", (1,))
    synced = cuts.disk.synced
    chance = Random(11)

    def sync_then_cut(*arguments: object, **options: object) -> None:
        if chance.random() < 0.15:
            cuts.cut(chance.choice(KINDS))  # just before, and
        synced(*arguments, **options)  # type: ignore[arg-type]
        if chance.random() < 0.15:
            cuts.cut(chance.choice(KINDS))  # just after

    monkeypatch.setattr(cuts.disk, "synced", sync_then_cut)
    async with cuts.place.open(vfs=cuts.disk.name) as store:
        pages = []
        for number, step in enumerate(steps(150)):
            await cuts.told(store, step)
            pages.append(store.database.wal_pages)  # type: ignore[attr-defined]
            if number % 10 == 0:
                await house_keeping(store)
            if chance.random() < 0.1:
                cuts.cut(chance.choice(KINDS))
        assert sum(later < earlier for earlier, later in itertools.pairwise(pages)) > 3, "the log never started over"
    await cuts.look()
    assert cuts.done > 50


async def test_nothing_acknowledged_is_lost_by_group_commit(cuts: Cuts) -> None:
    chance = Random(5)
    async with cuts.place.open(vfs=cuts.disk.name) as store:

        async def writer(number: int) -> None:
            for n in range(12):
                step = Step((Write(f"writer/{number}", events(f"{number}.{n}", 2, 300)),))
                await cuts.told(store, step)
                if chance.random() < 0.15:
                    cuts.cut(chance.choice(KINDS))

        await asyncio.gather(*(writer(number) for number in range(16)))
    await cuts.look()
    assert cuts.done > 15


async def test_a_database_that_is_being_made_is_whole_or_absent(cuts: Cuts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut while the schema is written leaves a file that opens."""
    synced = cuts.disk.synced

    def cut_sync_cut(*arguments: object, **options: object) -> None:
        for kind in KINDS:
            cuts.cut(kind)
        synced(*arguments, **options)  # type: ignore[arg-type]
        for kind in KINDS:
            cuts.cut(kind)

    monkeypatch.setattr(cuts.disk, "synced", cut_sync_cut)
    async with cuts.place.open(vfs=cuts.disk.name) as store:
        await cuts.told(store, next(steps(1)))
    await cuts.look()
    assert cuts.done > 20


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(50))
async def test_many_cuts(cuts: Cuts, seed: int) -> None:
    cuts._chance.seed(seed)
    await one_by_one(cuts, 200)
    await cuts.look()


async def test_this_test_can_fail(cuts: Cuts, monkeypatch: pytest.MonkeyPatch) -> None:
    """With synchronous=NORMAL acknowledged events are lost, and the mark says so (I2, I8)."""
    connect = sqlite.SqliteDatabase._connect_writer

    def connect_carelessly(self: sqlite.SqliteDatabase, **options: bool) -> apsw.Connection:
        connection = connect(self, **options)
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    monkeypatch.setattr(sqlite.SqliteDatabase, "_connect_writer", connect_carelessly)
    await one_by_one(cuts, 10)
    with pytest.raises((HistoryLost, AssertionError)):
        await cuts.look()


def test_a_disk_knows_what_is_synced(tmp_path: Path) -> None:
    disk = Disk()
    path = tmp_path / "file.db"
    connection = apsw.Connection(str(path), vfs=disk.name)
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("PRAGMA synchronous = NORMAL; CREATE TABLE t (x)")
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
    connection.execute("INSERT INTO t VALUES (1)")
    count = "SELECT count(*) FROM t"
    assert rows_left(disk, tmp_path, nothing, count) == 0
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
    assert rows_left(disk, tmp_path, nothing, count) == 1
    connection.execute("INSERT INTO t VALUES (2)")
    assert {rows_left(disk, tmp_path, beginning, count, seed) for seed in range(20)} == {1, 2}
    connection.close()
    assert rows_left(disk, tmp_path, nothing, count) == 2


def rows_left(disk: Disk, folder: Path, survivors: Survivors, query: str, seed: int = 0) -> int:
    left = folder / "left"
    left.mkdir()
    disk.cut_power(left, survivors, Random(seed))
    connection = apsw.Connection(str(left / "file.db"))
    try:
        return int(connection.execute(query).get)
    finally:
        connection.close()
        shutil.rmtree(left)


def test_a_torn_write_is_torn_between_sectors() -> None:
    changes = [Written(500, bytes(range(30))), Truncate(3)]
    pieces = {piece for seed in range(40) for piece in torn(changes, Random(seed))}
    assert pieces == {Written(500, bytes(range(12))), Written(512, bytes(range(12, 30))), Truncate(3)}
