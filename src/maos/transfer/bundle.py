"""A bundle: one file with parts, each with its length and checksum, and an end that vouches for the whole.

    magic    15 bytes
    format   2 bytes, the number of the format
    parts    kind (1 byte), length as stored (8), length of the content (8), SHA-256 of what is stored (32), the bytes
    end      kind Z, the number of parts (8), the length of the file (8), SHA-256 of everything before this end

All numbers are big-endian. A file is read to its end and compared with its checksums before anything in it is looked
at, and no length that it tells is believed beyond the limits here. In the parts are a manifest, the events, and a pack
of git. docs/reference/bundle-format.md has all of it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, Literal

import msgspec

from maos.errors import Corrupt, InvalidInput, UnknownFormat
from maos.files import read_bounded
from maos.ids import NAME_CHARS_MAX
from maos.journal import compress
from maos.journal.codec import Codec
from maos.journal.journal import Record
from maos.store.contract import Recorded
from maos.tuples import NamedTuple

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

PART_BYTES = 4 << 20
"""When a part of the journal is full; an event that is larger has one of its own."""
EVENTS_MAX = 5_000_000
EVENTS_FREE = 20_000
"""Beyond so many, each event takes at least a byte of the file: two of the same time and content are never many."""
STREAMS_MAX = 200_000
REFS_MAX = 200_000
TEXT_CHARS_MAX = 2_000
LEFT_OUT_MAX = 100

BundleKind = Literal["run", "workflow"]
"""What a bundle is of; also how the names of its streams begin."""
RUN: Final = "run"
WORKFLOW: Final = "workflow"

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
            raise too_large("the run")
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
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.sha256(head))
        self._begin(kind, size, size, digest.digest())
        self._write(head)
        with path.open("rb") as file:
            while piece := file.read(CHUNK_BYTES):
                self._write(piece)

    def end(self) -> str:
        """The end; the checksum that identifies the bundle."""
        if expands(self._journal, self._journal_stored):
            what = "the events of the run compress so well that an import would refuse the bundle"
            raise InvalidInput(what, hint="`maos admin copy` copies the whole journal")
        whole = self._digest.digest()
        self._write(_PART.pack(END, self._parts, self.bytes + _PART.size, whole))
        return whole.hex()

    def _begin(self, kind: bytes, stored: int, size: int, digest: bytes) -> None:
        if self._parts >= PARTS_MAX:
            what = "the run has more parts than a bundle can hold"
            raise InvalidInput(what, hint="`maos admin copy` copies the journal")
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
        self.parts: list[Part] = []
        head = self._file.read(_HEAD.size)
        if len(head) < _HEAD.size or not head.startswith(MAGIC):
            raise self._damaged("it does not begin as a bundle does")
        (_magic, self.format) = _HEAD.unpack(head)
        if self.format > FORMAT:
            raise UnknownFormat(f"{self._name} is a bundle of format {self.format}, this maos knows up to {FORMAT}")
        if self.format < 1:
            raise self._damaged(f"there is no format {self.format}")
        self.sha256 = self._read_parts(head)

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

    def _read_parts(self, head: bytes) -> str:
        """Compare all checksums; the one that identifies the bundle."""
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
                return str(digest.hex())
            whole.update(said)
            journal += size if kind == JOURNAL else 0
            journal_stored += stored if kind == JOURNAL else 0
            if kind not in _CONTENT_MAX or len(self.parts) >= PARTS_MAX:
                raise self._damaged("it has parts that no bundle has")
            is_too_large = max(stored, size) > _CONTENT_MAX[kind] or journal > JOURNAL_BYTES_MAX
            if is_too_large or (kind == MANIFEST and expands(size, stored)):
                raise self._damaged("it declares more bytes than a bundle can have")
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


def too_large(run: str) -> InvalidInput:
    """The error for a run whose events do not fit into a bundle."""
    hint = f"at most {JOURNAL_BYTES_MAX >> 20} MB; `maos admin copy` copies the whole journal"
    return InvalidInput(f"{run} has more events than a bundle can hold", hint=hint)


def damaged(name: str, why: str) -> Corrupt:
    """The error for a bundle that cannot be read."""
    return Corrupt(f"{name} cannot be imported: {why}", hint="nothing was imported; have it exported and sent again")


def is_bundle(path: Path) -> bool:
    """Whether a file begins as a bundle does."""
    try:
        return read_bounded(path, len(MAGIC))[: len(MAGIC)] == MAGIC
    except OSError:
        return False


# --- contents ------------------------------------------------------------------------------------------------


Text = Annotated[str, msgspec.Meta(max_length=TEXT_CHARS_MAX)]


class StreamHead(msgspec.Struct, forbid_unknown_fields=True):
    """A stream of the bundle, and how many events of it are there."""

    name: Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
    events: int


class Manifest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a bundle says of itself."""

    kind: BundleKind
    id: str
    title: Text
    status: Text
    made_by: Text
    """The program that wrote it, with its version."""
    made_us: int
    position: int
    """Where the journal was: the bundle has nothing later."""
    carried_out: bool
    """Whether an engine was executing it then."""
    streams: Annotated[list[StreamHead], msgspec.Meta(max_length=STREAMS_MAX)]
    refs: Annotated[dict[str, str], msgspec.Meta(max_length=REFS_MAX)] = {}
    """What its commits are called, by name."""
    object_format: str = "sha1"
    left_out: Annotated[list[Text], msgspec.Meta(max_length=LEFT_OUT_MAX)] = []
    """What belongs to it and is not in the bundle."""

    @property
    def stream(self) -> str:
        """The stream of the run or the workflow run."""
        return f"{self.kind}/{self.id}"


