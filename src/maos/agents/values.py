"""Values that agent programs print, read without trust: each as the type it should have, or as an empty value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

DEPTH_MAX = 40
"""Deeper data is kept as text; the journal takes a hundred levels, of which some are its own."""
LINE_DEPTH_MAX = 100
ID_CHARS_MAX = 200
"""Of ids and names that are kept between two lines, or repeated with each fact of a line."""

Object = Mapping[str, Any]


def decoded(line: bytes) -> dict[str, Any] | None:
    """The JSON object that a line is, or None; also when it is nested so deeply that handling it could fail."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if line.count(b"[") + line.count(b"{") > LINE_DEPTH_MAX and _deeper_than(value, LINE_DEPTH_MAX):
        return None
    return value if isinstance(value, dict) else None


def as_object(value: Any) -> Object:
    """The object it should be; an empty one when it is something else."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> Sequence[Any]:
    """The list it should be; an empty one when it is something else."""
    return value if isinstance(value, list) else []


def as_objects(value: Any) -> list[Object]:
    """The objects of a list; none when it is something else."""
    return [each for each in as_list(value) if isinstance(each, dict)]


def as_text(value: Any) -> str:
    """The text it should be; an empty one when it is something else."""
    return value if isinstance(value, str) else ""


def as_id(value: Any) -> str:
    """The id or the name it should be, without what is beyond any that a program gives."""
    return as_text(value)[:ID_CHARS_MAX]


def as_number(value: Any) -> float | None:
    """The number it should be; None when it is something else."""
    return (
        float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15 else None
    )


def as_count(value: Any) -> int:
    """The count it should be; 0 when it is something else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else 0


def storable(value: Any) -> Any:
    """The value as the journal can keep it: what is nested too deeply becomes text."""
    return as_json(value) if _deeper_than(value, DEPTH_MAX) else value


def as_json(value: Any) -> str:
    """The value as one line of JSON."""
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        return "[nested too deeply]"


def _deeper_than(value: Any, levels: int) -> bool:
    """Whether it is nested more deeply; compared level by level, so that no depth causes a RecursionError."""
    level = [value]
    for _ in range(levels):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        if not inner:
            return False
        level = inner
    return True
