"""The backup of a database that is no longer needed is removed as a whole, and by its whole name only."""

import asyncio
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import maos
from maos.backup import service
from maos.cli.program import program
from maos.errors import Conflict, NotFound
from maos.journal.codec import Event
from maos_testing.crash import Life, crash_loop
from tests.backup.records import TYPES
from tests.crash.stores import ROOT

SCRIPT = "import asyncio, sys; from maos.backup import service; asyncio.run(service.remove(*sys.argv[1:], now_us=1))"


async def backed_up(root: Path, name: str = "maos.db") -> str:
    """Make a database with a backup of two segments; return its identity."""
    async with maos.open(root / name, types=TYPES) as m:
        for number in range(2):
            await m.journal.append("notes/1", Event("note", {"text": f"{number}"}))
            await m.backups.ship(str(root / "backups"))
        return await m.journal.store.identity()


async def test_a_backup_is_removed_and_others_stay(tmp_path: Path) -> None:
    one, two = await backed_up(tmp_path, "one.db"), await backed_up(tmp_path, "two.db")
    assert await service.remove(str(tmp_path / "backups"), one, now_us=1) == 3
    assert [head.store for head in await service.find(str(tmp_path / "backups"))] == [two]
    assert (await service.verify(str(tmp_path / "backups"))).damage == ""
    with pytest.raises(NotFound):
        await service.remove(str(tmp_path / "backups"), one, now_us=1)


async def test_every_crash_point_of_a_removal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I36: a backup that is removed in part is not restored, not written to, and the removal can be ended."""
    monkeypatch.setenv("MAOS_CRASH_ONLY", "remove:")
    stores = {}
    for number in range(10):
        (tmp_path / f"{number}").mkdir()
        stores[number] = await backed_up(tmp_path / f"{number}")

    def argv(number: int) -> list[str]:
        return [sys.executable, "-c", SCRIPT, str(tmp_path / f"{number}" / "backups"), stores[number]]

    async def look(life: Life) -> None:
        root = tmp_path / f"{life.number}"
        if life.died_at is None:
            assert await service.find(str(root / "backups")) == []
            return
        with pytest.raises(NotFound, match="was removed in part"):
            await maos.restore(str(root / "backups"), root / "new.db")
        async with maos.open(root / "maos.db", types=TYPES) as m:
            with pytest.raises(Conflict, match="was removed in part"):
                await m.backups.ship(str(root / "backups"))
            await service.remove(str(root / "backups"), stores[life.number], now_us=1)
            assert (await m.backups.ship(str(root / "backups"))).position == 2

    found = await crash_loop(argv, look, cwd=ROOT)
    assert {life.died_at for life in found} >= {"remove: head says so", "remove: object deleted"}


def test_the_command_shows_first_and_needs_the_whole_id(tmp_path: Path) -> None:
    store = asyncio.run(backed_up(tmp_path))
    call, where = CliRunner(), str(tmp_path / "backups")
    shown = call.invoke(program, ["backup", "rm", where, store[:5], "--dry-run"])
    assert shown.exit_code == 0, shown.output
    assert store in shown.output
    assert "it would be removed" in shown.output
    assert call.invoke(program, ["backup", "rm", where, store]).exit_code != 0, "no person can be asked"
    assert call.invoke(program, ["backup", "rm", where, store[:5], "--yes"]).exit_code != 0
    assert call.invoke(program, ["backup", "rm", where, "f00d" * 8, "--yes"]).exit_code != 0
    assert asyncio.run(service.verify(where)).intact == 2
    done = call.invoke(program, ["backup", "rm", where, store, "--yes"])
    assert "removed, with 3 objects" in done.output, done.output
