"""How long calls wait for a store that cannot be used at the moment, and the report of such an outage."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from maos.clock import Clock
from maos.tuples import NamedTuple

WAIT_S = 10.0
"""How long a call waits by default; engines wait without limit."""
REPORT_AFTER_S = 1.0
"""Shorter outages, such as one lost connection, are not reported."""
PAUSE_S, PAUSE_S_MAX = 0.05, 1.0
"""The pause between two attempts: twice as long each time, up to the maximum."""


class Outage(NamedTuple):
    """A time in which a store could not be used; reported when it has begun, and again when it is over."""

    place: str
    why: str
    since_us: int
    until_us: int = 0
    """When it was over; 0 while it lasts."""


class Patience:
    """How long the calls of one process wait while its store cannot be used.

    An engine waits without limit: if it gave up, its agents would continue without a record. Any other call waits for
    `wait_s` at most (None: without limit). Closing the store ends all waiting.
    """

    def __init__(self, place: str, clock: Clock, wait_s: float | None = WAIT_S) -> None:
        self._place = place
        self._clock = clock
        self._wait_s = wait_s
        self._engines = 0
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._outage: Outage | None = None
        self._began_s = 0.0
        self._is_reported = False
        self.report: Callable[[Outage], None] = lambda _outage: None
        """Called with each outage when it begins and when it is over; may be called in a thread."""

    @property
    def limit_s(self) -> float | None:
        """How long a call may wait now; None: without limit."""
        return None if self._engines else self._wait_s

    @property
    def is_away(self) -> bool:
        """Whether the last attempt to use the store failed."""
        return self._outage is not None

    @property
    def has_engine(self) -> bool:
        """Whether this process executes something."""
        return self._engines > 0

    def add_engine(self) -> None:
        """Wait without limit from now on, until `remove_engine`: this process executes something."""
        self._engines += 1

    def remove_engine(self) -> None:
        """Undo one `add_engine`."""
        self._engines -= 1

    def close(self) -> None:
        """End all waiting."""
        self._closed.set()

    def begin(self) -> RetryPauses:
        """Begin the attempts of one call."""
        return RetryPauses(self)

    def failed(self, why: str) -> None:
        """Note that an attempt failed; report the outage when it has lasted for a while."""
        with self._lock:
            now_s = time.monotonic()
            if self._outage is None:
                self._outage, self._began_s = Outage(self._place, why, self._clock.now_us()), now_s
            due = not self._is_reported and now_s - self._began_s >= REPORT_AFTER_S
            self._is_reported |= due
            outage = self._outage._replace(why=why)
        if due:
            self.report(outage)

    def worked(self) -> None:
        """Note that the store can be used; report that an outage is over."""
        if self._outage is None:
            return
        with self._lock:
            outage, self._outage = self._outage, None
            due, self._is_reported = self._is_reported, False
        if due and outage is not None:
            self.report(outage._replace(until_us=self._clock.now_us()))

    def is_over(self, waited_s: float) -> bool:
        """Return whether a call that has waited this long must give up."""
        limit_s = self.limit_s
        return self._closed.is_set() or (limit_s is not None and waited_s > limit_s)

    def sleep(self, pause_s: float) -> None:
        """Pause this thread; shorter when the store is closed."""
        self._closed.wait(pause_s)


class RetryPauses:
    """The growing pauses between the attempts of one call."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._began_s = time.monotonic()
        self._pause_s = PAUSE_S

    async def pause(self, why: str) -> bool:
        """Wait after a failed attempt; return False when the call must give up."""
        if not self._may_continue(why):
            return False
        await asyncio.sleep(self._pause_s)
        return self._next()

    def pause_thread(self, why: str) -> bool:
        """Do what `pause` does, in a thread of its own."""
        if not self._may_continue(why):
            return False
        self._patience.sleep(self._pause_s)
        return self._next()

    def _may_continue(self, why: str) -> bool:
        self._patience.failed(why)
        return not self._patience.is_over(time.monotonic() - self._began_s + self._pause_s)

    def _next(self) -> bool:
        self._pause_s = min(self._pause_s * 2, PAUSE_S_MAX)
        return not self._patience.is_over(0)
