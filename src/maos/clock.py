"""The only module that reads the machine's clocks.

Every decision uses a time from here or from the database, so a test can set it.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

MICROSECONDS = 1_000_000


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
    """Return a stored time as a datetime in UTC."""
    return datetime.fromtimestamp(time_us / MICROSECONDS, tz=UTC)


def to_us(instant: datetime) -> int:
    """Return a datetime as a stored time; a naive one is local time, as in Python."""
    seconds = int(instant.timestamp())
    return seconds * MICROSECONDS + instant.microsecond
