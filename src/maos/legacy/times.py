"""When something happened, from the two ways in which the original writes it down."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from maos.clock import to_us


def from_text(value: Any) -> int:
    """The time in microseconds; 0 when there is none.

    SQLite wrote those with a space between date and time, in UTC; Python those with a T, in the time zone of its
    machine, which is taken to be ours.
    """
    if not isinstance(value, str):
        return 0
    try:
        found = datetime.fromisoformat(value)
        if found.tzinfo is None and "T" not in value:
            found = found.replace(tzinfo=UTC)
        return max(0, to_us(found))
    except (ValueError, OverflowError, OSError):
        return 0
