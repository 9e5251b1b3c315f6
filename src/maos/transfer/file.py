"""The file: parts one after the other, each with its length and checksum, and an end that vouches for the whole.

    magic    15 bytes
    format   2 bytes, the number of the format
    parts    kind (1 byte), length as stored (8), length of the content (8), SHA-256 of what is stored (32), the bytes
    end      kind Z, the number of parts (8), the length of the file (8), SHA-256 of everything before this end

All numbers are big-endian. A file is read to its end and compared with its checksums before anything in it is looked
at, and no length that it tells is believed beyond the limits here. docs/reference/bundle-format.md has all of it.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from maos.errors import Corrupt, InvalidInput, UnknownFormat
from maos.journal import compress

MAGIC = b"maos bundle\r\n\x1a\n"
"""The ends of lines in it are there to notice a file that was sent as text."""
FORMAT = 1
MANIFEST, JOURNAL, GIT, END = b"M", b"J", b"G", b"Z"

MANIFEST_BYTES_MAX = 32 << 20
JOURNAL_PART_BYTES_MAX = 96 << 20
"""One event can have 64 MB."""
JOURNAL_BYTES_MAX = 512 << 20
"""All events together, uncompressed: they are in memory while they are brought here."""
JOURNAL_BYTES_FREE = 8 << 20
EXPANSION_MAX = 200
"""How many bytes all events, or the manifest, may have for each that is stored, beyond those that are free. So what a
small file takes in memory is bounded by its size."""
GIT_BYTES_MAX = 8 << 30
PARTS_MAX = 10_000
CHUNK_BYTES = 1 << 20

_HEAD = struct.Struct(f">{len(MAGIC)}sH")
_PART = struct.Struct(">cQQ32s")
_CONTENT_MAX = {MANIFEST: MANIFEST_BYTES_MAX, JOURNAL: JOURNAL_PART_BYTES_MAX, GIT: GIT_BYTES_MAX}


class Part(NamedTuple):
    """A part, as its head says."""

    kind: bytes
    at: int
    """Where its bytes begin."""
    stored: int
    size: int
    digest: bytes


class BundleWriter:
    """Writes a bundle from its beginning to its end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._parts = 0
        self._journal = 0
        self._journal_stored = 0
        self.bytes = 0
        self._write(_HEAD.pack(MAGIC, FORMAT))

    def part(self, kind: bytes, content: bytes) -> None:
        """A part of some bytes, compressed."""
        self._journal += len(content) if kind == JOURNAL else 0
        if len(content) > _CONTENT_MAX[kind] or self._journal > JOURNAL_BYTES_MAX:
            what = "the run has more events than a bundle can hold"
            raise InvalidInput(
                what, hint=f"at most {JOURNAL_BYTES_MAX >> 20} MB; `maos admin copy` copies the whole journal"
            )
        stored = compress.compress(content)
        self._journal_stored += len(stored) if kind == JOURNAL else 0
        self._begin(kind, len(stored), len(content), hashlib.sha256(stored).digest())
        self._write(stored)

    def file(self, kind: bytes, head: bytes, path: Path) -> None:
        """A part of some bytes and a file, as they are."""
        size = len(head) + path.stat().st_size
        if size > _CONTENT_MAX[kind]:
            what = f"the commits of the run come to {size >> 20} MB"
            raise InvalidInput(what, hint=f"at most {_CONTENT_MAX[kind] >> 20} MB; leave them out with --without-files")
        digest = hashlib.sha256(head)
        with path.open("rb") as file:
            while piece := file.read(CHUNK_BYTES):
                digest.update(piece)
        self._begin(kind, size, size, digest.digest())
        self._write(head)
        with path.open("rb") as file:
            while piece := file.read(CHUNK_BYTES):
                self._write(piece)

    def end(self) -> str:
        """The end; the checksum that identifies the bundle."""
        if expands(self._journal, self._journal_stored):
            what = "the events of the run are so much alike that the bundle would look like a trap"
            raise InvalidInput(what, hint="`maos admin copy` copies the whole journal")
        whole = self._digest.digest()
        self._write(_PART.pack(END, self._parts, self.bytes + _PART.size, whole))
        return whole.hex()

    def _begin(self, kind: bytes, stored: int, size: int, digest: bytes) -> None:
        if self._parts >= PARTS_MAX:
            raise InvalidInput(
                "the run has more parts than a bundle can hold", hint="`maos admin copy` copies the journal"
            )
        self._parts += 1
        self._write(_PART.pack(kind, stored, size, digest))

    def _write(self, content: bytes) -> None:
        self._digest.update(content)
        self._file.write(content)
        self.bytes += len(content)


