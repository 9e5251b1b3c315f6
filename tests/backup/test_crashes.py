"""A backup or a restoration that is killed at any moment and begun again ends like one that was not disturbed."""

import sys
from pathlib import Path

import pytest

import maos
from maos.backup import service
from maos_testing.crash import Life, crash_loop
from tests.backup.backup_life import NOTES, main
from tests.backup.records import TYPES, rows
from tests.crash.stores import ROOT

POINTS = {"backup: object not yet named", "backup: segment written, not counted", "backup: segment counted",
          "restore: written, not committed", "restore: segment written", "restore: not yet named"}  # fmt: skip


async def test_every_crash_point_of_a_backup_and_of_its_restoration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-701: what was acknowledged as shipped is in the backup; a new database is there as a whole or not at all."""
    monkeypatch.setenv("MAOS_CRASH_ONLY", "backup: restore:")

    def places(number: int) -> tuple[Path, Path, Path]:
        root = tmp_path / f"life-{number}"
        root.mkdir(exist_ok=True)
        return root / "maos.db", root / "backups", root / "new.db"

    def argv(number: int) -> list[str]:
        return [sys.executable, "-m", "tests.backup.backup_life", *map(str, places(number))]

    async def look(life: Life) -> None:
        database, location, restored = places(life.number)
        shipped = [int(each.split()[1]) for each in life.acks if each.startswith("shipped")]
        if shipped:
            check = await service.verify(str(location))
            assert check.damage == ""
            assert check.intact >= shipped[-1], "acknowledged as shipped, and lost"
        if restored.exists():
            assert len(await rows(restored)) == NOTES, "there, and not whole"
        else:
            assert "restored" not in life.acks
            await main(str(database), str(location), str(restored))
        assert await rows(restored) == await rows(database)
        async with maos.open(restored, types=TYPES) as m:
            assert (await m.verify()).ok
        left = [path.name for path in restored.parent.iterdir() if "restoring" in path.name]
        assert left == [] or life.died_at is not None

    lives = await crash_loop(argv, look, cwd=ROOT)
    assert {life.died_at for life in lives} >= POINTS
