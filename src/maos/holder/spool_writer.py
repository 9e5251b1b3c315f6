"""Writes records to the spool, syncs them in groups, and retries while the disk refuses writes."""

from __future__ import annotations

import os
from time import monotonic

from maos.holder.machine import now_us
from maos.holder.spool import Spool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SYNC_AFTER_S = 0.05
"""Output is synced when no engine has confirmed it for this long."""
SYNC_SHARE = 10
"""Syncing takes at most about 1/10 of the time on an overloaded disk..."""
SYNC_PAUSE_S_MAX = 1.0
"""...but no record waits longer than this for a sync."""
RETRY_S = 0.25
"""The interval between attempts to write to a disk that refuses writes."""


class SpoolWriter:
    """Writes to the spool, and keeps the records that could not be written yet."""

    def __init__(self, spool_bytes_max: int, report: Callable[[str], None]) -> None:
        self.spool = Spool()
        self.trouble = ""
        """Why the disk refuses writes; empty when it accepts them."""
        self._spool_bytes_max = spool_bytes_max
        self._report = report
        self._unwritten: list[tuple[int, int, int, bytes]] = []
        self._sync_at: float | None = None
        self._sync_mark = 0
        """The end of the spool when the sync was scheduled; no sync is needed if all before it is confirmed by then."""
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
        """Return when the next sync and the next retry are due; None: not at all."""
        return self._sync_at, self._retry_at

    def record(self, kind: int, flags: int, data: bytes) -> None:
        """Write a record; if the disk refuses it, keep it and retry later."""
        entry = (kind, flags, now_us(), data)
        if self._unwritten:
            self._unwritten.append(entry)
            return
        try:
            self.spool.append(*entry)
        except OSError as error:
            self._unwritten.append(entry)
            self._retry_after(error)
            return
        if self._sync_at is None:
            self._sync_later(monotonic())

    def sync(self) -> None:
        """Sync the spool now; if that fails, `safe` stays False and it is retried."""
        try:
            self.spool.sync()
        except OSError as error:
            self._retry_after(error)

    def run_due(self, now: float) -> None:
        """Sync or retry, if it is time to."""
        if self._retry_at is not None and now >= self._retry_at:
            self._retry_at = None
            self._retry()
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

    def _retry(self) -> None:
        try:
            while self._unwritten:
                self.spool.append(*self._unwritten[0])
                del self._unwritten[0]
            self.spool.sync()
        except OSError as error:
            self._retry_after(error)
            return
        if self.trouble:
            self.trouble = ""
            self._report("")

    def _retry_after(self, error: OSError) -> None:
        self._retry_at = monotonic() + RETRY_S
        trouble = f"the spool cannot be written: {os.strerror(error.errno or 0)}"
        if trouble != self.trouble:
            self.trouble = trouble
            self._report(trouble)
