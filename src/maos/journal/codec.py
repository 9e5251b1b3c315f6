"""Events to bytes and back: data only, and no secrets.

A body is JSON, or a zstd frame of JSON; its first bytes tell which. It becomes strings, numbers, booleans, None, lists
and dictionaries, or the class of `maos.model.events` that is registered for its type, and nothing else. An event type
has a format number; older formats are brought up to date when read, newer or unknown ones are refused by name.

Every event that is appended is encoded here, and here secrets are removed from all of its texts. Only the types
that are registered as clean, `attempt_output` and `attempt_transcript`, are not searched: their texts were cleaned when
the engine read them from the agent.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
import zstandard
from msgspec import inspect

from maos.errors import Corrupt, InvalidInput, UnknownFormat
from maos.ids import event_id
from maos.journal import dictionary
from maos.journal.dictionary import Dictionaries
from maos.keys.envelope import MAGIC as SEALED
from maos.model.events.core import EventBase, Upcast, exact_fields, local_fields
from maos.model.events.parts import Local
from maos.redact import REDACTED, Redactor, clean
from maos.store.contract import RawEvent, Recorded
from maos.tuples import NamedTuple

if TYPE_CHECKING:
    from maos.keys.vault import Vault

Data = dict[str, Any]
T = TypeVar("T")

BODY_BYTES_MAX = 64 << 20
COMPRESS_BYTES_MIN = 400
DEPTH_MAX = 100
TYPE_CHARS_MAX = 100

_PLAIN: set[type] = {str, int, bool, type(None)}
"""Types whose values JSON keeps as they are; classes without loose fields are added when one is first seen."""
_REDACTED = REDACTED.encode()
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Data).decode


Decoded = tuple["EventBase | Event", bytes, Data | None]
"""An event, its JSON as it was stored (in the format of that time), and its plain data where that was needed."""


class Event(NamedTuple):
    """A fact to be recorded: what kind, and its data (plain JSON values only).

    Example::

        await journal.append("run/1", maos.Event("note", {"text": "hello"}))
    """

    type: str
    data: Mapping[str, Any]


E = TypeVar("E", bound="EventBase | Event")


class EncodedEvent(NamedTuple, Generic[E]):
    """An event without secrets, and the bytes that are stored of it. Only `Codec.prepare` makes one."""

    event: E
    """As it will be read."""
    raw: RawEvent

    @property
    def type(self) -> str:
        """The name that the event is stored under."""
        return self.raw.type


class EventTooLarge(InvalidInput):
    """An event is larger than the journal accepts; nothing was written."""


class EventType:
    """A kind of event: its name, its current format, and how to read its older formats.

    `upcasts[n]` turns data of format n into data of format n + 1. With `plain`, bodies are never compressed, so that
    other programs can read them in the database.

    Example::

        note = maos.EventType("note", 2, upcasts={1: lambda data: {"text": data["body"]}})
        async with maos.open("maos.db", types=[note]) as m:
            await m.journal.append("run/3", maos.Event("note", {"text": "hello"}))
    """

    __slots__ = ("check", "decode", "format", "loose", "name", "plain", "shape", "upcasts")
    decode: Callable[[bytes], Any]
    check: Callable[[bytes], Any]
    """Raises an error for a body that `decode` could not read."""
    loose: tuple[str, ...]
    """The fields of the class that can hold anything."""

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
        self.shape: type[EventBase] | None = None
        """The class of its events; None for a type whose events are plain data."""
        missing = set(range(1, format)) - set(self.upcasts)
        if missing:
            raise InvalidInput(
                f"event type {name} has format {format} but no upcast from {min(missing)}",
                hint="events once written stay readable: give an upcast for every older format",
            )

    @classmethod
    def of(cls, shape: type[EventBase]) -> EventType:
        """The type of the events of a class."""
        found = cls(shape.type, shape.format, upcasts=shape.upcasts, plain=shape.plain)
        found.shape = shape
        return found

    def __getattr__(self, name: str) -> Any:
        """Make a decoder when it is first used: those of all types take as long as the rest of a short command."""
        shape = self.shape
        match name:
            case "decode":
                self.decode = _decode if shape is None else msgspec.json.Decoder(shape).decode
            case "check":
                self.check = _decode if shape is None else msgspec.json.Decoder(_skeleton(shape)).decode
            case "loose":
                self.loose = () if shape is None else loose_fields(shape)
            case _:
                raise AttributeError(name)
        return getattr(self, name)


class Codec:
    """Encodes events of known types and decodes whatever the journal holds of them."""

    def __init__(
        self,
        types: Iterable[EventType],
        dictionaries: Dictionaries,
        secrets: Mapping[str, str] | None = None,
        vault: Vault | None = None,
    ) -> None:
        self.vault = vault
        """What opens sealed bodies; None when the store is not encrypted."""
        self._types: dict[str, EventType] = {}
        self.secrets = dict(secrets or {})
        """Values that no event has, beside what has the shape of a secret."""
        self.redactor = Redactor(self.secrets)
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

    def redacted(self, data: T) -> T:
        """Plain data without its secrets; the same object when it has none."""
        try:
            body = _encode(data)
        except (ValueError, TypeError, OverflowError):
            return data  # it cannot be stored: `plain` says why
        return clean(data, self.redactor.text) if self.redactor.spans(body) else data

    def plain(self, event: Event | EventBase, *, is_stored: bool = False) -> tuple[EventType, bytes]:
        """The type and the uncompressed body of an event, without secrets; InvalidInput for what could not be read
        again. `is_stored`: it is computed from events that are stored, and must be equal to them."""
        kind = self._types.get(event.type)
        if kind is None:
            raise UnknownFormat(
                f"event type {event.type!r} is not registered", hint="pass types=[maos.EventType(...)] to maos.open"
            )
        body = _body(kind, event) if isinstance(event, EventBase) else _body_of_data(kind, event.data)
        if not (is_stored or (kind.shape is not None and kind.shape.is_clean)) and self.redactor.spans(body):
            body = self._without_secrets(kind, body)
        if len(body) > BODY_BYTES_MAX:
            hint = f"at most {BODY_BYTES_MAX} are allowed"
            raise EventTooLarge(f"event {kind.name} has {len(body)} bytes", hint=hint)
        return kind, body

    def _without_secrets(self, kind: EventType, body: bytes) -> bytes:
        data = _decode(body)
        cleaned = clean(data, self.redactor.text)
        for path, local in local_fields(kind.name):
            if local not in (Local.SERVERS, Local.VARIABLES):  # folders and processes are needed as they are
                _put_back(cleaned, data, path)
        if cleaned == data:
            return body
        for name in exact_fields(kind.name):
            if cleaned.get(name) != data.get(name):
                raise InvalidInput(
                    f"event {kind.name}: its field {name} contains a secret, and can only be stored as it is",
                    hint="remove the secret first",
                )
        return _body_of_data(kind, cleaned)

    def encode(self, event: Event | EventBase) -> RawEvent:
        """An event as the store takes it, compressed where that pays."""
        return self._raw(*self.plain(event))

    def prepare(self, event: E) -> EncodedEvent[E]:
        """An event as the store takes it, and as it will be read: for those who fold it before it is written."""
        kind, body = self.plain(event)
        if _REDACTED in body:
            read: Any = Event(kind.name, _decode(body)) if kind.shape is None else kind.decode(body)
            event = read
        return EncodedEvent(event, self._raw(kind, body))

    def _raw(self, kind: EventType, body: bytes) -> RawEvent:
        if len(body) >= COMPRESS_BYTES_MIN and (not kind.plain or self.vault is not None):
            body = self._dictionaries.compress(body)
        return RawEvent(kind.name, kind.format, body)

    def encode_sealed(self, event: Event | EventBase) -> RawEvent:
        """An event as the store takes it, with a checksum inside: for events outside the hash chain (compaction)."""
        kind, body = self.plain(event, is_stored=True)
        frame = zstandard.ZstdCompressor(level=dictionary.ZSTD_LEVEL, write_checksum=True).compress(body)
        return RawEvent(kind.name, kind.format, frame)

    def opened(self, event: Recorded) -> bytes:
        """The body of an event as it was before it was sealed; UnknownKey when its key must be fetched first."""
        if not event.body.startswith(SEALED):
            return event.body
        if self.vault is None:
            raise damaged(event, "is sealed, and the database has no keys")
        return self.vault.open_event(event)

    def decode(self, event: Recorded) -> Decoded:
        """A recorded event in its type's current format; never a made-up value (I11)."""
        body = event.body
        kind = self._types.get(event.type)
        if kind is None:
            raise UnknownFormat(f"{event_id(event.stream, event.version)} has the unknown type {event.type!r}")
        if not 1 <= event.format <= kind.format:
            raise UnknownFormat(
                f"{event_id(event.stream, event.version)} is {event.type} in format {event.format}, "
                f"this maos knows formats up to {kind.format}"
            )
        try:
            if body.startswith(SEALED):
                body = self.opened(event)
            if body.startswith(_ZSTD_MAGIC):
                body = self._dictionaries.decompress(body)
            elif event.type == dictionary.TYPE and body.startswith(dictionary.MAGIC):
                body = _encode({"bytes": len(body)})
            if kind.shape is not None and event.format == kind.format:
                return kind.decode(body), body, None
            data = _decode(body)
        except (ValueError, RecursionError, Corrupt) as error:  # msgspec's errors are ValueErrors, zstd's are Corrupt
            raise damaged(event, f"cannot be decoded: {error}") from error
        for format_ in range(event.format, kind.format):
            data = kind.upcasts[format_](data)
        if kind.shape is None:
            return Event(kind.name, data), body, data
        try:
            return msgspec.convert(data, kind.shape), body, data
        except ValueError as error:
            raise damaged(event, f"cannot be decoded: {error}") from error

    def data(self, event: Recorded) -> Data:
        """A recorded event as plain data, in its type's current format."""
        _event, body, data = self.decode(event)
        return _decode(body) if data is None else data


