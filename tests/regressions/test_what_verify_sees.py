"""Verification: nothing missing goes unseen, nothing stored stops it, and notes do not pile up (I7, I11)."""

from pathlib import Path

import apsw
import msgspec
import pytest

import maos
from maos.journal import journal
from maos.store.contract import RawEvent, Write


async def test_events_of_a_stream_without_a_name_are_missed(tmp_path: Path) -> None:
    """I7: the name of a stream was gone, its events could not be read, and all was said to be well."""
    async with maos.open(tmp_path / "maos.db") as m:
        await m.state.create("kept")
        await m.state.create("lost")
    connection = apsw.Connection(str(tmp_path / "maos.db"))
    connection.execute("DELETE FROM streams WHERE name = 'agent/lost'")
    connection.close()
    async with maos.open(tmp_path / "maos.db") as m:
        report = await m.verify()
    assert [each.what for each in report.damage] == ["2 versions were written, 1 are there"]


@pytest.mark.parametrize("replaced", [[1], [{}], [{"last": "x", "first": 1}], [{"last": [], "first": []}]])
async def test_data_that_looks_like_a_compaction_does_not_stop_it(tmp_path: Path, replaced: list[object]) -> None:
    """I11: an ordinary append of somebody's own data made every verification end with a TypeError."""
    async with maos.open(tmp_path / "maos.db") as m:
        with pytest.raises(maos.InvalidInput, match="event compacted: "):
            await m.journal.append("run/1", maos.Event("compacted", {"ops": [], "replaced": replaced}))
        body = msgspec.json.encode({"ops": [], "replaced": replaced})
        await m.journal.store.append(Write("run/1", [RawEvent("compacted", 1, body)]))
        [damage] = (await m.verify()).damage
        assert "run/1@1 cannot be decoded" in damage.what


async def test_the_same_trouble_is_noted_once() -> None:
    """A damaged snapshot added a note with every look at the list of snapshots, for as long as the process lived."""
    async with maos.open(":memory:") as m:
        for _ in range(3):
            m.journal.notes.append("the same")
        for number in range(journal.NOTES_MAX):
            m.journal.notes.append(f"note {number}")
        assert m.journal.notes == [f"note {number}" for number in range(journal.NOTES_MAX)]