class EventLine(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """An event: the number of its stream, its type and format, when it was recorded, and its data."""

    stream: int
    type: str
    format: int
    time_us: int
    data: msgspec.Raw


class Contents(NamedTuple):
    """A bundle that was read."""

    manifest: Manifest
    streams: dict[str, list[Record]]
    """The events of each stream, in the formats of this maos."""
    records: list[Record]
    """All of them, in the order that they were recorded in."""
    git: Part | None


Raw = tuple[dict[str, Any], list[EventLine]]
UPGRADES: dict[int, Callable[[Raw], Raw]] = {}
"""How what is in a bundle of format n becomes that of format n + 1."""

_line_decoder = msgspec.json.Decoder(EventLine)


def write(
    target: BinaryIO, manifest: Manifest, lines: Sequence[EventLine], packed: tuple[bytes, Path] | None
) -> tuple[int, str]:
    """The manifest, the events, in parts that one can have in memory, and the pack of git, if there is one; how many
    bytes these are, and the checksum that identifies the bundle."""
    writer = BundleWriter(target)
    writer.part(MANIFEST, msgspec.json.encode(manifest))
    filled: list[bytes] = []
    begin, size = writer.bytes, 0
    for line in lines:
        body = msgspec.json.encode(line)
        if filled and size + len(body) > PART_BYTES:
            writer.part(JOURNAL, b"\n".join(filled))
            filled, size = [], 0
        filled.append(body)
        size += len(body) + 1
    if filled:
        writer.part(JOURNAL, b"\n".join(filled))
    if len(lines) > min(EVENTS_MAX, EVENTS_FREE + writer.bytes - begin):
        what = f"{manifest.id} has more events than a bundle can hold"
        raise InvalidInput(what, hint="`maos admin copy` copies the whole journal")
    if packed is not None:
        writer.file(GIT, *packed)
    sha256 = writer.end()
    return writer.bytes, sha256


def read(reader: BundleReader, name: str, codec: Codec) -> Contents:
    """What is in a bundle, brought up to date; Corrupt or UnknownFormat for what cannot be read."""
    kinds = [part.kind for part in reader.parts]
    journal = kinds.count(JOURNAL)
    if kinds not in ([MANIFEST, *[JOURNAL] * journal], [MANIFEST, *[JOURNAL] * journal, GIT]):
        raise damaged(name, "its parts are not in the order of a bundle")
    try:
        raw: dict[str, Any] = msgspec.json.decode(reader.content(reader.parts[0]), type=dict[str, Any])
        lines: Iterable[EventLine] = _lines(reader, name)
        for format_ in range(reader.format, FORMAT):
            raw, lines = UPGRADES[format_]((raw, list(lines)))
        manifest = msgspec.convert(raw, Manifest)
        streams: dict[str, list[Record]] = {each.name: [] for each in manifest.streams}
        names = list(streams)
        if len(names) != len(manifest.streams):
            raise damaged(name, "it has the same stream twice")
        records: list[Record] = []
        for line in lines:
            if not 0 <= line.stream < len(names):
                raise damaged(name, "it has an event of no stream")
            stream = names[line.stream]
            records.append(_record(codec, line, stream, len(streams[stream]) + 1))
            streams[stream].append(records[-1])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise damaged(name, f"its content is invalid: {error}") from error
    if not records:
        raise damaged(name, "it has no events")
    if [each.events for each in manifest.streams] != [len(events) for events in streams.values()]:
        raise damaged(name, "its events do not match its manifest")
    git = reader.parts[-1] if kinds[-1] == GIT else None
    return Contents(manifest, streams, records, git)


def _lines(reader: BundleReader, name: str) -> Iterator[EventLine]:
    """The events one after the other; there are never more of them in memory than one part has."""
    parts = [part for part in reader.parts if part.kind == JOURNAL]
    count, count_max = 0, min(EVENTS_MAX, EVENTS_FREE + sum(part.stored for part in parts))
    for part in parts:
        content = reader.content(part)
        count += content.count(b"\n") + 1
        if count > count_max:
            raise damaged(name, "it has more events than a bundle can have, or than fit into so small a file")
        for line in content.split(b"\n"):
            yield _line_decoder.decode(line)


def _record(codec: Codec, line: EventLine, stream: str, version: int) -> Record:
    """An event in the format of this maos; errors name the event."""
    body = bytes(line.data)
    if not body.startswith(b"{"):  # what is no JSON object may be a compressed one, and is not looked at
        raise Corrupt(f"{stream}@{version} is not an object", hint="nothing was imported")
    recorded = Recorded(0, stream, version, 1, line.type, line.format, line.time_us, 0, body, b"")
    try:
        event, body, data = codec.decode(recorded)
    except UnknownFormat as error:
        raise UnknownFormat(f"{error.what}; nothing was imported") from error
    except Corrupt as error:
        raise Corrupt(error.what, hint="nothing was imported") from error
    return Record(0, stream, version, 1, line.type, line.time_us, 0, event, b"", len(body), body, data)