class BundleReader:
    """A bundle whose checksums have all been compared."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        """Reads all of it. UnknownFormat for one that is newer; Corrupt for anything else that is wrong."""
        self._file = file
        self._name = name
        self.format = 0
        self.sha256 = ""
        self.bytes = 0
        self.parts: list[Part] = []
        self._check()

    def content(self, part: Part) -> bytes:
        """The bytes of a compressed part."""
        self._file.seek(part.at)
        stored = self._file.read(part.stored)
        if hashlib.sha256(stored).digest() != part.digest:
            raise self._damaged("it changes while it is read")
        return compress.decompress(stored, "zstd", size=part.size)

    def copy(self, part: Part, target: BinaryIO, *, after: int = 0) -> None:
        """Write a part that is stored as it is to a file, from some place on."""
        digest = hashlib.sha256()
        self._file.seek(part.at)
        for piece in self._pieces(part.stored):
            digest.update(piece)
            target.write(piece[after:])
            after = max(0, after - len(piece))
        if digest.digest() != part.digest:
            raise self._damaged("it changes while it is read")

    def beginning(self, part: Part, bytes_max: int) -> bytes:
        """The first bytes of a part that is stored as it is."""
        self._file.seek(part.at)
        return self._file.read(min(bytes_max, part.stored))

    def _check(self) -> None:
        head = self._file.read(_HEAD.size)
        if len(head) < _HEAD.size or not head.startswith(MAGIC):
            raise self._damaged("it does not begin as a bundle does")
        (_magic, self.format) = _HEAD.unpack(head)
        if self.format > FORMAT:
            raise UnknownFormat(f"{self._name} is a bundle of format {self.format}, this maos knows up to {FORMAT}")
        if self.format < 1:
            raise self._damaged(f"there is no format {self.format}")
        whole, at, journal, journal_stored = hashlib.sha256(head), len(head), 0, 0
        while True:
            said = self._file.read(_PART.size)
            if len(said) < _PART.size:
                raise self._damaged("it ends too early")
            kind, stored, size, digest = _PART.unpack(said)
            at += len(said)
            if kind == END:
                if (stored, size, digest) != (len(self.parts), at, whole.digest()) or self._file.read(1):
                    raise self._damaged("its checksum does not fit")
                if expands(journal, journal_stored):
                    raise self._damaged(f"{journal_stored} bytes of it would become {journal >> 20} MB of events")
                self.sha256, self.bytes = digest.hex(), at
                return
            whole.update(said)
            journal += size if kind == JOURNAL else 0
            journal_stored += stored if kind == JOURNAL else 0
            if kind not in _CONTENT_MAX or len(self.parts) >= PARTS_MAX:
                raise self._damaged("it has parts that no bundle has")
            is_too_large = max(stored, size) > _CONTENT_MAX[kind] or journal > JOURNAL_BYTES_MAX
            if is_too_large or (kind == MANIFEST and expands(size, stored)):
                raise self._damaged("it says that it is larger than a bundle can be")
            part = Part(kind, at, stored, size, digest)
            found = hashlib.sha256()
            for piece in self._pieces(stored):
                found.update(piece)
                whole.update(piece)
            if found.digest() != digest:
                raise self._damaged("the checksum of a part does not fit")
            self.parts.append(part)
            at += stored

    def _pieces(self, size: int) -> Iterator[bytes]:
        while size:
            piece = self._file.read(min(size, CHUNK_BYTES))
            if not piece:
                raise self._damaged("it ends too early")
            size -= len(piece)
            yield piece

    def _damaged(self, why: str) -> Corrupt:
        return damaged(self._name, why)


def expands(size: int, stored: int) -> bool:
    """Whether so many bytes are more than so few that are stored can honestly stand for."""
    return size > JOURNAL_BYTES_FREE + EXPANSION_MAX * stored


def damaged(name: str, why: str) -> Corrupt:
    """What is said of a bundle that cannot be read."""
    return Corrupt(f"{name} cannot be imported: {why}", hint="nothing was imported; have it exported and sent again")


def is_bundle(path: Path) -> bool:
    """Whether a file begins as a bundle does."""
    try:
        with path.open("rb") as file:
            return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False
