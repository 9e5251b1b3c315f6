"""Lost ends: a journal that misses acknowledged events looks healthy from inside; the mark tells (I8)."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from maos.errors import HistoryLost
from maos.store.contract import Write
from maos.store.database import _LINE_BYTES
from tests.crash.promises import damage, events, everything
from tests.crash.stores import Abandoned, Place, copy_files

FRAME_BYTES = 24 + 4096
WAL_HEADER_BYTES = 32


async def truncated(abandoned: Abandoned, folder: Path, lengths: Iterable[int]) -> set[int]:
    """Cut the log to each length; what is left is a prefix, and a missing end is told. The positions left over."""
    wal = (abandoned.folder / "maos.db-wal").read_bytes()
    positions = set()
    for length in lengths:
        place = abandoned.copy(folder)
        place.path.with_name("maos.db-wal").write_bytes(wal[:length])
        error = await place.refusal()
        if error is None:
            async with place.open() as store:
                log = await everything(store)
                assert log == abandoned.log
        else:
            assert isinstance(error, HistoryLost)
            assert error.acknowledged == abandoned.ends[-1]
            assert error.hint
            assert length < abandoned.used + FRAME_BYTES
            async with place.open(accept_loss=True) as store:
                assert await damage(store) == []
                log = await everything(store)
                assert log == abandoned.log[: len(log)]
                assert len(log) == error.found
                assert any("opened although" in note for note in (await store.check()).notes)
                await store.append(Write("run/1", events("goes on")))
            async with place.open() as store:  # and now it is the truth
                assert await damage(store) == []
        assert len(log) in {0, *abandoned.ends}, "an append was left in part"
        positions.add(len(log))
    return positions


async def test_a_truncated_log_leaves_a_prefix_and_is_told(abandoned: Abandoned, tmp_path: Path) -> None:
    frames = range(WAL_HEADER_BYTES, abandoned.used + FRAME_BYTES, FRAME_BYTES)
    lengths = {0, 1, WAL_HEADER_BYTES - 1, frames[-1] + FRAME_BYTES // 2, *frames}
    lengths |= {frame + change for frame in frames[::4] for change in (-1, 1, 24)}
    lengths |= set(Random(3).sample(range(abandoned.used), 60))
    positions = await truncated(abandoned, tmp_path / "cut", sorted(lengths))
    assert positions == {0, *abandoned.ends}


@pytest.mark.soak
async def test_a_log_truncated_at_every_byte(abandoned: Abandoned, tmp_path: Path) -> None:
    assert await truncated(abandoned, tmp_path / "cut", range(abandoned.used + 1)) == {0, *abandoned.ends}


async def test_a_missing_log_is_told(abandoned: Abandoned, tmp_path: Path) -> None:
    place = abandoned.copy(tmp_path / "cut")
    place.path.with_name("maos.db-wal").unlink()
    with pytest.raises(HistoryLost):
        async with place.open():
            pass


async def test_an_older_copy_put_back_is_told(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    async with place.open() as store:
        await store.append(Write("run/1", events("first")))
        assert await store.copy_to(tmp_path / "backup") == 1
        await store.append(Write("run/1", events("second")))
    shutil.copyfile(tmp_path / "backup", place.path)
    with pytest.raises(HistoryLost, match="position 2 was acknowledged, but the journal ends at 1") as caught:
        async with place.open():
            pass
    assert (caught.value.acknowledged, caught.value.found) == (2, 1)
    async with place.open(accept_loss=True) as store:
        assert (await store.append(Write("run/1", events("another second")))).position == 2
    async with place.open() as store:
        assert await damage(store) == []
        assert (await store.check()).notes == ()


@pytest.mark.parametrize("longer", [False, True], ids=["as long", "longer"])
async def test_another_history_put_back_is_told(tmp_path: Path, longer: bool) -> None:
    """A copy that was worked on elsewhere is not shorter, only different."""
    here, there = Place(str(tmp_path / "here")), Place(str(tmp_path / "there"))
    Path(here.folder).mkdir()
    async with here.open() as store:
        await store.append(Write("run/1", events("first")))
    copy_files(Path(here.folder), Path(there.folder))
    for place, name in ((here, "here"), (there, "there")):
        async with place.open() as store:
            await store.append(Write("run/1", events(name)))
    if longer:
        async with there.open() as store:
            await store.append(Write("run/1", events("one more")))
    shutil.copyfile(there.path, here.path)
    with pytest.raises(HistoryLost, match="a different event is stored there"):
        async with here.open():
            pass


async def test_an_emptied_or_removed_database_is_told(abandoned: Abandoned, tmp_path: Path) -> None:
    for number, spoil in enumerate((lambda path: path.write_bytes(b""), lambda path: path.unlink())):
        place = abandoned.copy(tmp_path / str(number))
        place.path.with_name("maos.db-wal").unlink()
        spoil(place.path)
        with pytest.raises(HistoryLost, match="the journal ends at 0"):
            async with place.open():
                pass


async def test_a_refusal_changes_nothing(abandoned: Abandoned, tmp_path: Path) -> None:
    """Frames behind the damaged one may still be good: they stay for whoever can read them."""
    place = abandoned.copy(tmp_path / "cut")
    wal = place.path.with_name("maos.db-wal")
    spoilt = bytearray(wal.read_bytes())
    spoilt[abandoned.used // 2] ^= 1
    wal.write_bytes(spoilt)
    before = {file.name: file.read_bytes() for file in Path(place.folder).iterdir()}
    for _ in range(2):
        with pytest.raises(HistoryLost):
            async with place.open():
                pass
        after = {file.name: file.read_bytes() for file in Path(place.folder).iterdir()}
        assert {name: after[name] for name in before} == before


# --- the mark itself ----------------------------------------------------------------------------------------------


def spoilt_marks(mark: bytes) -> dict[str, bytes | None]:
    """Marks that say nothing any more."""
    return {
        "missing": None,
        "empty": b"",
        "zeros": bytes(len(mark)),
        "noise": Random(1).randbytes(len(mark)),
        "flipped": bytes(byte ^ 4 for byte in mark),
        "short": mark[: _LINE_BYTES - 1],
        "long": b"x" * 100_000,
    }


async def test_a_spoilt_mark_is_told_and_does_no_harm(abandoned: Abandoned, tmp_path: Path) -> None:
    for name, content in spoilt_marks((abandoned.folder / "maos.db-head").read_bytes()).items():
        place = abandoned.copy(tmp_path / "spoilt")
        place.mark.unlink()
        if content is not None:
            place.mark.write_bytes(content)
        async with place.open() as store:
            assert any(str(place.mark) in note for note in (await store.check()).notes), name
            assert await everything(store) == abandoned.log
        await mark_works(place)


async def test_a_mark_that_cannot_be_used_is_told_and_does_no_harm(abandoned: Abandoned, tmp_path: Path) -> None:
    place = abandoned.copy(tmp_path / "spoilt")
    place.mark.unlink()
    place.mark.mkdir()
    async with place.open() as store:
        assert any(str(place.mark) in note for note in (await store.check()).notes)
        await store.append(Write("run/1", events("no mark, no matter")))
    place.mark.rmdir()
    async with place.open() as store:
        assert await damage(store) == []
    await mark_works(place)


async def mark_works(place: Place) -> None:
    """The next loss is noticed again."""
    async with place.open() as store:
        assert (await store.check()).notes == ()
        head = (await store.append(Write("run/1", events("marked")))).position
        mark = place.mark.read_bytes()
    async with place.open() as store:
        assert (await store.check()).notes == ()
    assert b"%020d" % head in mark


async def test_a_torn_mark_leaves_the_one_before(abandoned: Abandoned, tmp_path: Path) -> None:
    """Either of the two lines torn at any byte: opening works, and a lost end is told if the other line knows it."""
    whole = (abandoned.folder / "maos.db-head").read_bytes()
    assert len(whole) == 2 * _LINE_BYTES
    for torn_line in (0, 1):
        for at in range(0, _LINE_BYTES, 7):
            start = torn_line * _LINE_BYTES
            content = whole[: start + at] + b"\xff" * (_LINE_BYTES - at) + whole[start + _LINE_BYTES :]
            place = abandoned.copy(tmp_path / "torn")
            place.mark.write_bytes(content)
            async with place.open() as store:
                assert (await store.check()).notes == ()
                assert await everything(store) == abandoned.log
            place = abandoned.copy(tmp_path / "torn")
            place.mark.write_bytes(content)
            place.path.with_name("maos.db-wal").write_bytes(b"")
            with pytest.raises(HistoryLost):
                async with place.open():
                    pass


async def test_a_mark_is_never_ahead_of_what_is_acknowledged(tmp_path: Path) -> None:
    """Read after each acknowledgement, it names that very position."""
    place = Place(str(tmp_path))
    async with place.open() as store:
        for number in range(1, 6):
            await store.append(Write("run/1", events(f"{number}")))
            assert b"%020d" % number in place.mark.read_bytes()
            assert b"%020d" % (number + 1) not in place.mark.read_bytes()
