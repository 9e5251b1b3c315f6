"""A segment: the events of a range of positions, sealed, as one object of a backup.

    magic    15 bytes
    format   2 bytes, the number of the format
    header   its length (4 bytes), then JSON: `SegmentHeader`
    content  a zstd frame: the names of streams, the events with their hashes, the keys of their appends
    seal     SHA-256 of everything before it

All numbers are big-endian. A segment names the hash of the event before its first one and that of its last one, so that
segments follow one another whichever of them were merged since. A backup can come from anywhere: no length that a
segment declares is believed beyond the limits here, and its seal is compared before its content is looked at.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Annotated

import msgspec
import zstandard

from maos.errors import Corrupt, UnknownFormat
from maos.ids import NAME_CHARS_MAX
from maos.store.contract import Recorded, UsedKey

MAGIC = b"maos segment\r\n\x1a"
FORMAT = 1
ZSTD_LEVEL = 3
SEGMENT_BYTES_MAX = 256 << 20
"""Of a segment as stored. One event can have 64 MB, and those of one commit are not divided."""
CONTENT_BYTES_MAX = 512 << 20
HEADER_BYTES_MAX = 4096

_HEAD = struct.Struct(f">{len(MAGIC)}sHI")
_SEAL_BYTES = hashlib.sha256().digest_size

Position = Annotated[int, msgspec.Meta(ge=1)]
Hash = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class SegmentHeader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a segment declares of itself."""

    store: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    """The identity of the database that it is of."""
    first: Position
    """The position after the segment before it."""
    last: Position
    follows: Hash
    """The hash of the event before it; zeros for the first segment."""
    ends: Hash
    """The hash of its last event."""
    events: Annotated[int, msgspec.Meta(ge=1)]
    keys: Annotated[int, msgspec.Meta(ge=0)]
    began_us: int
    """When its first event was recorded."""
    ended_us: int
    size: Annotated[int, msgspec.Meta(ge=1, le=CONTENT_BYTES_MAX)]
    """Bytes of the content, uncompressed."""


class EventRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An event as it was recorded; its stream by its number in the segment."""

    position: Position
    stream: Annotated[int, msgspec.Meta(ge=0)]
    version: Position
    spans: Position
    type: str
    format: int
    time_us: int
    token: int
    body: bytes
    hash: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]


class SegmentContent(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The names of streams, the events, and the keys of their appends."""

    streams: list[Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]]
    events: list[EventRow]
    keys: list[UsedKey]


class Segment(msgspec.Struct, frozen=True):
    """A segment that was read."""

    header: SegmentHeader
    events: list[Recorded]
    keys: list[UsedKey]


_encoder = msgspec.msgpack.Encoder()
_headers = msgspec.json.Decoder(SegmentHeader)
_contents = msgspec.msgpack.Decoder(SegmentContent)


def seal(store: str, follows: bytes, first: int, events: Sequence[Recorded], keys: Sequence[UsedKey]) -> bytes:
    """Return the bytes of a segment of these events, the first of which may be at `first`, or later if compacted."""
    numbers: dict[str, int] = {}
    rows = [EventRow(event.position, numbers.setdefault(event.stream, len(numbers)), *event[2:]) for event in events]
    content = _encoder.encode(SegmentContent(list(numbers), rows, list(keys)))
    header = SegmentHeader(
        store=store,
        first=first,
        last=events[-1].position,
        follows=follows.hex(),
        ends=events[-1].hash.hex(),
        events=len(events),
        keys=len(keys),
        began_us=events[0].time_us,
        ended_us=events[-1].time_us,
        size=len(content),
    )
    declared = msgspec.json.encode(header)
    whole = _HEAD.pack(MAGIC, FORMAT, len(declared)) + declared
    whole += zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(content)
    return whole + hashlib.sha256(whole).digest()


def read(name: str, stored: bytes) -> Segment:
    """Return what a segment holds; raise Corrupt, or UnknownFormat for one of a newer maos."""
    header, compressed = _open(name, stored)
    try:
        content = zstandard.ZstdDecompressor().decompress(compressed, max_output_size=header.size)
        if len(content) != header.size:
            raise damaged(name, "its content has another length than it declares")
        found = _contents.decode(content)
        events = [Recorded(row.position, found.streams[row.stream], *_rest(row)) for row in found.events]
    except (zstandard.ZstdError, msgspec.MsgspecError, IndexError, MemoryError) as error:
        raise damaged(name, f"its content cannot be read: {error}") from error
    _check(name, header, events, found)
    return Segment(header, events, found.keys)


def part_from(segment: Segment, first: int) -> Segment | None:
    """Return the part of a segment from a position on; None when no event of it ends just before the position."""
    header = segment.header
    if header.first == first:
        return segment
    before = [event for event in segment.events if event.position < first]
    events = segment.events[len(before) :]
    if not before or not events or before[-1].position != first - 1:
        return None
    keys = [key for key in segment.keys if key.position >= first - 1]
    header = msgspec.structs.replace(
        header, first=first, follows=before[-1].hash.hex(), events=len(events), keys=len(keys),
        began_us=events[0].time_us,
    )  # fmt: skip
    return Segment(header, events, keys)


def read_header(name: str, stored: bytes) -> SegmentHeader:
    """Return what a segment declares, after its seal was compared."""
    return _open(name, stored)[0]


def damaged(name: str, why: str) -> Corrupt:
    """Return the error for an object of a backup that is not as it was written."""
    hint = "restore it from a copy of the backup, or restore to a time before it; `maos backup verify` lists all damage"
    return Corrupt(f"{name} is damaged: {why}", hint=hint)


def _open(name: str, stored: bytes) -> tuple[SegmentHeader, bytes]:
    if len(stored) > SEGMENT_BYTES_MAX:
        raise damaged(name, "it is larger than a segment can be")
    if len(stored) < _HEAD.size + _SEAL_BYTES or not stored.startswith(MAGIC):
        raise damaged(name, "it does not begin as a segment does")
    _magic, format_, length = _HEAD.unpack_from(stored)
    if format_ > FORMAT:
        raise UnknownFormat(f"{name} has format {format_}, this maos knows up to {FORMAT}", hint="upgrade maos")
    whole, found = stored[:-_SEAL_BYTES], stored[-_SEAL_BYTES:]
    if hashlib.sha256(whole).digest() != found:
        raise damaged(name, "it does not match its seal")
    end = _HEAD.size + length
    if length > HEADER_BYTES_MAX or end > len(whole):
        raise damaged(name, "its header is longer than a header can be")
    try:
        return _headers.decode(whole[_HEAD.size : end]), whole[end:]
    except msgspec.MsgspecError as error:
        raise damaged(name, f"its header is not valid: {error}") from error


def _check(name: str, header: SegmentHeader, events: list[Recorded], found: SegmentContent) -> None:
    """Raise unless the content is what the header declares."""
    declared = (header.events, header.keys, header.last, header.ends)
    if not events or (len(events), len(found.keys), events[-1].position, events[-1].hash.hex()) != declared:
        raise damaged(name, "its content is not what it declares")
    before = header.first - 1
    for event in events:
        if event.position <= before:
            raise damaged(name, f"position {event.position} follows {before}")
        before = event.position


def _rest(row: EventRow) -> tuple[int, int, str, int, int, int, bytes, bytes]:
    return row.version, row.spans, row.type, row.format, row.time_us, row.token, row.body, row.hash
