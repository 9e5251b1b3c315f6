"""Two machines: journals, homes and repositories that know nothing of each other."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import maos
from maos.app import Maos
from tests.engine.conftest import home  # noqa: F401
from tests.transfer import runs


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Maos]:
    """The machine that a run is made on; nothing needs to outlive the test."""
    async with maos.open(":memory:", home=tmp_path / "here") as opened:
        yield opened


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[Maos]:
    """The one that it goes to."""
    async with maos.open(":memory:", home=tmp_path / "there") as opened:
        yield opened


@pytest.fixture
async def bundle(here: Maos) -> bytes:
    """A run with a little of everything."""
    await runs.write(here)
    return await runs.exported(here)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where work goes on there: a plain folder."""
    path = tmp_path / "work"
    path.mkdir()
    return path
