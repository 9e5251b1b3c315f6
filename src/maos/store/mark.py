"""The high-water mark: the newest acknowledged position and its hash, kept outside the database.

A database that lost its end looks perfectly healthy from inside: a damaged write-ahead log reads as a shorter one, and
an older copy put back is a valid database. The mark tells (I8). It is written after each commit, so it is never ahead
of an undamaged database; it is not synced each time, because an old mark only makes the check weaker, never wrong.
"""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path
from typing import NamedTuple

_LINE = re.compile(rb"maos-head 1 (\d{20}) ([0-9a-f]{64}) ([0-9a-f]{8})\n")
_LINE_BYTES = 12 + 20 + 1 + 64 + 1 + 8 + 1


class Mark(NamedTuple):
    """A position that was acknowledged, and the hash of its event."""

    position: int
    hash: bytes


class MarkFile:
    """Two lines, written in turn, so that a torn write leaves the other one whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trouble: str | None = None
        """Why the mark could not be read or written last time; the journal itself is not affected by that."""
        self._fd = -1
        self._slot = 0

    def read(self) -> Mark | None:
        """The newest readable mark; None, with `trouble` set, when the file is missing or damaged."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            self.trouble = f"{self.path} is missing"
            return None
        except OSError as error:
            self.trouble = f"{self.path} could not be read: {error.strerror}"
            return None
        marks = []
        for start in (0, _LINE_BYTES):
            mark = _parse(content[start : start + _LINE_BYTES])
            if mark is not None:
                marks.append(mark)
                self._slot = 0 if start else _LINE_BYTES  # overwrite the other one first
        if not marks:
            self.trouble = f"{self.path} is damaged"
            return None
        newest = max(marks)
        if _parse(content[:_LINE_BYTES]) == newest:
            self._slot = _LINE_BYTES
        return newest

    def write(self, mark: Mark) -> None:
        """Remember a mark. Never fails the caller: the event is on disk already."""
        body = b"maos-head 1 %020d %s" % (mark.position, mark.hash.hex().encode())
        line = body + b" %08x\n" % zlib.crc32(body)
        try:
            if self._fd < 0:
                self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._fd, line, self._slot)
        except OSError as error:
            self.trouble = f"{self.path} could not be written: {error.strerror}"
            return
        self._slot = _LINE_BYTES - self._slot

    def sync(self) -> None:
        """Bring the mark to disk."""
        if self._fd < 0:
            return
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            self.trouble = f"{self.path} could not be synced: {error.strerror}"

    def close(self) -> None:
        """Sync and let go of the file."""
        if self._fd >= 0:
            self.sync()
            os.close(self._fd)
            self._fd = -1


def _parse(line: bytes) -> Mark | None:
    match = _LINE.fullmatch(line)
    if match is None or zlib.crc32(line[: -len(match[3]) - 2]) != int(match[3], 16):
        return None
    return Mark(int(match[1]), bytes.fromhex(match[2].decode()))
