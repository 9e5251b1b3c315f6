"""Events and facts for tests: made from plain data, and as plain data."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from maos.model.events import EVENTS
from maos.model.events.facts import Fact, Text


def event(type_: str, **data: Any) -> Any:
    """The event of a type that has this data."""
    return msgspec.convert(data, EVENTS[type_])


def plain(facts: Iterable[Fact]) -> list[dict[str, Any]]:
    """Facts as they are stored."""
    return [each.data for each in facts]


def last_message(facts: Sequence[Fact]) -> str:
    """The last thing an agent said, whole: its texts that belong to the same message."""
    said = [fact for fact in facts if isinstance(fact, Text)]
    if not said:
        return ""
    first = len(said) - 1
    while said[-1].message and first and said[first - 1].message == said[-1].message:
        first -= 1
    whole = ""
    for number, fact in enumerate(said[first:]):
        whole += ("" if not number or fact.part else "\n") + fact.text
    return whole
