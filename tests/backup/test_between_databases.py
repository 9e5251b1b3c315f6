"""A backup of one kind of database is restored to the other: the events are the same."""

from pathlib import Path

import pytest

import maos
from maos.backup import restoration
from maos.errors import InvalidInput
from maos.journal.codec import Event
from maos.store.contract import Recorded, Store
from tests.backup.records import TYPES, rows


async def fill(database: str | Path, mark: Path | None = None) -> None:
    async with maos.open(database, types=TYPES, mark_path=mark) as m:
        for number in range(30):
            await m.journal.append(f"notes/{number % 4}", Event("note", {"text": f"{number} " * 80}), key=f"{number}")


@pytest.mark.parametrize("way", ["to PostgreSQL", "from PostgreSQL"])
async def test_a_backup_is_restored_to_the_other_kind_of_database(way: str, postgres_url: str, tmp_path: Path) -> None:
    """R-701."""
    source: str = str(tmp_path / "maos.db") if way == "to PostgreSQL" else postgres_url
    target: str = postgres_url if way == "to PostgreSQL" else str(tmp_path / "maos.db")
    await fill(source)
    async with maos.open(source, types=TYPES) as m:
        await m.backups.ship(str(tmp_path / "backups"))
    await maos.restore(str(tmp_path / "backups"), target)
    assert await rows(target) == await rows(source)
    async with maos.open(target, types=TYPES) as m:
        await m.trust()
        assert (await m.journal.append("notes/0", Event("note", {"text": "0 " * 80}), key="0")).repeated
        assert (await m.verify()).ok


async def test_an_interrupted_restoration_to_a_server_is_continued(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(tmp_path / "maos.db")
    async with maos.open(tmp_path / "maos.db", types=TYPES) as m:
        await m.backups.ship(str(tmp_path / "backups"))
        await m.journal.append("notes/0", Event("note", {"text": "more"}))
        await m.backups.ship(str(tmp_path / "backups"))
    write = restoration._write

    async def fail_at_the_second(target: Store, events: list[Recorded], keys: list[object]) -> None:
        if events[0].position > 1:
            raise RuntimeError("interrupted")
        await write(target, events, keys)  # type: ignore[arg-type]

    monkeypatch.setattr(restoration, "_write", fail_at_the_second)
    with pytest.raises(RuntimeError):
        await maos.restore(str(tmp_path / "backups"), postgres_url)
    monkeypatch.undo()
    await maos.restore(str(tmp_path / "backups"), postgres_url)
    assert await rows(postgres_url) == await rows(tmp_path / "maos.db")


async def test_a_server_with_other_events_is_refused_and_stays(postgres_url: str, tmp_path: Path) -> None:
    await fill(tmp_path / "maos.db")
    async with maos.open(tmp_path / "maos.db", types=TYPES) as m:
        await m.backups.ship(str(tmp_path / "backups"))
    await fill(postgres_url)
    before = await rows(postgres_url)
    with pytest.raises(InvalidInput, match="has other events than the backup"):
        await maos.restore(str(tmp_path / "backups"), postgres_url)
    assert await rows(postgres_url) == before
