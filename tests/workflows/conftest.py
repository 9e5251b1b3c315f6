"""Engines that come and go on one database of the test's own."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

import maos
from maos.app import Maos
from maos.workflows import record
from maos_testing.manual_clock import ManualClock
from tests.engine.conftest import home  # noqa: F401

Engine = Callable[[], AbstractAsyncContextManager[Maos]]


@pytest.fixture
def engine(tmp_path: Path, home: Path) -> Engine:  # noqa: F811
    """Opens the database once more: whatever ran in the engine before was let go of when that closed."""
    return partial(maos.open, tmp_path / "maos.db", home=home)


@pytest.fixture
async def m(home: Path) -> AsyncIterator[Maos]:  # noqa: F811
    """One engine for the whole test, in memory, where nothing has to outlive it."""
    async with maos.open(":memory:", home=home) as opened:
        yield opened


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """A clock that only the test moves; sleepers look at it often."""
    monkeypatch.setattr(record, "NAP_S_MAX", 0.001)
    return ManualClock()


@pytest.fixture
def timed(tmp_path: Path, home: Path, clock: ManualClock) -> Engine:  # noqa: F811
    """As `engine`, going by that clock."""
    return partial(maos.open, tmp_path / "maos.db", home=home, clock=clock)
