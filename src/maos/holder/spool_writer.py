"""Puts records into the spool, in groups onto the disk, and waits out a disk that takes nothing."""

from __future__ import annotations

import os
from time import monotonic

from maos.holder.machine import now_us
from maos.holder.spool import Spool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SYNC_AFTER_S = 0.05
"""Output that no engine has confirmed for so long is synced."""
SYNC_SHARE = 10
"""And syncing takes at most about this part of the time: 1/10, on a disk with too much to do..."""
SYNC_PAUSE_S_MAX = 1.0
"""...but nothing waits longer than this for it."""
RETRY_S = 0.25
"""How often a disk that does not take our records is tried again."""


class SpoolWriter:
    """The spool, and what could not be written to it yet."""

    def __init__(self, spool_bytes_max: int, tell: Callable[[str], None]) -> None:
        self.spool = Spool()
        self.trouble = ""
        """Why the disk takes nothing; empty when it does."""
        self._spool_bytes_max = spool_bytes_max
        self._tell = tell
        self._unwritten: list[tuple[int, int, int, bytes]] = []
        self._sync_at: float | None = None
        self._sync_mark = 0
        """What was there when that time was set; if it is all confirmed by then, no sync is needed."""
        self._retry_at: float | None = None

    @property
    def has_room(self) -> bool:
        """Whether more of the agent's output may be read."""
        return not self.trouble and self.spool.kept_bytes < self._spool_bytes_max

    @property
    def safe(self) -> bool:
        """Whether everything that was recorded is on disk."""
        return not self._unwritten and self.spool.synced >= self.spool.end

    def times(self) -> tuple[float | None, float | None]:
        """When `do_what_is_due` has something to do."""
        return self._sync_at, self._retry_at

    def record(self, kind: int, flags: int, data: bytes) -> None:
        """Write a record, at the latest when the disk works again."""
        entry = (kind, flags, now_us(), data)
        if self._unwritten:
            self._unwritten.append(entry)
            return
        try:
            self.spool.append(*entry)
        except OSError as error:
            self._unwritten.append(entry)
            self._in_trouble(error)
            return
        if self._sync_at is None:
            self._sync_later(monotonic())

    def sync(self) -> None:
        """Put everything onto the disk now, unless that fails; see `safe`."""
        try:
            self.spool.sync()
        except OSError as error:
            self._in_trouble(error)

    def do_what_is_due(self, now: float) -> None:
        """Sync, or try again."""
        if self._retry_at is not None and now >= self._retry_at:
            self._retry_at = None
            self._try_again()
        if self._sync_at is not None and now >= self._sync_at:
            self._sync_at = None
            if self.spool.confirmed >= self._sync_mark:
                if self.spool.confirmed < self.spool.end:
                    self._sync_later(now)
            else:
                self.sync()
                pause_s = min(SYNC_PAUSE_S_MAX, (monotonic() - now) * SYNC_SHARE)
                if pause_s > SYNC_AFTER_S:
                    self._sync_later(now + pause_s)

    def _sync_later(self, now: float) -> None:
        self._sync_at = now + SYNC_AFTER_S
        self._sync_mark = self.spool.end

    def _try_again(self) -> None:
        try:
            while self._unwritten:
                self.spool.append(*self._unwritten[0])
                del self._unwritten[0]
            self.spool.sync()
        except OSError as error:
            self._in_trouble(error)
            return
        if self.trouble:
            self.trouble = ""
            self._tell("")

    def _in_trouble(self, error: OSError) -> None:
        self._retry_at = monotonic() + RETRY_S
        trouble = f"the spool cannot be written: {os.strerror(error.errno or 0)}"
        if trouble != self.trouble:
            self.trouble = trouble
            self._tell(trouble)
