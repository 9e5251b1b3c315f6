"""Lines over file descriptors: blocking, bounded, and usable from two threads."""

from __future__ import annotations

import json
import os
import select
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LINE_BYTES_MAX = 4 << 20
"""The largest value that may be saved, with every character escaped, and room to spare."""
READ_BYTES = 1 << 16


class LineTooLong(Exception):
    """A line beyond the limit; it was skipped."""


class Input:
    """Lines from a file descriptor."""

    def __init__(self, descriptor: int, output: Output, *, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        self._descriptor = descriptor
        self._output = output
        self._line_bytes_max = line_bytes_max
        self._rest = bytearray()
        self.seen = 0
        """How much had been sent when the last line came: what the client may have known when it wrote it."""

    def line(self) -> bytes | None:
        """The next line, waited for; None at the end. A last line without an end counts for nothing."""
        looked_at = 0
        skipping = False
        while True:
            end = self._rest.find(b"\n", looked_at)
            if end >= 0:
                line = bytes(self._rest[:end])
                del self._rest[: end + 1]
                if skipping or end > self._line_bytes_max:
                    raise LineTooLong
                return line
            looked_at = len(self._rest)
            if looked_at > self._line_bytes_max:
                skipping = True
                self._rest.clear()
                looked_at = 0
            data = os.read(self._descriptor, READ_BYTES)
            if not data:
                return None
            self._rest += data
            self.seen = self._output.sent


class Output:
    """Messages to a file descriptor, each as one line."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._is_open = True
        self.sent = 0
        """How many messages."""

    def send(self, message: dict[str, Any]) -> int:
        """Write a message; its number, 0 when nobody is there. Whoever does not read lets only its own agent wait."""
        data = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        with self._lock:
            self.sent += 1  # before it is: an answer to it could be read before we get to count
            while data and self._is_open:
                try:
                    data = data[os.write(self._descriptor, data) :]
                except BlockingIOError:
                    select.select([], [self._descriptor], [])
                except OSError:  # the client is gone, and the end of our input will say so
                    self._is_open = False
            return self.sent if self._is_open else 0
