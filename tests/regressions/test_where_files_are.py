"""The journal's files: always the ones that were opened, and never overwritten by a copy (I1, I2)."""

from pathlib import Path

import apsw
import pytest

import maos
from maos.errors import InvalidInput, StoreUnavailable


async def test_a_process_that_goes_elsewhere_goes_on_writing_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I1: a path without a root was looked up anew by the first append, and another folder's journal got the event."""
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for folder in (here, elsewhere):
        folder.mkdir()
        async with maos.open(folder / "maos.db") as m:
            await m.state.create(folder.name)
    monkeypatch.chdir(here)
    async with maos.open("maos.db") as m:
        monkeypatch.chdir(elsewhere)
        await m.state.create("late")
    async with maos.open(here / "maos.db") as m:
        assert [each.agent async for each in m.state.all()] == ["here", "late"]
    async with maos.open(elsewhere / "maos.db") as m:
        assert [each.agent async for each in m.state.all()] == ["elsewhere"]


async def test_a_copy_is_written_with_a_log_like_the_original(tmp_path: Path) -> None:
    """I2: VACUUM INTO leaves a rollback journal, whose unlinking SQLite does not sync before the acknowledgement."""
    async with maos.open(tmp_path / "maos.db") as m:
        await m.state.create("reviewer")
        await m.copy_to(tmp_path / "copy.db")
    async with maos.open(tmp_path / "copy.db") as m:
        await m.state.update("reviewer", {"status": "busy"})
        assert (tmp_path / "copy.db-wal").exists()
    connection = apsw.Connection(str(tmp_path / "copy.db"))
    assert connection.execute("PRAGMA journal_mode").get == "wal"
    connection.close()


async def test_a_copy_never_takes_the_place_of_a_database_in_use(tmp_path: Path) -> None:
    """I1: appends acknowledged after that went into a file without a name."""
    async with maos.open(tmp_path / "maos.db") as m, maos.open(tmp_path / "other.db") as other:
        await m.state.create("reviewer")
        await other.state.create("other")
        (tmp_path / "link").symlink_to(tmp_path / "maos.db")
        for target in ("maos.db", "other.db", "link"):
            with pytest.raises(InvalidInput, match="in use"):
                await m.copy_to(tmp_path / target)
        await m.state.update("reviewer", {"status": "busy"})
    async with maos.open(tmp_path / "maos.db") as m:
        assert (await m.state.get("reviewer")).version == 2


async def test_a_closed_journal_says_so_to_readers(tmp_path: Path) -> None:
    """It said that the outcome of an append was unknown."""
    m = await maos.open(tmp_path / "maos.db")
    await m.state.create("reviewer")
    await m.close()
    with pytest.raises(StoreUnavailable, match="is closed") as caught:
        await m.state.get("reviewer")
    assert caught.value.written is False
