"""The tool calls of an agent: the variables of its MCP server (`maos mcp`), and the stream that records them.

The stream `tools/<agent>` has one event for each call of a tool that changed something, written in one append with what
it changed, so one is never there without the other.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in maos/__init__: a server that has not been called yet loads next to nothing
if TYPE_CHECKING:
    from maos.model.events.facts import Discovery
    from maos.model.events.records import ToolCalled

NAME = "maos"
"""The name of this server among an agent's tool servers."""

DATABASE, SCHEMA, HOME = "MAOS_DB", "MAOS_DB_SCHEMA", "MAOS_HOME"
"""Variables of a server that name the database."""
ATTEMPT, SECRET = "MAOS_ATTEMPT", "MAOS_ATTEMPT_SECRET"
"""Variables of an agent's process and its server: the id of the attempt, and the secret that proves it. Which agent and
run that is, the journal says."""
RUN = "MAOS_RUN"
"""The variable of a server that says whether the tools for runs are listed; it proves nothing."""

DISCOVERIES_KEPT = 50


def stream(agent: str) -> str:
    """The stream of an agent's tool calls."""
    return f"tools/{agent}"


class Reports:
    """What an agent reported of itself: a fold of its tool calls."""

    def __init__(self) -> None:
        self.percent: float | None = None
        self.activity = ""
        self.discoveries: list[Discovery] = []

    def apply(self, event: ToolCalled) -> None:
        """Fold one more event in."""
        if event.tool == "report_progress":
            self.percent, self.activity = event.arguments["percent"], event.arguments["activity"]
        elif found := discovery(event):
            self.discoveries = [*self.discoveries[1 - DISCOVERIES_KEPT :], found]


def discovery(event: ToolCalled) -> Discovery | None:
    """What an agent reported as a discovery with a call; None for any other call."""
    from maos.model.events.facts import Discovery

    if event.tool != "report_discovery":
        return None
    return Discovery(keyword=event.arguments["keyword"], text=event.arguments["text"])
