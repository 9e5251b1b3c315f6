"""What an agent asks to be allowed to do, and for what a rule about it counts."""

from __future__ import annotations

from maos.tuples import NamedTuple

SHELL = "Bash"
"""What rules call the tool that runs a command of the shell, whatever an agent's program calls it."""
AGENT, RUN, PROJECT = "agent", "run", "project"
SCOPES = (AGENT, RUN, PROJECT)
"""For what a rule counts: one agent, all agents of a run, or all agents that work on a project of this user."""


class ToolRequest(NamedTuple):
    """What an agent asks to be allowed to do."""

    tool: str
    """What rules call the tool; empty when no rule can name it."""
    command: str = ""
    """The command that it would run; empty for a tool that runs none, or when its program does not say which."""
