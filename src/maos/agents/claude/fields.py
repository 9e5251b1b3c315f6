"""Fields of messages that may be anything: each is read as what it should be, or as nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from maos.agents.values import as_json

DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
COUNT_MAX = 1 << 53


def as_str(message: dict[str, Any], name: str) -> str:
    """A text, or an empty one."""
    value = message.get(name)
    return value if isinstance(value, str) else ""


def as_int(message: dict[str, Any], name: str) -> int:
    """A count, or 0."""
    value = message.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value <= COUNT_MAX else 0


def as_float(message: dict[str, Any], name: str) -> float:
    """An amount, or 0."""
    value = message.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 <= value <= COUNT_MAX else 0.0


def as_dict(message: dict[str, Any], name: str) -> dict[str, Any]:
    """An object, or an empty one."""
    value = message.get(name)
    return value if isinstance(value, dict) else {}


def as_list(message: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The objects of a list."""
    value = message.get(name)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def output_text(content: Any) -> str:
    """What a tool gave, as text; what is no text is named."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else as_json(content)
    parts = []
    for block in content:
        if isinstance(block, dict):
            parts.append(as_str(block, "text") or f"[{as_str(block, 'type') or 'something'}]")
    return "\n".join(parts)