def damaged(event: Recorded, what: str) -> Corrupt:
    """The error for an event that does not verify."""
    return Corrupt(f"{event_id(event.stream, event.version)} {what}", stream=event.stream, version=event.version)


def _put_back(cleaned: Any, data: Any, path: tuple[str, ...]) -> None:
    """Set the value at a path of cleaned data to what it was; `*` in a path stands for every key."""
    if not isinstance(data, dict) or not isinstance(cleaned, dict):
        return
    for key in data if path[0] == "*" else (path[0],):
        if key in data and key in cleaned:
            if len(path) > 1:
                _put_back(cleaned[key], data[key], path[1:])
            else:
                cleaned[key] = data[key]


def _body(kind: EventType, event: EventBase) -> bytes:
    """The body of a typed event. It is decoded again: only that shows that values have the types of their fields."""
    for name in kind.loose:
        value = getattr(event, name)
        if type(value) not in _PLAIN:
            check_plain(value, f"/{name}", 1)
    try:
        body = _encode(event)
        kind.check(body)
    except ValueError as error:
        raise _unfit(kind, event.data, error) from error
    return body


def _body_of_data(kind: EventType, data: Any) -> bytes:
    if type(data) is not dict:
        raise InvalidInput(f"the data of event {kind.name} is a {type(data).__name__}", hint="give it a dictionary")
    check_plain(data)
    try:
        body = _encode(data)
        if kind.shape is not None:
            kind.decode(body)
    except ValueError as error:
        raise _unfit(kind, data, error) from error
    return body


