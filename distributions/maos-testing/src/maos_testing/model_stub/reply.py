"""Parts of a reply that the APIs have in common."""

from __future__ import annotations

from typing import Any, NamedTuple

from maos_testing.model_stub.script import ScriptStep


class Turn(NamedTuple):
    """One turn of the model that is to be sent."""

    id: str
    model: str
    step: ScriptStep


class StreamEvent(NamedTuple):
    """One server-sent event."""

    name: str
    data: dict[str, Any]
    chars: int = 0
    """How much of the reply it has; 0 for events of the protocol."""


def chunks(text: str, step: ScriptStep) -> list[str]:
    """Split a text into the pieces in which it is streamed."""
    size = max(1, step.chunk_chars)
    return [text[start : start + size] for start in range(0, len(text), size)]
