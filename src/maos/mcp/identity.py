"""Whose door this is: taken from variables that the engine set, never from what the agent says."""

from __future__ import annotations

from maos.model import tool_calls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH")


class AgentIdentity:
    """An agent, in an attempt, in a run or in none."""

    __slots__ = ("agent", "attempt", "database", "run", "schema", "secrets")

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.database = environment.get(tool_calls.DATABASE, "")
        self.schema = environment.get(tool_calls.SCHEMA, "")
        self.run = environment.get(tool_calls.RUN, "")
        self.agent = environment.get(tool_calls.AGENT, "")
        self.attempt = environment.get(tool_calls.ATTEMPT, "")
        # Agents' programs hand their own variables on to us, their keys too: by value they never get into the journal.
        self.secrets = {name: value for name, value in environment.items() if _may_be_secret(name)}

    def missing(self) -> list[str]:
        """Variables without which it is nobody's door."""
        told = {tool_calls.DATABASE: self.database, tool_calls.AGENT: self.agent, tool_calls.ATTEMPT: self.attempt}
        return [name for name, value in told.items() if not value]


def _may_be_secret(name: str) -> bool:
    return any(word in name.upper() for word in _SECRET_WORDS)
