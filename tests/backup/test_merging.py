"""Small segments of a backup are merged into larger ones; at every moment a reader finds all events."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import maos
from maos.app import Maos
from maos.backup import merger, segments, service
from maos.backup.archive import Archive
from maos.backup.locations import FolderLocation
from maos.backup.shipper import Progress
from maos.errors import Corrupt, StoreUnavailable
from maos.journal.codec import Event
from maos_testing.crash import Life, crash_loop
from tests.backup.merge_life import NEIGHBOURS, NOTES
from tests.backup.records import TYPES, rows
from tests.crash.stores import ROOT


@pytest.fixture
async def m(tmp_path: Path) -> AsyncIterator[Maos]:
    async with maos.open(tmp_path / "maos.db", types=TYPES) as m:
        yield m


async def ship(m: Maos, where: Path, count: int, *, text: str = "x") -> None:
    """Write that many segments, each of one commit of one event with a key."""
    for _ in range(count):
        number = await m.journal.head()
        await m.journal.append(f"notes/{number % 3}", Event("note", {"text": f"{text}{number}"}), key=f"{number}")
        await m.backups.ship(str(where))


def names(where: Path) -> list[str]:
    """The names of the segments in a backup, below their folder."""
    return sorted(str(path.relative_to(path.parents[1])) for path in where.rglob("segments/**/*") if path.is_file())


async def archive(m: Maos, where: Path) -> Archive:
    return Archive(FolderLocation(where), await m.journal.store.identity())


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three neighbours become one."""
    monkeypatch.setattr(merger, "NEIGHBOURS", 3)


async def merge(m: Maos, where: Path) -> int:
    return await merger.merge(await archive(m, where), until=await m.journal.head())


async def test_small_segments_become_large_ones_and_everything_comes_back(m: Maos, tmp_path: Path) -> None:
    """R-701, I34: neighbours are merged level by level; every point in time stays restorable."""
    where = tmp_path / "backups"
    await ship(m, where, 3 * 3 * 3 + 9 + 3 + 1)
    assert len(names(where)) == 4
    assert {name.partition("/")[0] for name in names(where)} == {"3", "2", "1", "segments"}
    assert (await service.verify(str(where))).damage == ""
    await maos.restore(str(where), tmp_path / "new.db")
    assert await rows(tmp_path / "new.db") == await rows(tmp_path / "maos.db")
    for position in (1, 11, 27, 28, 40):
        done = await maos.restore(str(where), tmp_path / f"{position}.db", position=position)
        assert done.position == position
    async with maos.open(tmp_path / "new.db", types=TYPES) as new:
        await new.trust()
        assert (await new.journal.append("notes/0", Event("note", {"text": "x0"}), key="0")).repeated


async def test_a_shipper_merges_beside_its_work(m: Maos, tmp_path: Path) -> None:
    where = tmp_path / "backups"
    following = asyncio.create_task(m.backups.follow(str(where), every_s=0.01))
    while not any("to" in name for name in names(where)):
        await m.journal.append("notes/1", Event("note", {"text": "x"}))
        await asyncio.sleep(0.02)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert (await service.verify(str(where))).damage == ""


async def test_a_reader_that_began_before_a_merge_finds_the_rest(m: Maos, tmp_path: Path) -> None:
    """I36: what a reader has listed is merged and deleted while it reads; it continues inside of the larger one."""
    where = tmp_path / "backups"
    stored = await archive(m, where)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merger, "NEIGHBOURS", 10_000)
        await ship(m, where, 12)
    found = []
    async for segment in stored.read(until=12):
        found += [event.position for event in segment.events]
        if found[-1] == 6:
            assert await merge(m, where) > 0
    assert found == list(range(1, 13))


async def test_a_full_segment_is_not_merged_again(m: Maos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merger, "MERGED_BYTES", 1000)
    where = tmp_path / "backups"
    await ship(m, where, 30, text="x" * 100)
    before = names(where)
    assert max(int(name.partition("/")[0]) for name in before if name[0] != "s") == 3
    assert await merge(m, where) == 0
    assert names(where) == before
    assert (await service.verify(str(where))).events == 30


async def test_nothing_is_deleted_for_a_merged_segment_that_is_damaged(m: Maos, tmp_path: Path) -> None:
    """I36: the small segments go only after the large one was read back."""
    where = tmp_path / "backups"
    stored = await archive(m, where)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merger, "NEIGHBOURS", 10_000)
        await ship(m, where, 5)
    before = names(where)
    found = [await stored.open(piece) for piece in (await stored.pieces())[:4]]
    events = [event for segment in found if segment is not None for event in segment.events]
    content = bytearray(segments.seal(stored.store, bytes(32), 1, events, []))
    content[len(content) // 2] ^= 1
    assert await stored.add_merged(1, 4, 1, bytes(content))
    with pytest.raises(Corrupt, match="does not match its seal"):
        await merge(m, where)
    assert set(before) <= set(names(where))


async def test_a_backup_that_may_not_delete_is_complete_and_says_so(
    m: Maos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_location: FolderLocation, name: str) -> None:
        raise StoreUnavailable(f"{name} may not be deleted", written=False)

    monkeypatch.setattr(FolderLocation, "delete", refuse)
    where, seen = tmp_path / "backups", list[Progress]()
    await ship(m, where, 9)
    await m.backups.ship(str(where), seen.append)
    assert "may not be deleted" in seen[-1].trouble
    assert (await service.verify(str(where))).intact == 9
    await maos.restore(str(where), tmp_path / "new.db")
    assert await rows(tmp_path / "new.db") == await rows(tmp_path / "maos.db")


async def test_every_crash_point_of_merging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-701, I36: killed at any moment of a merge, the backup has everything, and the next process finishes it."""
    monkeypatch.setenv("MAOS_CRASH_ONLY", "merge:")
    monkeypatch.setattr(merger, "NEIGHBOURS", NEIGHBOURS)

    def places(number: int) -> tuple[Path, Path]:
        root = tmp_path / f"life-{number}"
        root.mkdir(exist_ok=True)
        return root / "maos.db", root / "backups"

    def argv(number: int) -> list[str]:
        return [sys.executable, "-m", "tests.backup.merge_life", *map(str, places(number))]

    async def look(life: Life) -> None:
        database, where = places(life.number)
        check = await service.verify(str(where))
        assert (check.damage, check.intact) == ("", NOTES)
        async with maos.open(database, types=TYPES) as m:
            stored = await archive(m, where)
            await merger.merge(stored, until=NOTES)
        assert len(names(where)) == 2, names(where)
        check = await service.verify(str(where))
        assert (check.damage, check.events) == ("", NOTES)

    lives = await crash_loop(argv, look, cwd=ROOT)
    assert {life.died_at for life in lives} >= {"merge: written, nothing deleted", "merge: small segment deleted"}
