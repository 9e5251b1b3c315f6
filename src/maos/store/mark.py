"""The high-water mark: the newest acknowledged position and its hash, kept outside the database.

A database that has lost its end looks undamaged from inside: a damaged write-ahead log reads as a shorter one, and a
restored older copy is a valid database. The mark reveals it (I8). It is written after each commit, so it is never ahead
of an undamaged database; it is not synced each time, because an old mark makes the check weaker but never wrong.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
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
    """A file of two lines, written alternately, so that a torn write leaves one intact.

    A journal in memory has no file, as it has no end that could be lost.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.trouble: str | None = None
        """Why the mark could not be read or written last time; the journal itself is not affected."""
        self._fd = -1
        self._slot = 0

    def read(self) -> Mark | None:
        """Return the newest readable mark; None, with `trouble` set, when the file is missing or damaged."""
        if self.path is None:
            return None
        try:
            descriptor = self._open_file(os.O_RDONLY)
            try:
                content = os.read(descriptor, 2 * _LINE_BYTES)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            self.trouble = f"{self.path} is missing"
            return None
        except OSError as error:
            self.trouble = f"{self.path} could not be read: {error.strerror}"
            return None
        lines = [_parse(content[start : start + _LINE_BYTES]) for start in (0, _LINE_BYTES)]
        marks = [mark for mark in lines if mark is not None]
        if not marks:
            self.trouble = f"{self.path} is damaged"
            return None
        newest = max(marks)
        self._slot = _LINE_BYTES if lines[0] == newest else 0  # the other line is written next
        return newest

    def write(self, mark: Mark) -> None:
        """Write a mark. Never raises: the event is on disk already."""
        if self.path is None:
            return
        body = b"maos-head 1 %020d %s" % (mark.position, mark.hash.hex().encode())
        line = body + b" %08x\n" % zlib.crc32(body)
        try:
            if self._fd < 0:
                self._fd = self._open_file(os.O_RDWR | os.O_CREAT)
            os.pwrite(self._fd, line, self._slot)
        except OSError as error:
            self.trouble = f"{self.path} could not be written: {error.strerror}"
            return
        self._slot = _LINE_BYTES - self._slot

    def _open_file(self, flags: int) -> int:
        """Open the file; a link, device or pipe, which could come with a cloned repository, is an OSError."""
        assert self.path is not None
        descriptor = os.open(self.path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "it is not a regular file")
        return descriptor

    def remove(self) -> None:
        """Remove the file, when the end of the journal is known to be lost."""
        if self.path is not None:
            self.path.unlink()

    def sync(self) -> None:
        """Sync the mark to disk."""
        if self._fd < 0:
            return
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            self.trouble = f"{self.path} could not be synced: {error.strerror}"

    def close(self) -> None:
        """Sync and close the file."""
        if self._fd >= 0:
            self.sync()
            os.close(self._fd)
            self._fd = -1


def default_mark(place: str) -> Path:
    """Return the file of the mark of a server's journal: each machine keeps its own."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    folder = state / "maos" / "heads"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder / hashlib.sha256(place.encode()).hexdigest()[:32]


def _parse(line: bytes) -> Mark | None:
    match = _LINE.fullmatch(line)
    if match is None or zlib.crc32(line[: -len(match[3]) - 2]) != int(match[3], 16):
        return None
    return Mark(int(match[1]), bytes.fromhex(match[2].decode()))
