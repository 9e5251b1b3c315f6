"""What is in a bundle: who wrote it, of what, and the events themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from maos.bundle.file import FORMAT, GIT, JOURNAL, MANIFEST, Part, Reader, Writer, damaged
from maos.errors import Corrupt, UnknownFormat
from maos.ids import NAME_CHARS_MAX
from maos.journal.codec import Codec, Data, Event
from maos.store.contract import Recorded

PART_BYTES = 4 << 20
"""When a part of the journal is full; an event that is larger has one of its own."""
EVENTS_MAX = 5_000_000
STREAMS_MAX = 200_000
REFS_MAX = 200_000
TEXT_CHARS_MAX = 2_000

RUN, WORKFLOW = "run", "workflow"


class StreamHead(msgspec.Struct, forbid_unknown_fields=True):
    """A stream of the bundle, and how many events of it are there."""

    name: str
    events: int


class Manifest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a bundle says of itself."""

    kind: Literal["run", "workflow"]
    id: str
    title: str
    status: str
    made_by: str
    """The program that wrote it, with its version."""
    made_us: int
    position: int
    """Where the journal was: everything in the bundle is of this one moment."""
    carried_out: bool
    """Whether somebody was at work on it then, and went on."""
    streams: list[StreamHead]
    refs: dict[str, str] = {}
    """What its commits are called, by name."""
    object_format: str = "sha1"
    left_out: list[str] = []
    """What belongs to it and is not in the bundle."""


class Line(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """An event: the number of its stream, its type and format, when it was recorded, and its data."""

    stream: int
    type: str
    format: int
    time_us: int
    data: msgspec.Raw


class Contents(NamedTuple):
    """A bundle that was read."""

    manifest: Manifest
    streams: dict[str, list[Event]]
    """The events of each stream, in the formats of this maos."""
    git: Part | None


Raw = tuple[dict[str, Any], list[Line]]
UPGRADES: dict[int, Callable[[Raw], Raw]] = {}
"""How what is in a bundle of format n becomes that of format n + 1."""

_line_encoder = msgspec.json.Encoder()
_line_decoder = msgspec.json.Decoder(Line)


def write(writer: Writer, manifest: Manifest, lines: Iterable[Line]) -> None:
    """The manifest and the events, in parts that one can have in memory."""
    writer.part(MANIFEST, msgspec.json.encode(manifest))
    filled: list[bytes] = []
    size = 0
    for line in lines:
        body = _line_encoder.encode(line)
        if filled and size + len(body) > PART_BYTES:
            writer.part(JOURNAL, b"\n".join(filled))
            filled, size = [], 0
        filled.append(body)
        size += len(body) + 1
    if filled:
        writer.part(JOURNAL, b"\n".join(filled))


def read(reader: Reader, name: str, codec: Codec) -> Contents:
    """What is in a bundle, brought up to date; Corrupt or UnknownFormat for what cannot be read."""
    kinds = [part.kind for part in reader.parts]
    journal = kinds.count(JOURNAL)
    if kinds not in ([MANIFEST, *[JOURNAL] * journal], [MANIFEST, *[JOURNAL] * journal, GIT]):
        raise damaged(name, "its parts are not those of a bundle, in their order")
    try:
        raw: dict[str, Any] = msgspec.json.decode(reader.content(reader.parts[0]), type=dict[str, Any])
        lines = list(_lines(reader, name))
        for format_ in range(reader.format, FORMAT):
            raw, lines = UPGRADES[format_]((raw, lines))
        manifest = msgspec.convert(raw, Manifest)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise damaged(name, f"it does not say what it should: {error}") from error
    _check_counts(manifest, lines, name)
    streams: dict[str, list[Event]] = {each.name: [] for each in manifest.streams}
    names = list(streams)
    if len(names) != len(manifest.streams):
        raise damaged(name, "it has the same stream twice")
    for line in lines:
        if not 0 <= line.stream < len(names):
            raise damaged(name, "it has an event of no stream")
        stream = names[line.stream]
        streams[stream].append(Event(line.type, _data(codec, line, stream, len(streams[stream]) + 1)))
    if [each.events for each in manifest.streams] != [len(events) for events in streams.values()]:
        raise damaged(name, "it has not the events that it names")
    return Contents(manifest, streams, reader.parts[-1] if kinds[-1] == GIT else None)


def _lines(reader: Reader, name: str) -> Iterator[Line]:
    count = 0
    for part in reader.parts:
        if part.kind != JOURNAL:
            continue
        for line in reader.content(part).split(b"\n"):
            count += 1
            if count > EVENTS_MAX:
                raise damaged(name, "it has more events than a bundle can have")
            yield _line_decoder.decode(line)


def _check_counts(manifest: Manifest, lines: list[Line], name: str) -> None:
    too_many = len(manifest.streams) > STREAMS_MAX or len(manifest.refs) > REFS_MAX
    texts = (manifest.title, manifest.status, manifest.made_by, *manifest.left_out)
    too_long = len(manifest.left_out) > 100 or any(len(text) > TEXT_CHARS_MAX for text in texts)
    if too_many or too_long or any(len(each.name) > NAME_CHARS_MAX for each in manifest.streams):
        raise damaged(name, "it says more of itself than a bundle does")
    if not lines:
        raise damaged(name, "it has no events")


def _data(codec: Codec, line: Line, stream: str, version: int) -> Data:
    """The data of an event in the format of this maos; whatever is wrong is said of the event by its name."""
    body = bytes(line.data)
    if not body.startswith(b"{"):  # what is no JSON object may be a compressed one, and is not looked at
        raise Corrupt(f"{stream}@{version} is not an object", hint="nothing was imported")
    try:
        return codec.decode(Recorded(0, stream, version, 1, line.type, line.format, line.time_us, 0, body, b""))
    except UnknownFormat as error:
        raise UnknownFormat(f"{error.what}; nothing was imported") from error
