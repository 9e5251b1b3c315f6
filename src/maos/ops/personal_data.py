"""What is recorded by or about a person, for that person to have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from maos.clock import to_datetime
from maos.errors import InvalidInput
from maos.journal.journal import PAGE_EVENTS, Journal


async def read(journal: Journal, person: str) -> AsyncIterator[dict[str, Any]]:
    """Yield every event in which a person is named as who acted, sent or received, in the order of the journal."""
    if not person.strip():
        raise InvalidInput("no person is named", hint="give a user, or USER@HOST")
    position = 0
    while page := await journal.store.read_log(after=position, limit=PAGE_EVENTS):
        for event in page:
            position = event.position
            record = await journal.decode_unless_erased(event)
            if record is not None and (_names(record.data, person) or event.stream.partition("/")[2] == person):
                yield {
                    "position": record.position,
                    "stream": record.stream,
                    "version": record.version,
                    "type": record.type,
                    "time": to_datetime(record.time_us).isoformat(),
                    "data": record.data,
                }


def _names(value: Any, person: str) -> bool:
    """Return whether a value is the person, or has it inside."""
    match value:
        case str():
            return value == person or value.startswith(f"{person}@")
        case dict():
            return any(_names(each, person) for each in value.values())
        case list():
            return any(_names(each, person) for each in value)
    return False
