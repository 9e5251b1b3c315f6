"""Reads an output pipe of the agent in blocks of whole lines, with secrets redacted."""

from __future__ import annotations

import os

from maos.holder.wire import NO_NEWLINE, PARTIAL
from maos.redact import Redactor

READ_BYTES = 64 << 10
"""The most that one read takes; with a smaller line limit every block would have to be searched line by line."""
FEW_BYTES = 4 << 10
"""The size of a read while the agent writes little: a larger buffer costs time even when it stays empty."""


class Intake:
    """An output pipe, and the part of a line that has been read from it so far."""

    def __init__(self, fd: int, kind: int, redactor: Redactor, line_bytes_max: int) -> None:
        self.fd = fd
        self.kind = kind
        self.open = True
        self._redactor = redactor
        self._line_bytes_max = line_bytes_max
        self._read_bytes = FEW_BYTES
        self._rest: list[bytes] = []
        self._rest_bytes = 0

    def read(self) -> tuple[int, list[tuple[int, bytes]]]:
        """Line 1/8: read the pipe; return how many bytes there were (0 at the end) and their records: flags and data.

        Raises BlockingIOError when there is nothing to read before the end.
        """
        data = os.read(self.fd, self._read_bytes)
        self._read_bytes = READ_BYTES if len(data) == self._read_bytes else FEW_BYTES
        if not data:
            return 0, self.close()
        return len(data), self._split(data)

    def close(self) -> list[tuple[int, bytes]]:
        """Stop reading, even if a process still has the pipe open; return the last records."""
        self.open = False
        os.close(self.fd)
        return self._flush()

    def _split(self, data: bytes) -> list[tuple[int, bytes]]:
        cut = data.rfind(b"\n") + 1
        records: list[tuple[int, bytes]] = []
        if cut:
            lines = data if cut == len(data) else data[:cut]
            if self._rest:
                if self._rest_bytes + lines.find(b"\n") > self._line_bytes_max:
                    records.extend(self._cut())
                lines = b"".join((*self._rest, lines))
                self._rest.clear()
                self._rest_bytes = 0
            clean = self._redactor.lines(lines)
            if clean:
                records.append((0, clean))
            data = data[cut:]
        if data:
            self._rest.append(data)
            self._rest_bytes += len(data)
            if self._rest_bytes >= self._line_bytes_max:
                records.extend(self._cut())
        return records

    def _cut(self) -> list[tuple[int, bytes]]:
        """Return as much of an over-long line as certainly does not end inside a secret."""
        line = b"".join(self._rest)
        clean, used = self._redactor.part(line)
        rest = line[used:]
        self._rest = [rest] if rest else []
        self._rest_bytes = len(rest)
        return [(PARTIAL, clean)] if clean else []

    def _flush(self) -> list[tuple[int, bytes]]:
        if not self._rest:
            return []
        clean = self._redactor.lines(b"".join(self._rest))
        self._rest.clear()
        return [(NO_NEWLINE, clean)] if clean else []
