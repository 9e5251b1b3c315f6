"""A clock that only moves when a test moves it, so that no test has to wait."""

from __future__ import annotations

from maos.clock import MICROSECONDS

START_US = 1_800_000_000 * MICROSECONDS


class ManualClock:
    """A `maos.clock.Clock` moved by hand."""

    def __init__(self, now_us: int = START_US) -> None:
        self._now_us = now_us
        self._steady_us = 0

    def now_us(self) -> int:
        return self._now_us

    def steady_us(self) -> int:
        return self._steady_us

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        self._now_us += int(seconds * MICROSECONDS)
        self._steady_us += int(seconds * MICROSECONDS)
