"""What a holder keeps on disk until an engine has it: segment files, appended to, read from and dropped whole.

A segment is named by the offset of its first byte. Offsets only grow and are never used again, also when everything
before them has been dropped.
"""

from __future__ import annotations

import os

from maos.holder.wire import HEADER, HEADER_BYTES, record

SEGMENT_BYTES = 4 << 20
SUFFIX = ".spool"
_SCAN_BYTES = 64 << 10


def segment_name(start: int) -> str:
    """The file of the segment that begins at an offset."""
    return f"{start:020d}{SUFFIX}"


class Spool:
    """The records of one attempt, below the current folder."""

    def __init__(self, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.end = 0
        """Where the next record goes."""
        self.confirmed = 0
        """An engine has everything before this in its journal."""
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
        """How much waits for being confirmed."""
        return self.end - self.confirmed

    def append(self, kind: int, flags: int, time_us: int, data: bytes) -> None:
        """Write a record; raises OSError when the disk does not take it, and then nothing of it is there."""
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
        """Return when everything is on disk."""
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
        """Drop every segment that ends at or before an offset."""
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
                pass  # somebody has tidied up

    def read(self, offset: int, count_max: int) -> bytes:
        """Some of what is there from an offset on; at most up to the end of a segment."""
        start = self._reading[0]
        if not start <= offset < self._end_of(start):
            start = next(start for start in reversed(self._starts) if start <= offset)
            self._read_from(start)
        return os.pread(self._reading[1], min(count_max, self._end_of(start) - offset), offset - start)

    def record_at(self, offset: int) -> int:
        """Where the record begins that holds an offset."""
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
        self.confirm_again()

    def confirm_again(self) -> None:
        """Drop what was confirmed while it was still being written to."""
        confirmed, self.confirmed = self.confirmed, 0
        self.confirm(confirmed)


def _create(start: int) -> int:
    return os.open(segment_name(start), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)


def _sync_folder() -> None:
    fd = os.open(".", os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
