"""The table of what ACP agents can do is what tests/agents_large/test_acp_agents.py has observed."""

from collections.abc import Callable
from pathlib import Path

from tests.conftest import GOLDEN

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "run-an-acp-agent.md"
HEAD = "|---|---|---|---|---|\n"


def test_the_table_is_what_was_observed(golden: Callable[[str, str], None]) -> None:
    """`make golden` writes the rows into the page."""
    before, head, after = PAGE.read_text().partition(HEAD)
    assert head, "the table is missing"
    rows = [path.read_text() for path in sorted((GOLDEN / "acp").glob("*.txt"))]
    rest = after[after.index("\n\n") + 1 :]
    golden("../../docs/howto/run-an-acp-agent.md", before + head + "".join(rows) + rest)
