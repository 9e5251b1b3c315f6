"""The tool calls of an agent: the variables of its MCP server (`maos mcp`), and the stream that records them.

The stream `tools/<agent>` has one event for each call of a tool that changed something, written in one append with what
it changed, so one is never there without the other.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in maos/__init__: a server that has not been called yet loads next to nothing
if TYPE_CHECKING:
    from maos.model.events.records import ToolCalled

NAME = "maos"
"""The name of this server among an agent's tool servers."""

DATABASE, SCHEMA, RUN, AGENT, ATTEMPT = "MAOS_DB", "MAOS_DB_SCHEMA", "MAOS_RUN", "MAOS_AGENT", "MAOS_ATTEMPT"
HOME = "MAOS_HOME"
"""Variables that name the agent of a server. Only the engine sets them; no argument of a tool can change them."""

DISCOVERIES_KEPT = 50


def stream(agent: str) -> str:
    """The stream of an agent's tool calls."""
    return f"tools/{agent}"


class Reports:
    """What an agent reported of itself: a fold of its tool calls."""

    def __init__(self) -> None:
        self.percent: float | None = None
        self.activity = ""
        self.discoveries: list[dict[str, str]] = []

    def apply(self, event: ToolCalled) -> None:
        """Fold one more event in."""
        if event.tool == "report_progress":
            self.percent, self.activity = event.arguments["percent"], event.arguments["activity"]
        elif event.tool == "report_discovery":
            found = {"keyword": event.arguments["keyword"], "text": event.arguments["text"]}
            self.discoveries = [*self.discoveries[1 - DISCOVERIES_KEPT :], found]
