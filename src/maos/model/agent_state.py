"""What an agent can be, as seen from this machine."""

from __future__ import annotations

from enum import StrEnum


class AgentState(StrEnum):
    """How an agent is: its recorded status, unless the processes that it names have exited."""

    PLANNED = "planned"
    RUNNING = "running"
    STOPPING = "stopping"
    DETACHED = "detached"
    """The agent works, and its holder keeps the output until an engine attaches. `maos agent attach`, or `maos resume`.
    """
    INTERRUPTED = "interrupted"
    """The agent has exited, and so has the engine that recorded it. `maos agent resume`, or `maos resume`."""
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_open(self) -> bool:
        """Whether its attempt has no recorded end."""
        return self not in (AgentState.DONE, AgentState.FAILED, AgentState.STOPPED)

    @property
    def meaning(self) -> str:
        """What a person should know of it; empty where the word says everything."""
        return _MEANINGS.get(self, "")


_MEANINGS = {
    AgentState.PLANNED: "about to start",
    AgentState.DETACHED: "the agent keeps running, and its output is kept until an engine attaches",
    AgentState.INTERRUPTED: "the agent has exited, and so has the engine that recorded it",
}
