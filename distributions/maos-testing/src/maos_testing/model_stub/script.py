"""Scripts of the stub: steps and faults, as Python values or JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

DEFAULT = "default"
"""The script of conversations that name none."""


class TokenCount(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The usage that a reply reports."""

    input: int = 100
    output: int = 10
    cache_read: int = 0
    cache_write: int = 0


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call of the model."""

    name: str
    input: Any = {}
    """A dictionary; a plain string makes it a free-form call, which only the Responses API has."""
    namespace: str = ""
    """The group of the tool, for the Responses API."""


class ScriptFault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault that replaces the reply `times` times before the step is answered correctly.

    `status` is an HTTP error; `drop` cuts the connection and `hang` falls silent in the middle of the reply; `error`
    ends the stream with an error event. The counting is the stub's own: a stub that is restarted begins anew.
    """

    kind: Literal["status", "drop", "hang", "error"] = "status"
    status: int = 500
    times: int = 1
    """0: every time."""
    retry_after_s: float | None = None
    message: str = ""
    headers: dict[str, str] = {}
    after_chars: int | None = None
    """How much of the reply comes before a drop, a hang or an error; half of it when not given."""


class ScriptStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One reply of the model."""

    text: str = ""
    thought: str = ""
    calls: Sequence[ToolCall] = ()
    careful: Sequence[ToolCall] = ()
    """Calls instead of these if the agent was told that tool calls were completed, or that their outcome is unknown: a
    careful model checks first, and repeats nothing that was done."""
    tokens: TokenCount = TokenCount()
    wait_s: float = 0.0
    """Silence before the first byte."""
    delay_s: float = 0.0
    """Silence before each chunk of text."""
    chunk_chars: int = 24
    faults: Sequence[ScriptFault] = ()
    stop_reason: str = ""
    """The stop reason, if it is not the ordinary one; Messages API only."""

    def fault(self, tries: int) -> ScriptFault | None:
        """Return the fault at this attempt (counted from 0); None when there is none."""
        for fault in self.faults:
            if fault.times == 0 or tries < fault.times:
                return fault
            tries -= fault.times
        return None


Scripts = Mapping[str, Sequence[ScriptStep]]


def read_scripts(data: bytes) -> dict[str, Sequence[ScriptStep]]:
    """Read scripts from JSON: a list of steps, or an object of such lists by name."""
    try:
        return as_scripts(msgspec.json.decode(data, type=list[ScriptStep] | dict[str, list[ScriptStep]]))
    except msgspec.DecodeError as error:
        raise ValueError(f"not a script for the model stub: {error}") from None


def as_scripts(scripts: Scripts | Sequence[ScriptStep]) -> dict[str, Sequence[ScriptStep]]:
    """Return scripts by name; a list alone is the default script."""
    return dict(scripts) if isinstance(scripts, Mapping) else {DEFAULT: scripts}
