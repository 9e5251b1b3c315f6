"""The spool: segment files in which a holder keeps records until an engine has confirmed them.

A segment is named by the offset of its first byte, and deleted as a whole. Offsets only grow and are never reused, even
when everything before them has been deleted. Records are synced in groups, and kept in memory while the disk refuses
them.
"""

from __future__ import annotations

import os
from time import CLOCK_REALTIME, clock_gettime_ns, monotonic

from maos.holder.wire import HEADER, HEADER_BYTES, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SEGMENT_BYTES = 4 << 20
SUFFIX = ".spool"
SYNC_AFTER_S = 0.05
"""Output is synced when no engine has confirmed it for this long."""
SYNC_SHARE = 10
"""Syncing takes at most about 1/10 of the time on an overloaded disk..."""
SYNC_PAUSE_S_MAX = 1.0
"""...but no record waits longer than this for a sync."""
RETRY_S = 0.25
"""The interval between attempts to write to a disk that refuses writes."""
_SCAN_BYTES = 64 << 10


def now_us() -> int:
    """Return the time of day. Importing `maos.clock` would double the size of the holder."""
    return clock_gettime_ns(CLOCK_REALTIME) // 1000


def segment_name(start: int) -> str:
    """Return the name of the file of the segment that begins at an offset."""
    return f"{start:020d}{SUFFIX}"


class SpoolSegments:
    """The records of one attempt, in the current folder."""

    def __init__(self, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.end = 0
        """The offset of the next record."""
        self.confirmed = 0
        """Everything before this offset is in an engine's journal."""
        self.synced = 0
        self._segment_bytes = segment_bytes
        self._starts = [0]
        self._writing = _create(0)
        self._reading = (0, self._writing)
        self._folder_changed = True

    @property
    def start(self) -> int:
        """The first offset that can still be read."""
        return self._starts[0]

    @property
    def kept_bytes(self) -> int:
        """How many bytes are not confirmed yet."""
        return self.end - self.confirmed

    def append(self, kind: int, flags: int, time_us: int, data: bytes) -> None:
        """Write a record; raise OSError when the disk refuses it, with nothing of it left in the spool."""
        if self.end - self._starts[-1] >= self._segment_bytes:
            self._next_segment()
        begin = self.end - self._starts[-1]
        left = memoryview(record(self.end, kind, flags, time_us, data))
        at = begin
        try:
            while left:
                written = os.pwrite(self._writing, left, at)
                at += written
                left = left[written:]
        except OSError:
            os.ftruncate(self._writing, begin)
            raise
        self.end = self._starts[-1] + at

    def sync(self) -> None:
        """Sync every record to disk."""
        if self.synced >= self.end:
            return
        try:
            os.fdatasync(self._writing)
        except OSError:
            # The kernel may have marked the pages clean without having written them: make them dirty again.
            first = max(self.synced, self._starts[-1]) - self._starts[-1]
            os.pwrite(self._writing, os.pread(self._writing, self.end - self._starts[-1] - first, first), first)
            os.fdatasync(self._writing)
        if self._folder_changed:
            _sync_folder()
            self._folder_changed = False
        self.synced = self.end

    def confirm(self, offset: int) -> None:
        """Delete every segment that ends at or before an offset."""
        if offset <= self.confirmed:
            return
        self.confirmed = min(offset, self.end)
        while len(self._starts) > 1 and self._starts[1] <= self.confirmed:
            start = self._starts.pop(0)
            if self._reading[0] == start:
                self._read_from(self._starts[0])
            try:
                os.unlink(segment_name(start))
            except FileNotFoundError:
                pass  # it was deleted from outside

    def read(self, offset: int, count_max: int) -> bytes:
        """Return bytes from an offset on, at most up to the end of its segment."""
        start = self._reading[0]
        if not start <= offset < self._end_of(start):
            start = next(start for start in reversed(self._starts) if start <= offset)
            self._read_from(start)
        return os.pread(self._reading[1], min(count_max, self._end_of(start) - offset), offset - start)

    def record_at(self, offset: int) -> int:
        """Return the offset at which the record that contains an offset begins."""
        if offset == self.end:
            return offset
        at = next(start for start in reversed(self._starts) if start <= offset)
        while True:
            piece = self.read(at, _SCAN_BYTES)
            place = 0
            while place + HEADER_BYTES <= len(piece):
                length: int = HEADER.unpack_from(piece, place)[0]
                if at + place + HEADER_BYTES + length > offset:
                    return at + place
                place += HEADER_BYTES + length
            at += place

    def _end_of(self, start: int) -> int:
        if start == self._starts[-1]:
            return self.end
        return self._starts[self._starts.index(start) + 1]

    def _read_from(self, start: int) -> None:
        if self._reading[1] != self._writing:
            os.close(self._reading[1])
        own = start == self._starts[-1]
        self._reading = (start, self._writing if own else os.open(segment_name(start), os.O_RDONLY))

    def _next_segment(self) -> None:
        if self.confirmed < self.end:
            self.sync()
        fd = _create(self.end)
        if self._reading[1] != self._writing:
            os.close(self._writing)
        self._writing = fd
        self._starts.append(self.end)
        self._folder_changed = True
        # Delete the segment that was written until now if all of it is confirmed already.
        confirmed, self.confirmed = self.confirmed, 0
        self.confirm(confirmed)


class SpoolWriter:
    """Writes to the spool, and keeps the records that could not be written yet."""

    def __init__(self, spool_bytes_max: int, report: Callable[[str], None]) -> None:
        self.spool = SpoolSegments()
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


def _create(start: int) -> int:
    return os.open(segment_name(start), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)


def _sync_folder() -> None:
    fd = os.open(".", os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
