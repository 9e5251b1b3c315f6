"""What is in a bundle: who wrote it, of what, and the events themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple

import msgspec

from maos.errors import Corrupt, InvalidInput, UnknownFormat
from maos.ids import NAME_CHARS_MAX
from maos.journal.codec import Codec
from maos.journal.journal import Record
from maos.store.contract import Recorded
from maos.transfer.file import FORMAT, GIT, JOURNAL, MANIFEST, BundleReader, BundleWriter, Part, damaged

PART_BYTES = 4 << 20
"""When a part of the journal is full; an event that is larger has one of its own."""
EVENTS_MAX = 5_000_000
EVENTS_FREE = 20_000
"""Beyond so many, each event takes at least a byte of the file: two of the same time and content are never many."""
STREAMS_MAX = 200_000
REFS_MAX = 200_000
TEXT_CHARS_MAX = 2_000

BundleKind = Literal["run", "workflow"]
"""What a bundle is of; also how the names of its streams begin."""
RUN: Final = "run"
WORKFLOW: Final = "workflow"


class StreamHead(msgspec.Struct, forbid_unknown_fields=True):
    """A stream of the bundle, and how many events of it are there."""

    name: str
    events: int


class Manifest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a bundle says of itself."""

    kind: BundleKind
    id: str
    title: str
    status: str
    made_by: str
    """The program that wrote it, with its version."""
    made_us: int
    position: int
    """Where the journal was: the bundle has nothing later."""
    carried_out: bool
    """Whether an engine was executing it then."""
    streams: list[StreamHead]
    refs: dict[str, str] = {}
    """What its commits are called, by name."""
    object_format: str = "sha1"
    left_out: list[str] = []
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
    order: list[str]
    """The stream of each event, in the order that they were recorded in."""
    times_us: list[int]
    """When each of them was."""
    git: Part | None


Raw = tuple[dict[str, Any], list[EventLine]]
UPGRADES: dict[int, Callable[[Raw], Raw]] = {}
"""How what is in a bundle of format n becomes that of format n + 1."""

_line_encoder = msgspec.json.Encoder()
_line_decoder = msgspec.json.Decoder(EventLine)


def write(writer: BundleWriter, manifest: Manifest, lines: Iterable[EventLine]) -> None:
    """The manifest and the events, in parts that one can have in memory."""
    writer.part(MANIFEST, msgspec.json.encode(manifest))
    filled: list[bytes] = []
    begin, size, count = writer.bytes, 0, 0
    for line in lines:
        count += 1
        body = _line_encoder.encode(line)
        if filled and size + len(body) > PART_BYTES:
            writer.part(JOURNAL, b"\n".join(filled))
            filled, size = [], 0
        filled.append(body)
        size += len(body) + 1
    if filled:
        writer.part(JOURNAL, b"\n".join(filled))
    if count > min(EVENTS_MAX, EVENTS_FREE + writer.bytes - begin):
        what = f"{manifest.id} has more events than a bundle can hold"
        raise InvalidInput(what, hint="`maos admin copy` copies the whole journal")


def read(reader: BundleReader, name: str, codec: Codec) -> Contents:
    """What is in a bundle, brought up to date; Corrupt or UnknownFormat for what cannot be read."""
    kinds = [part.kind for part in reader.parts]
    journal = kinds.count(JOURNAL)
    if kinds not in ([MANIFEST, *[JOURNAL] * journal], [MANIFEST, *[JOURNAL] * journal, GIT]):
        raise damaged(name, "its parts are not those of a bundle, in their order")
    try:
        raw: dict[str, Any] = msgspec.json.decode(reader.content(reader.parts[0]), type=dict[str, Any])
        lines: Iterable[EventLine] = _lines(reader, name)
        for format_ in range(reader.format, FORMAT):
            raw, lines = UPGRADES[format_]((raw, list(lines)))
        manifest = msgspec.convert(raw, Manifest)
        _check_counts(manifest, name)
        streams: dict[str, list[Record]] = {each.name: [] for each in manifest.streams}
        names = list(streams)
        if len(names) != len(manifest.streams):
            raise damaged(name, "it has the same stream twice")
        order: list[str] = []
        times_us: list[int] = []
        for line in lines:
            if not 0 <= line.stream < len(names):
                raise damaged(name, "it has an event of no stream")
            stream = names[line.stream]
            order.append(stream)
            times_us.append(line.time_us)
            streams[stream].append(_record(codec, line, stream, len(streams[stream]) + 1))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise damaged(name, f"it does not say what it should: {error}") from error
    if not order:
        raise damaged(name, "it has no events")
    if [each.events for each in manifest.streams] != [len(events) for events in streams.values()]:
        raise damaged(name, "it has not the events that it names")
    git = reader.parts[-1] if kinds[-1] == GIT else None
    return Contents(manifest, streams, order, times_us, git)


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


def _check_counts(manifest: Manifest, name: str) -> None:
    too_many = len(manifest.streams) > STREAMS_MAX or len(manifest.refs) > REFS_MAX
    texts = (manifest.title, manifest.status, manifest.made_by, *manifest.left_out)
    too_long = len(manifest.left_out) > 100 or any(len(text) > TEXT_CHARS_MAX for text in texts)
    if too_many or too_long or any(len(each.name) > NAME_CHARS_MAX for each in manifest.streams):
        raise damaged(name, "it says more of itself than a bundle does")


def _record(codec: Codec, line: EventLine, stream: str, version: int) -> Record:
    """An event in the format of this maos; whatever is wrong is said of the event by its name."""
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
