"""The MCP server of an agent (`maos mcp`): how it knows whose it is, and what its calls are recorded as.

The stream `tools/<agent>` has one event for each call of a tool that changed something, written in one append with what
it changed, so one is never there without the other.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in maos/__init__: a door that nobody calls yet loads next to nothing
if TYPE_CHECKING:
    from maos.model.events.records import ToolCalled

NAME = "maos"
"""What the door is called among an agent's tool servers."""

DATABASE, SCHEMA, RUN, AGENT, ATTEMPT = "MAOS_DB", "MAOS_DB_SCHEMA", "MAOS_RUN", "MAOS_AGENT", "MAOS_ATTEMPT"
"""Variables that say whose door it is. Only the engine sets them; nothing a tool is given can change them."""

DISCOVERIES_KEPT = 50


def stream(agent: str) -> str:
    """The stream of what an agent did through its door."""
    return f"tools/{agent}"


class Reports:
    """What an agent reported of itself: a fold of its door's stream."""

    def __init__(self) -> None:
        self.percent: float | None = None
        self.activity = ""
        self.discoveries: list[dict[str, str]] = []

    def apply(self, event: ToolCalled) -> None:
        """Fold one more event in."""
        told = event.arguments
        if event.tool == "report_progress":
            self.percent, self.activity = told["percent"], told["activity"]
        elif event.tool == "report_discovery":
            found = {"keyword": told["keyword"], "text": told["text"]}
            self.discoveries = [*self.discoveries[1 - DISCOVERIES_KEPT :], found]
