"""langgraph's graph loop, messages in a DeltaChannel (beta), over SqliteSaver: one superstep per update.

`durability="sync"`, so that a step is on disk before the next one starts; the default writes behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks.workload import Message, State

THREAD: Any = {"thread_id": "reviewer"}


def extend(messages: list[Message], writes: Sequence[list[Message]]) -> list[Message]:
    """The reducer: all messages in one list."""
    return [*messages, *(message for write in writes for message in write)]


class Agent(TypedDict):
    """The state: what changes seldom as plain channels, the long list as deltas."""

    status: str
    step: int
    model: str
    messages: Annotated[list[Message], DeltaChannel(extend)]


def plain(messages: list[Message]) -> list[Message]:
    """The messages with the role under another name, so that langgraph leaves them as they are.

    It turns dictionaries with a role and a content into message objects, which take longer to load.
    """
    return [{"author" if key == "role" else key: value for key, value in m.items()} for m in messages]


class Loop:
    """A graph of one node that says its next message and goes round until it has said all."""

    def __init__(self, saver: SqliteSaver | None = None) -> None:
        self._script: list[Message] = []
        graph = StateGraph(Agent)
        graph.add_node("agent", self._say)
        graph.add_edge(START, "agent")
        graph.add_conditional_edges("agent", self._next)
        self.graph: Any = graph.compile(checkpointer=saver)

    def _say(self, state: Agent) -> dict[str, Any]:
        step = state["step"]
        if step >= len(self._script):  # the round that only stores the initial state
            return {"status": "idle"}
        return {"status": "busy", "step": step + 1, "messages": [self._script[step]]}

    def _next(self, state: Agent) -> str:
        return "agent" if state["step"] < len(self._script) else END

    def start(self, state: State) -> None:
        """Store the initial state."""
        self._invoke(state)

    def grow(self, messages: list[Message]) -> None:
        """One durable superstep per message."""
        self._script = messages
        self._invoke({"status": "busy"})

    def _invoke(self, value: dict[str, Any]) -> None:
        config = {"configurable": THREAD, "recursion_limit": len(self._script) + 10}
        self.graph.invoke(value, config, durability="sync")

    def close(self) -> None:
        """Close the file."""
        self.graph.checkpointer.conn.close()

    def newest(self, saver: SqliteSaver) -> State:
        """The newest state, through a saver that has just been opened."""
        self.graph.checkpointer = saver
        values: State = self.graph.get_state({"configurable": THREAD}).values
        return values
