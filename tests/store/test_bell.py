"""Wake-ups between processes on one SQLite file: each is woken by the streams that it waits for, and by no others."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from maos.store.sqlite_file import WANTED_MAX, Bell


class Waiter:
    """A process that waits: how often it was woken."""

    def __init__(self, folder: Path) -> None:
        self.woken = 0
        self.bell = Bell(folder)
        self.bell.listen(self._wake)

    def _wake(self) -> None:
        self.woken += 1

    async def rung(self, by: Bell, *streams: str) -> bool:
        """Whether an append to these streams wakes it."""
        before = self.woken
        by.ring(streams)
        await asyncio.sleep(0.02)  # the pipe is readable at once, and the loop looks at it in its next turn
        return self.woken > before


@pytest.fixture
async def waiter(tmp_path: Path) -> AsyncIterator[Waiter]:
    found = Waiter(tmp_path / "wake")
    yield found
    found.bell.close()


@pytest.fixture
async def writer(tmp_path: Path) -> AsyncIterator[Bell]:
    bell = Bell(tmp_path / "wake")
    yield bell
    bell.close()


async def test_a_process_that_waits_for_streams_is_woken_by_them_alone(waiter: Waiter, writer: Bell) -> None:
    assert await waiter.rung(writer, "run/1"), "at first it waits for everything"
    waiter.bell.want(frozenset({"run/1", "inbox/ä"}))
    assert not await waiter.rung(writer, "run/2", "attempt/run/1")
    assert await waiter.rung(writer, "run/2", "inbox/ä")
    assert await waiter.rung(writer, "run/1")
    waiter.bell.want(frozenset({"run/2"}))
    assert not await waiter.rung(writer, "run/1")
    assert await waiter.rung(writer, "run/2")
    waiter.bell.want(None)
    assert await waiter.rung(writer, "anything")


async def test_one_that_waits_for_many_streams_is_woken_by_all(waiter: Waiter, writer: Bell) -> None:
    waiter.bell.want(frozenset(f"run/{number}" for number in range(WANTED_MAX + 1)))
    assert await waiter.rung(writer, "anything")


async def test_a_muted_one_is_not_woken_and_not_late_afterwards(waiter: Waiter, writer: Bell) -> None:
    """What was committed meanwhile is for its own look at the journal, which follows."""
    waiter.bell.mute()
    assert not await waiter.rung(writer, "a")
    waiter.bell.unmute()
    await asyncio.sleep(0.02)
    assert waiter.woken == 0
    assert await waiter.rung(writer, "a")


async def test_a_name_that_says_nothing_readable_means_everything(tmp_path: Path, waiter: Waiter, writer: Bell) -> None:
    (own,) = (tmp_path / "wake").iterdir()
    own.rename(own.with_name(f"{own.name}=not-a-number"))
    assert await waiter.rung(writer, "a")


async def test_pipes_are_removed_under_the_name_they_have_last(tmp_path: Path, writer: Bell) -> None:
    waiter = Waiter(tmp_path / "wake")
    waiter.bell.want(frozenset({"a"}))
    assert len(list((tmp_path / "wake").iterdir())) == 1
    waiter.bell.close()
    assert not (tmp_path / "wake").exists()
