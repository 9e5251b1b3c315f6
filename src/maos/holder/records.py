"""Spool records as the engine reads them: output, input and the end of an agent, in order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from maos.holder import wire
from maos.holder.spool import SUFFIX

_OUTPUT = (wire.STDOUT, wire.STDERR)
_SEGMENT = re.compile(rf"(\d{{20}}){re.escape(SUFFIX)}")


class SpoolRecord(NamedTuple):
    """A line of an agent's output, an input it was given, or its start, stop or exit."""

    offset: int
    """The offset to continue reading from after this record."""
    time_us: int
    kind: str
    """started, stdout, stderr, input, stopping, exit; never stored: trouble (with the disk), torn (left_behind)."""
    data: bytes
    """A line without its newline, the id of an input, a reason, or nothing."""
    flags: int = 0

    @property
    def partial(self) -> bool:
        """Whether the line continues in the next record of this kind."""
        return bool(self.flags & wire.PARTIAL)


class Parser:
    """Splits the bytes of a spool into records, one per line, up to the first that does not verify."""

    def __init__(self, begin: int, *, after: int) -> None:
        self.at = begin
        """The offset of the next record that was not parsed."""
        self.damage = ""
        """What is wrong there; empty while every record verifies."""
        self._after = after
        self._rest = b""

    def feed(self, data: bytes) -> list[SpoolRecord]:
        """Add bytes; return the records that are now complete and end after the wanted offset."""
        if self._rest:
            data = self._rest + data
        records: list[SpoolRecord] = []
        place = 0
        size = len(data)
        while size - place >= wire.HEADER_BYTES and not self.damage:
            length, checksum, kind, flags, time_us = wire.HEADER.unpack_from(data, place)
            begin = place + wire.HEADER_BYTES
            end = begin + length
            if kind in wire.KINDS and end > size:
                break
            content = data[begin:end]
            if not wire.intact(self.at, checksum, kind, flags, time_us, content):
                self.damage = f"the record at offset {self.at} is damaged"
                break
            self.at += end - place
            place = end
            if self.at > self._after:
                self._split(records, time_us, kind, flags, content)
        self._rest = data[place:]
        return records

    def _split(self, records: list[SpoolRecord], time_us: int, kind: int, flags: int, content: bytes) -> None:
        name = wire.KINDS[kind]
        if kind not in _OUTPUT or flags & wire.PARTIAL:
            records.append(SpoolRecord(self.at, time_us, name, content, flags))
            return
        lines = content.split(b"\n")
        last = lines.pop()  # what follows the last newline: nothing, unless the output ended without one
        offset = self.at - len(content)
        for line in lines:
            offset += len(line) + 1
            if offset > self._after:
                records.append(SpoolRecord(offset, time_us, name, line))
        if last:
            records.append(SpoolRecord(self.at, time_us, name, last, flags))


def left_behind(folder: Path, *, after: int) -> Iterator[SpoolRecord]:
    """Yield the records after an offset of a spool whose holder has exited.

    The first record that does not verify is dropped with everything behind it; the last record is then of kind `torn`
    and has the number of dropped bytes as its data.
    """
    segments = sorted((int(match[1]), path) for path in folder.iterdir() if (match := _SEGMENT.fullmatch(path.name)))
    while len(segments) > 1 and segments[1][0] <= after:
        del segments[0]  # it ends before the wanted offset
    at = segments[0][0] if segments else after
    for number, (start, path) in enumerate(segments):
        end = start
        if start == at:
            content = path.read_bytes()
            parser = Parser(start, after=after)
            yield from parser.feed(content)
            at, end = parser.at, start + len(content)
        if start > at or end > at:
            lost = end - at if start <= at else 0
            lost += sum(path.stat().st_size for first, path in segments[number:] if first > at or first > start)
            if at + lost > after:
                yield SpoolRecord(max(at, after), 0, "torn", str(lost).encode())
            return
