"""Upgrades of a schema: by several processes at once, after a copy from an earlier try, and on a full disk."""

import asyncio
import shutil
import sys
from pathlib import Path

import apsw
import pytest

from maos.errors import DiskFull, StoreUnavailable
from maos.store.contract import Key, Recorded, Write
from maos_testing.crash import ChildProcess
from maos_testing.power_cut import Disk, DiskFault
from tests.crash.levels import NEXT, SHIPPED, level_of, older_levels, two_levels
from tests.crash.promises import damage, events, everything
from tests.crash.stores import ROOT, Place

COPY = f"maos.db.level-{SHIPPED}.bak"


@pytest.fixture
async def old(tmp_path: Path) -> tuple[Place, list[Recorded]]:
    """A journal of the first level, and what is in it."""
    place = Place(str(tmp_path / "live"))
    Path(place.folder).mkdir()
    async with place.open() as store:
        for number in range(60):
            await store.append(Write(f"run/{number % 4}", events(f"old {number}", 3, 4_000)))
        return place, await everything(store)


async def content(copy: Path, scratch: Path) -> list[Recorded]:
    """The events in the copy from before; opened as a journal of the first level."""
    place = Place(str(scratch / "opened"))
    shutil.rmtree(place.folder, ignore_errors=True)
    Path(place.folder).mkdir()
    shutil.copyfile(copy, place.path)
    async with place.open() as store:
        assert await damage(store) == []
        return await everything(store)


async def test_several_processes_upgrade_at_once(old: tuple[Place, list[Recorded]], tmp_path: Path) -> None:
    """One does it, the others wait for it; the copy is of the state before."""
    place, log = old
    levels = str(two_levels(tmp_path))
    for number in range(4):
        copied = Place(str(tmp_path / f"round {number}"), levels=levels)
        shutil.copytree(place.folder, copied.folder)
        argv = [sys.executable, "-m", "tests.crash.scenarios", "open", copied.said()]
        processes = [ChildProcess(argv, cwd=ROOT) for _ in range(4)]
        for process in processes:
            assert (await asyncio.to_thread(process.wait, 1)).acks == [["open", len(log)]]
        assert await level_of(copied) == NEXT
        folder = Path(copied.folder)
        assert await content(folder / COPY, tmp_path) == log
        assert [file.name for file in folder.iterdir() if "partial" in file.name] == []


async def test_a_copy_from_an_earlier_try_is_replaced(old: tuple[Place, list[Recorded]], tmp_path: Path) -> None:
    """The try before died after its copy, and work went on at the old level: an old copy would lack that work."""
    place, _log = old
    copy = place.path.with_name(COPY)
    shutil.copyfile(place.path, copy)
    async with place.open() as store:
        await store.append(Write("run/1", events("after the first try")))
        log = await everything(store)
    async with place._replace(levels=str(two_levels(tmp_path))).open() as store:
        assert await everything(store) == log
        assert any(COPY in note for note in (await store.check()).notes)
    assert await content(copy, tmp_path) == log
    assert copy.stat().st_mode & 0o777 == 0o600


async def test_no_upgrade_without_a_copy(old: tuple[Place, list[Recorded]], tmp_path: Path) -> None:
    """No space for the copy: the database stays as it is, and nothing of the copy is left."""
    place, log = old
    upgraded = place._replace(levels=str(two_levels(tmp_path)))
    for code, wanted in ((apsw.SQLITE_FULL, DiskFull), (apsw.SQLITE_IOERR_WRITE, StoreUnavailable)):
        disk = Disk()
        disk.fault = DiskFault(code, at=5, on=("write",), file=".partial", forever=True)
        with pytest.raises(wanted):
            async with upgraded.open(vfs=disk.name):
                pass
        assert disk.fault.hits
        assert await level_of(place) == SHIPPED
        assert [file.name for file in Path(place.folder).iterdir() if ".bak" in file.name] == []
        async with place.open() as store:
            assert await damage(store) == []
            assert await everything(store) == log


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_database_of_the_level_before_is_upgraded_and_can_be_backed_up(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Its events and keys are as they were; new leases have tokens, and its keys are found by position."""
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else ""
    place = Place(str(tmp_path / "live"), url=url)
    Path(place.folder).mkdir()
    async with place._replace(levels=str(older_levels(tmp_path))).open() as store:
        await store.append(Write("run/1", events("old", 3)), key=Key("k", b"f" * 32))
        log = await everything(store)
    assert await level_of(place) == SHIPPED - 1
    async with place.open() as store:
        assert await everything(store) == log
        assert [key.id for key in await store.read_keys(first=1, last=3)] == ["k"]
        lease = await store.acquire("a", owner="me", ttl_s=60)
        assert lease is not None
        assert lease.token == 1
        assert await damage(store) == []
    assert await level_of(place) == SHIPPED
