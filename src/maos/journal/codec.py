"""Events to bytes and back: data only.

A body is JSON, or a zstd frame of JSON; its first bytes tell which. Nothing in it is ever turned into anything but
strings, numbers, booleans, None, lists and dictionaries. An event type has a format number; older formats are brought
up to date when read, newer or unknown ones are refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from maos.errors import Corrupt, InvalidInput, UnknownFormat
from maos.ids import event_id
from maos.journal import dictionary
from maos.journal.dictionary import Dictionaries
from maos.store.contract import RawEvent, Recorded

Data = dict[str, Any]
Upcast = Callable[[Data], Data]

BODY_BYTES_MAX = 64 << 20
COMPRESS_BYTES_MIN = 400
DEPTH_MAX = 100
TYPE_CHARS_MAX = 100

_SCALARS = frozenset((str, int, bool, type(None)))
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Event(NamedTuple):
    """A fact to be recorded: what kind, and its data (plain JSON values only).

    Example::

        await journal.append("run/1", maos.Event("note", {"text": "hello"}))
    """

    type: str
    data: Mapping[str, Any]


class EventType:
    """A kind of event: its name, its current format, and how to read its older formats.

    `upcasts[n]` turns data of format n into data of format n + 1. With `plain`, bodies are never compressed, so that
    other programs can read them in the database.

    Example::

        note = maos.EventType("note", 2, upcasts={1: lambda data: {"text": data["body"]}})
        async with maos.open("maos.db", types=[note]) as m:
            await m.journal.append("run/3", maos.Event("note", {"text": "hello"}))
    """

    __slots__ = ("format", "name", "plain", "upcasts")

    def __init__(
        self, name: str, format: int = 1, *, upcasts: Mapping[int, Upcast] | None = None, plain: bool = False
    ) -> None:
        if not name or len(name) > TYPE_CHARS_MAX or not name.isprintable():
            raise InvalidInput(f"{name!r} cannot name an event type", hint="use a short word such as task_done")
        if format < 1:
            raise InvalidInput(f"event type {name} cannot have format {format}", hint="formats begin at 1")
        self.name = name
        self.format = format
        self.plain = plain
        self.upcasts = dict(upcasts or {})
        missing = set(range(1, format)) - set(self.upcasts)
        if missing:
            raise InvalidInput(
                f"event type {name} has format {format} but no upcast from {min(missing)}",
                hint="events once written stay readable: give an upcast for every older format",
            )


class Codec:
    """Encodes events of known types and decodes whatever the journal holds of them."""

    def __init__(self, types: Iterable[EventType], dictionaries: Dictionaries) -> None:
        self._types: dict[str, EventType] = {}
        self._dictionaries = dictionaries
        for kind in types:
            self.add(kind)

    def add(self, kind: EventType) -> None:
        """Make a type known."""
        known = self._types.get(kind.name)
        if known is not None and known is not kind:
            raise InvalidInput(f"event type {kind.name} is registered twice")
        self._types[kind.name] = kind

    def format_of(self, name: str) -> int:
        """The format in which events of a type are written and read now."""
        return self._types[name].format

    def plain(self, event: Event) -> tuple[EventType, bytes]:
        """The type and the uncompressed body of an event; InvalidInput for what is not plain data."""
        type_, data = event
        kind = self._types.get(type_)
        if kind is None:
            raise UnknownFormat(
                f"event type {type_!r} is not registered", hint="pass types=[maos.EventType(...)] to maos.open"
            )
        if type(data) is not dict:
            raise InvalidInput(f"the data of event {type_} is a {type(data).__name__}", hint="give it a dictionary")
        if not is_plain(data):
            check_plain(data)
        try:
            body = _encode(data)
        except ValueError as error:
            raise InvalidInput(
                f"event {type_}: {_culprit(data) or '/'}: {error}",
                hint="lone surrogates are not text, and numbers have at most 4300 digits",
            ) from error
        if len(body) > BODY_BYTES_MAX:
            raise InvalidInput(f"event {type_} has {len(body)} bytes", hint=f"at most {BODY_BYTES_MAX} are allowed")
        return kind, body

    def encode(self, event: Event) -> RawEvent:
        """An event as the store takes it, compressed where that pays."""
        kind, body = self.plain(event)
        if len(body) >= COMPRESS_BYTES_MIN and not kind.plain:
            body = self._dictionaries.compress(body)
        return RawEvent(kind.name, kind.format, body)

    def encode_sealed(self, event: Event) -> RawEvent:
        """The same with a checksum inside, for events that stand outside the hash chain (compaction)."""
        kind, body = self.plain(event)
        return RawEvent(kind.name, kind.format, self._dictionaries.compress_with_checksum(body))

    def decode(self, event: Recorded) -> Data:
        """The data of a recorded event, in its type's current format; never a made-up value (I11)."""
        kind = self._types.get(event.type)
        if kind is None:
            raise UnknownFormat(f"{event_id(event.stream, event.version)} has the unknown type {event.type!r}")
        if not 1 <= event.format <= kind.format:
            raise UnknownFormat(
                f"{event_id(event.stream, event.version)} is {event.type} in format {event.format}, "
                f"this maos knows formats up to {kind.format}"
            )
        data = self._decode(event)
        if event.format < kind.format:
            for format_ in range(event.format, kind.format):
                data = kind.upcasts[format_](data)
        return data

    def _decode(self, event: Recorded) -> Data:
        body = event.body
        try:
            if body.startswith(_ZSTD_MAGIC):
                body = self._dictionaries.decompress(body)
            elif event.type == dictionary.TYPE and body.startswith(dictionary.MAGIC):
                return {"bytes": len(body)}
            data = _decode(body)
        except (ValueError, RecursionError, Corrupt) as error:  # msgspec's errors are ValueErrors, zstd's are Corrupt
            raise Corrupt(
                f"{event_id(event.stream, event.version)} cannot be decoded: {error}",
                stream=event.stream,
                version=event.version,
            ) from error
        if type(data) is not dict:
            raise Corrupt(
                f"{event_id(event.stream, event.version)} is not an object", stream=event.stream, version=event.version
            )
        return data


