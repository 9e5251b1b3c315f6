"""What every typed event is, and the registry of all of them.

An event type is one frozen class. Its name is a column of the store, so the body of an event has its fields only; a
field that has its default value is left out. Fields that this maos does not know are ignored by the class, and stay
readable in the stored body.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import msgspec

Upcast = Callable[[dict[str, Any]], dict[str, Any]]
"""Turns data of one format of a type into data of the next format."""


class EventBase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event of a known type."""

    type: ClassVar[str]
    """The name that the event is stored under."""
    format: ClassVar[int] = 1
    plain: ClassVar[bool] = False
    """Whether bodies are stored uncompressed, so that the SQL views can read them."""
    upcasts: ClassVar[Mapping[int, Upcast]] = {}

    @property
    def data(self) -> dict[str, Any]:
        """The fields as plain data, without those that have their default values."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


E = TypeVar("E", bound=EventBase)

EVENTS: dict[str, type[EventBase]] = {}
"""All typed events by the names that they are stored under."""


def event(name: str, *, plain: bool = False) -> Callable[[type[E]], type[E]]:
    """Register a class as the type of the events that are stored under a name."""

    def register(cls: type[E]) -> type[E]:
        if name in EVENTS:
            raise ValueError(f"the event type {name} is defined twice")
        cls.type, cls.plain = name, plain
        EVENTS[name] = cls
        return cls

    return register