def _unfit(kind: EventType, data: Data, error: ValueError) -> InvalidInput:
    if isinstance(error, msgspec.ValidationError):
        return InvalidInput(f"event {kind.name}: {error}", hint="give its fields the types that they have")
    return InvalidInput(
        f"event {kind.name}: {_culprit(data) or '/'}: {error}",
        hint="lone surrogates are not text, and numbers have at most 4300 digits",
    )


def _culprit(value: Any, path: str = "") -> str:
    """The path of what could not be encoded, or of the dictionary with a key that could not."""
    items = value.items() if type(value) is dict else enumerate(value) if type(value) is list else ()
    for key, item in items:
        try:
            _encode(item)
        except ValueError:
            return _culprit(item, f"{path}/{key}")
    return path


def is_plain(value: Any) -> bool:
    """Whether JSON keeps a value as it is; `check_plain` says what is wrong, and where."""
    return _fault(value, 0) is None


def check_plain(value: Any, path: str = "", depth: int = 0) -> None:
    """InvalidInput, naming the place, for anything JSON would change or lose."""
    fault = _fault(value, depth)
    if fault is not None:
        place, what, hint = fault
        raise InvalidInput(f"{path + place or '/'}{what}", hint=hint)


def _fault(value: Any, depth: int) -> tuple[str, str, str | None] | None:
    """The place of something that JSON would change or lose, what it is, and what to do."""
    kind = type(value)
    if kind in _PLAIN:
        return None
    if kind is float:
        if math.isfinite(value):
            return None
        return "", f" is {value}", "JSON has no such number; use None or a string"
    if depth >= DEPTH_MAX:
        return "", f" is nested more than {DEPTH_MAX} levels deep", None
    items: Iterable[tuple[Any, Any]]
    if kind is dict:
        items = value.items()
    elif kind is list:
        items = enumerate(value)
    elif isinstance(value, msgspec.Struct):
        loose = loose_fields(kind)  # type: ignore[arg-type]  # a class is hashable
        if not loose:
            _PLAIN.add(kind)
        items = [(name, getattr(value, name)) for name in loose]
    else:
        hint = "store plain JSON values: strings, numbers, booleans, None, lists, dictionaries"
        return "", f" is a {kind.__module__}.{kind.__qualname__}", hint
    for key, item in items:
        if kind is dict and type(key) is not str:
            return f"/{key!r}", f": the key is a {type(key).__name__}", "keys are strings in JSON"
        if type(item) not in _PLAIN and (fault := _fault(item, depth + 1)) is not None:
            return f"/{key}{fault[0]}", *fault[1:]
    return None


@functools.cache
def loose_fields(kind: type[Any]) -> tuple[str, ...]:
    """The fields of a class that can hold anything, so that their types do not say whether JSON keeps them."""
    return tuple(each.name for each in msgspec.structs.fields(kind) if _is_loose(inspect.type_info(each.type)))


def _skeleton(shape: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """A class that checks the types of all fields but those that can hold anything, which can be large."""
    fields: list[Any] = []
    for each in msgspec.structs.fields(shape):
        plain = each.type.__origin__ if hasattr(each.type, "__metadata__") else each.type
        item = getattr(plain, "__args__", (plain,))[-1]
        kind = msgspec.Raw if item is Any else each.type
        fields.append((each.encode_name, kind) if each.required else (each.encode_name, kind, None))
    return msgspec.defstruct(shape.__name__, fields, kw_only=True)


def _is_loose(kind: inspect.Type) -> bool:
    inside = [getattr(kind, name) for name in ("item_type", "value_type") if hasattr(kind, name)]
    inside += [*getattr(kind, "types", ()), *getattr(kind, "item_types", ())]
    inside += [each.type for each in getattr(kind, "fields", ())]
    return isinstance(kind, inspect.AnyType) or any(map(_is_loose, inside))
