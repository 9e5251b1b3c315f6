"""Engines on a database and a home of the test's own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import maos
from maos.app import Maos
from tests.engine.conftest import home, m  # noqa: F401


@pytest.fixture
async def engine_m(tmp_path: Path, home: Path) -> AsyncIterator[Maos]:  # noqa: F811
    """An open journal with an engine, where the module has a journal of its own under the usual name."""
    async with maos.open(tmp_path / "engine.db", home=home) as opened:
        yield opened
