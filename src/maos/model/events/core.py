"""What every typed event is, and the registry of all of them.

An event type is one frozen class. Its name is a column of the store, so the body of an event has its fields only; a
field that has its default value is left out. Fields that this maos does not know are ignored by the class, and stay
readable in the stored body.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, NotRequired, TypeVar, get_origin, get_type_hints, is_typeddict

import msgspec

from maos.model.events.parts import EXACT, Local, LocalPart

Upcast = Callable[[dict[str, Any]], dict[str, Any]]
"""Turns data of one format of a type into data of the next format."""


class EventBase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An event of a known type."""

    type: ClassVar[str]
    """The name that the event is stored under."""
    format: ClassVar[int] = 1
    plain: ClassVar[bool] = False
    """Whether bodies are stored uncompressed, so that the SQL views can read them."""
    is_clean: ClassVar[bool] = False
    """Whether secrets were removed from its texts at their source, so that the journal does not search them again."""
    upcasts: ClassVar[Mapping[int, Upcast]] = {}

    @property
    def data(self) -> dict[str, Any]:
        """The fields as plain data, without those that have their default values."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


E = TypeVar("E", bound=EventBase)

EVENTS: dict[str, type[EventBase]] = {}
"""All typed events by the names that they are stored under."""


def event(name: str, *, plain: bool = False, is_clean: bool = False) -> Callable[[type[E]], type[E]]:
    """Register a class as the type of the events that are stored under a name."""

    def register(cls: type[E]) -> type[E]:
        if name in EVENTS:
            raise ValueError(f"the event type {name} is defined twice")
        cls.type, cls.plain, cls.is_clean = name, plain, is_clean
        EVENTS[name] = cls
        return cls

    return register


@functools.cache
def exact_fields(name: str) -> tuple[str, ...]:
    """The fields of a type of events that are stored as they are given, or not at all; none for types of others."""
    kind = EVENTS.get(name)
    hints = get_type_hints(kind, include_extras=True) if kind is not None else {}
    return tuple(field for field, hint in hints.items() if EXACT in getattr(hint, "__metadata__", ()))


@functools.cache
def local_fields(name: str) -> tuple[tuple[tuple[str, ...], Local], ...]:
    """The path of each local field in the data of a type of events, and what it says; none for types of others."""
    kind = EVENTS.get(name)
    if kind is None:
        return ()
    names = {each.name: each.encode_name for each in msgspec.structs.fields(kind)}
    hints = get_type_hints(kind, include_extras=True).items()
    return tuple(found for name, hint in hints if name in names for found in _local((names[name],), hint))


def _local(path: tuple[str, ...], hint: Any) -> Iterator[tuple[tuple[str, ...], Local]]:
    hint = hint.__args__[0] if get_origin(hint) is NotRequired else hint
    for each in getattr(hint, "__metadata__", ()):
        if isinstance(each, Local):
            yield path, each
        elif isinstance(each, LocalPart):
            yield (*path, *each.path.split(".")), each.local
    inner = hint.__origin__ if get_origin(hint) is Annotated else hint
    if is_typeddict(inner):
        for name, part in get_type_hints(inner, include_extras=True).items():
            yield from _local((*path, name), part)
