"""An append with an unknown outcome whose place others compact before it is looked up (I3)."""

from pathlib import Path

import apsw
import pytest

from maos.clock import SystemClock
from maos.errors import StoreUnavailable
from maos.store.contract import Key, RawEvent, Write
from maos.store.sql_store import SqlStore
from maos.store.sqlite import SqliteDatabase
from maos_testing.power_cut import Disk, DiskFault

NOTE = RawEvent("note", 1, b"{}")


@pytest.mark.parametrize("key", [None, Key("once", b"fingerprint")])
async def test_it_is_not_written_twice(key: Key | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I3: its event was not found, so it was written once more; now it is told as unknown, or found by its key."""
    path = tmp_path / "maos.db"
    disk = Disk()
    recover = SqliteDatabase.recover

    async def recover_too_late(self: SqliteDatabase) -> None:
        await recover(self)
        other = apsw.Connection(str(path), vfs=disk.name)
        other.execute(
            "INSERT INTO events SELECT 3, stream, 3, 2, type, 1, 1, 0, body, hash FROM events WHERE version = 2"
        )
        other.execute("DELETE FROM events WHERE version = 2")
        other.close()

    store = await SqlStore.open(SqliteDatabase(path, clock=SystemClock(), vfs=disk.name))
    await store.append(Write("run/1", [NOTE]))
    monkeypatch.setattr(SqliteDatabase, "recover", recover_too_late)
    disk.fault = DiskFault(apsw.SQLITE_IOERR, on=("committed",))
    if key is None:
        with pytest.raises(StoreUnavailable, match="compacted") as caught:
            await store.append(Write("run/1", [NOTE]))
        assert caught.value.written is None
    else:
        assert (await store.append(Write("run/1", [NOTE]), key=key))[:3] == (2, (2,), True)
    assert await store.version("run/1") == 3
    assert (await store.append(Write("run/1", [NOTE]))).version == 4
    await store.close()
