"""The only module that reads the machine's clocks.

Every decision uses a time from here or from the database, so a test can set it.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

MICROSECONDS = 1_000_000
LAST_US = 253_402_214_400 * MICROSECONDS
"""The last day of the year 9999 in every time zone: Python has no later time."""


class Clock(Protocol):
    """A source of wall-clock and of steadily growing time, both in microseconds."""

    def now_us(self) -> int: ...

    def steady_us(self) -> int: ...


class SystemClock:
    """The machine's own clocks."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def steady_us(self) -> int:
        return time.monotonic_ns() // 1000


def to_datetime(time_us: int) -> datetime:
    """Return a stored time as a datetime in UTC; the last one there is for a later time, which a program reported."""
    return datetime.fromtimestamp(min(time_us, LAST_US) / MICROSECONDS, tz=UTC)


def to_us(instant: datetime) -> int:
    """Return a datetime as a stored time; a naive one is local time, as in Python."""
    seconds = int(instant.timestamp())
    return seconds * MICROSECONDS + instant.microsecond
