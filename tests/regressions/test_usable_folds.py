"""Saved folds: whatever else happens while they are saved, the next process can use them (I17)."""

from pathlib import Path

import pytest

import maos
from maos.app import Maos
from maos.state import folds


@pytest.fixture(autouse=True)
def frequent_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fold every few updates, of lists that are long soon."""
    monkeypatch.setattr(folds, "FOLD_EVERY", 8)
    monkeypatch.setattr(folds, "FOLD_COSTLY_EVERY", 8)
    monkeypatch.setattr(folds, "LONG_LIST", 2)


async def grow(m: Maos, count: int) -> None:
    """Add some items to the list, having read it."""
    await m.state.get("a")
    for number in range(count):
        await m.state.update("a", {"list": maos.Extend([number])})


async def unusable(path: Path) -> list[str]:
    """What a new process says of the folds it finds."""
    async with maos.open(path) as m:
        await m.state.get("a")
        return m.journal.notes


async def test_a_repeated_key_saves_no_fold_and_knows_it(tmp_path: Path) -> None:
    """The fold that was due with the repeated append counted as saved; all later ones built on its segments."""
    path = tmp_path / "maos.db"
    async with maos.open(path) as m:
        await m.state.create("a", {"list": []})
        await m.state.update("a", {"done": True}, key="once")
        await grow(m, folds.FOLD_EVERY - 2)
        assert (await m.state.update("a", {"done": True}, key="once")).version == 2
        await grow(m, 3 * folds.FOLD_EVERY)
    assert await unusable(path) == []


async def test_processes_that_take_turns_do_not_spoil_one_anothers_folds(tmp_path: Path) -> None:
    """Each built on segments it had written, although the other's had taken their place."""
    path = tmp_path / "maos.db"
    async with maos.open(path) as one, maos.open(path) as two:
        await one.state.create("a", {"list": []})
        for _turn in range(12):
            await grow(one, 5)
            await grow(two, 5)
            assert await unusable(path) == []
