"""Journals to send through: in a file, in memory, in PostgreSQL."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import maos
from maos.app import Maos
from maos_testing.manual_clock import ManualClock


@pytest.fixture(params=["sqlite", "postgres", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the journal of this test is."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    if request.param == "postgres":
        url: str = request.getfixturevalue("postgres_url")
        return url
    return ":memory:" if request.param == "memory" else str(tmp_path / "maos.db")


@pytest.fixture
async def m(place: str) -> AsyncIterator[Maos]:
    """An open journal."""
    async with maos.open(place) as opened:
        yield opened


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still until it is moved."""
    return ManualClock()


@pytest.fixture
async def still(clock: ManualClock) -> AsyncIterator[Maos]:
    """An open journal in memory, whose time stands still."""
    async with maos.open(":memory:", clock=clock) as opened:
        yield opened
