"""A restored database takes the place of another: whole, verified, and never under a process that uses that one."""

import sqlite3
import sys
from pathlib import Path

import pytest

import maos
from maos.backup import service
from maos.errors import InvalidInput, StoreUnavailable
from maos.journal.codec import Event
from maos_testing.crash import Life, crash_loop
from tests.backup.records import TYPES, rows
from tests.crash.stores import ROOT

KEPT, RESTORED = 4, 2


async def prepare(database: Path, where: Path) -> None:
    """Make a database of four events whose backup has them too."""
    async with maos.open(database, types=TYPES) as m:
        for number in range(KEPT):
            await m.journal.append("notes/1", Event("note", {"text": f"{number}"}))
        await m.backups.ship(str(where))


def kept(database: Path) -> list[Path]:
    return [path for path in database.parent.glob("*.replaced-*") if not path.name.endswith("-head")]


async def test_the_restored_database_has_the_name_and_the_other_one_is_kept(tmp_path: Path) -> None:
    """I34: built beside, verified, then renamed."""
    database, where = tmp_path / "maos.db", tmp_path / "backups"
    await prepare(database, where)
    before = await rows(database)
    done = await maos.restore(str(where), database, position=RESTORED, replace=True)
    assert await rows(database) == before[:RESTORED]
    assert [str(path) for path in kept(database)] == [done.replaced]
    assert await rows(done.replaced) == before
    async with maos.open(database, types=TYPES) as m:
        with pytest.raises(maos.UntrustedStore):
            await m.journal.append("notes/1", Event("note", {"text": "more"}))
        await m.trust()
        await m.journal.append("notes/1", Event("note", {"text": "more"}))
        assert (await m.verify()).ok
    assert not list(tmp_path.glob("*restoring*"))
    with sqlite3.connect(done.replaced) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_after_a_restoration_the_next_backup_is_a_generation_of_its_own(tmp_path: Path) -> None:
    """I36: what was backed up before stays restorable, and the restored database is backed up from its first event."""
    database, where = tmp_path / "maos.db", tmp_path / "backups"
    await prepare(database, where)
    before = await rows(database)
    [old] = await service.find(str(where))
    await maos.restore(str(where), database, position=RESTORED, replace=True)
    async with maos.open(database, types=TYPES) as m:
        await m.trust()
        await m.journal.append("notes/1", Event("note", {"text": "another way"}))
        new = await m.backups.ship(str(where))
    assert new.store != old.store
    assert {each.store: each.position for each in await service.find(str(where))} == {old.store: 4, new.store: 3}
    await maos.restore(str(where), tmp_path / "old.db", store=old.store)
    await maos.restore(str(where), tmp_path / "new.db", store=new.store)
    assert await rows(tmp_path / "old.db") == before
    assert await rows(tmp_path / "new.db") == await rows(database)


async def test_a_database_that_a_process_has_open_is_not_replaced(tmp_path: Path) -> None:
    """I34: never over a live store."""
    database, where = tmp_path / "maos.db", tmp_path / "backups"
    await prepare(database, where)
    async with maos.open(database, types=TYPES) as m:
        await m.journal.head()
        with pytest.raises(StoreUnavailable, match=r"a process has .* open"):
            await maos.restore(str(where), database, replace=True)
        await m.journal.append("notes/1", Event("note", {"text": "more"}))
        assert (await m.verify()).ok
    assert kept(database) == []
    assert len(await rows(database)) == KEPT + 1


async def test_a_backup_that_is_damaged_replaces_nothing(tmp_path: Path) -> None:
    database, where = tmp_path / "maos.db", tmp_path / "backups"
    await prepare(database, where)
    [victim] = where.glob("*/segments/*")
    victim.write_bytes(victim.read_bytes()[:-1])
    with pytest.raises(maos.Corrupt):
        await maos.restore(str(where), database, replace=True)
    assert len(await rows(database)) == KEPT
    assert kept(database) == []


async def test_a_server_is_not_replaced_and_the_person_learns_what_to_do(tmp_path: Path) -> None:
    await prepare(tmp_path / "maos.db", tmp_path / "backups")
    with pytest.raises(InvalidInput, match="a database of a server is not replaced") as raised:
        await maos.restore(str(tmp_path / "backups"), "postgresql://127.0.0.1:1/maos", replace=True)
    assert "--db" in raised.value.hint


async def test_every_crash_point_of_a_replacement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I34: killed at any moment, the name is that of the old database or of the new one, each whole; never of neither.

    The old one is there under one of its names, and the same command ends what was begun.
    """
    monkeypatch.setenv("MAOS_CRASH_ONLY", "replace: restore:")

    def places(number: int) -> tuple[Path, Path]:
        return tmp_path / f"life-{number}" / "maos.db", tmp_path / f"life-{number}" / "backups"

    def argv(number: int) -> list[str]:
        return [sys.executable, "-m", "tests.backup.replace_life", *map(str, places(number))]

    async def look(life: Life) -> None:
        database, where = places(life.number)
        found = len(await rows(database))
        assert found in (KEPT, RESTORED)
        async with maos.open(database, types=TYPES) as m:
            assert (await m.verify()).ok
        if found == RESTORED:
            assert [len(await rows(path)) for path in kept(database)] == [KEPT]
        await maos.restore(str(where), database, position=RESTORED, replace=True)
        assert len(await rows(database)) == RESTORED
        assert KEPT in [len(await rows(path)) for path in kept(database)]
        assert all(not path.samefile(database) for path in kept(database))

    for number in range(16):  # the lives of the loop, each with a database of its own
        places(number)[0].parent.mkdir()
        await prepare(*places(number))
    lives = await crash_loop(argv, look, cwd=ROOT)
    names = {"replace: kept under a second name", "replace: without a mark", "replace: named the database"}
    assert {life.died_at for life in lives} >= names