def _culprit(value: Any, path: str = "") -> str:
    """The path of what could not be encoded, or of the dictionary with a key that could not."""
    items = value.items() if type(value) is dict else enumerate(value) if type(value) is list else ()
    for key, item in items:
        try:
            _encode(item)
        except ValueError:
            return _culprit(item, f"{path}/{key}")
    return path


def is_plain(value: Any, depth: int = 0) -> bool:
    """Whether JSON keeps a value as it is. Half the work of `check_plain`, which can say what is wrong, and where."""
    kind = type(value)
    if kind in _SCALARS:
        return True
    if kind is float:
        return math.isfinite(value)
    if depth >= DEPTH_MAX:
        return False
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or (type(item) not in _SCALARS and not is_plain(item, depth + 1)):
                return False
        return True
    if kind is list:
        for item in value:  # noqa: SIM110 - all() of a generator takes twice as long
            if type(item) not in _SCALARS and not is_plain(item, depth + 1):
                return False
        return True
    return False


def check_plain(value: Any, path: str = "", depth: int = 0) -> None:
    """InvalidInput, naming the place, for anything JSON would change or lose."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return
    if kind is float:
        if not math.isfinite(value):
            raise InvalidInput(f"{path or '/'} is {value}", hint="JSON has no such number; use None or a string")
        return
    if depth >= DEPTH_MAX:
        raise InvalidInput(f"{path} is nested more than {DEPTH_MAX} levels deep")
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise InvalidInput(
                    f"{path}/{key!r}: the key is a {type(key).__name__}", hint="keys are strings in JSON"
                )
            kind = type(item)
            if kind is not str and kind is not int:
                check_plain(item, f"{path}/{key}", depth + 1)
    elif kind is list:
        for index, item in enumerate(value):
            check_plain(item, f"{path}/{index}", depth + 1)
    else:
        raise InvalidInput(
            f"{path or '/'} is a {kind.__module__}.{kind.__qualname__}",
            hint="store plain JSON values: strings, numbers, booleans, None, lists, dictionaries",
        )
