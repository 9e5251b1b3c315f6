"""One output pipe of the agent, read in blocks of whole lines without secrets."""

from __future__ import annotations

import os

from maos.holder.wire import NO_NEWLINE, PARTIAL
from maos.redact import Redactor

READ_BYTES = 64 << 10
"""The most one turn reads; a line limit below it would need every block to be looked at line by line."""
FEW_BYTES = 4 << 10
"""What is read while that is enough: room for more costs time even when it stays empty."""


class Intake:
    """What has been read from a pipe and is not a whole line yet."""

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
        """Line 1/8: from the pipe. How much there was (0 at the end), and the records it makes: flags and data.

        Raises BlockingIOError when there is nothing to read and it is not the end.
        """
        data = os.read(self.fd, self._read_bytes)
        self._read_bytes = READ_BYTES if len(data) == self._read_bytes else FEW_BYTES
        if not data:
            return 0, self.give_up()
        return len(data), self._take(data)

    def give_up(self) -> list[tuple[int, bytes]]:
        """Read no more, though somebody may still write; the last records."""
        self.open = False
        os.close(self.fd)
        return self._last()

    def _take(self, data: bytes) -> list[tuple[int, bytes]]:
        cut = data.rfind(b"\n") + 1
        records: list[tuple[int, bytes]] = []
        if cut:
            lines = data if cut == len(data) else data[:cut]
            if self._rest:
                if self._rest_bytes + lines.find(b"\n") > self._line_bytes_max:
                    records.extend(self._parts())
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
                records.extend(self._parts())
        return records

    def _parts(self) -> list[tuple[int, bytes]]:
        """As much of an over-long line as can be told to hold no half of a secret."""
        line = b"".join(self._rest)
        clean, used = self._redactor.part(line)
        rest = line[used:]
        self._rest = [rest] if rest else []
        self._rest_bytes = len(rest)
        return [(PARTIAL, clean)] if clean else []

    def _last(self) -> list[tuple[int, bytes]]:
        if not self._rest:
            return []
        clean = self._redactor.lines(b"".join(self._rest))
        self._rest.clear()
        return [(NO_NEWLINE, clean)] if clean else []
