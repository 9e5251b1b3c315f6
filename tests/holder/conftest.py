"""What the tests of holders share: a folder of attempts in which nothing is left alive."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from maos.holder import agent_process, client
from maos.holder.client import end, end_stray, holders, strays


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A folder for attempts. Whatever still runs in it at the end of the test is ended, by pid."""
    root = tmp_path / "attempts"
    root.mkdir()
    yield root

    async def end_all() -> None:
        for info in holders(root):
            if info.alive:
                await end(info)
        for stray in strays(root):
            await end_stray(stray)

    asyncio.run(end_all())
    agent_process.reap()


@pytest.fixture(autouse=True)
def measured_holders(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Holders count for coverage too, except where their size is measured."""
    if "COVERAGE_PROCESS_CONFIG" in os.environ and not getattr(request.module, "UNMEASURED", False):
        monkeypatch.setattr(client, "INTERPRETER", ())
        monkeypatch.setattr(client, "PASSED_ON", (*client.PASSED_ON, "COVERAGE_PROCESS_CONFIG"))
