"""What the tests of Claude Code share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.claude.stage import SlowTool


@pytest.fixture
def slow_tool(tmp_path: Path) -> Iterator[SlowTool]:
    """A tool that runs until it is let go; ended with the test, whatever became of its agent."""
    folder = tmp_path / "slow tool".replace(" ", "-")
    folder.mkdir()
    tool = SlowTool(folder)
    yield tool
    tool.end()
