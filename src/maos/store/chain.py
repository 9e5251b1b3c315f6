"""The hash chain: each event's hash covers the whole event and the hash of the previous event of its stream.

The position is left out, so that a journal copied to another store keeps its hashes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import sha256
from typing import Protocol

from maos.errors import Corrupt
from maos.store.contract import GENESIS, Recorded
from maos.tuples import NamedTuple

_FIXED = struct.Struct(">32sqqqqHH")


def link(
    previous: bytes, stream: bytes, version: int, type_: bytes, format_: int, time_us: int, token: int, body: bytes
) -> bytes:
    """Return the hash of an event that follows the event with hash `previous`."""
    # Lengths come first, so that two different events never have the same bytes.
    fixed = _FIXED.pack(previous, version, format_, time_us, token, len(stream), len(type_))
    return sha256(fixed + stream + type_ + body).digest()


def hash_of(event: Recorded, previous: bytes) -> bytes:
    """Return the hash that follows from an event's content and the previous hash."""
    _position, stream, version, _spans, type_, format_, time_us, token, body, _hash = event
    return link(previous, stream.encode(), version, type_.encode(), format_, time_us, token, body)


class Before(Protocol):
    """The event before others of its stream, as it was read or decoded."""

    @property
    def version(self) -> int: ...

    @property
    def hash(self) -> bytes: ...


class End(NamedTuple):
    """The end of a stream: its newest version and the hash of that event."""

    version: int
    hash: bytes


def sound(events: Sequence[Recorded], before: Before | None) -> int:
    """Return how many events of one stream, from the first on, verify and follow one another and `before`."""
    previous, version_before = (GENESIS, 0) if before is None else (before.hash, before.version)
    name = events[0].stream.encode() if events else b""
    for index, (_, _, version, spans, type_, format_, time_us, token, body, hash_) in enumerate(events):
        if spans == 1:
            if hash_ != link(previous, name, version, type_.encode(), format_, time_us, token, body):
                return index
        elif version - spans != version_before:  # compaction wrote it: it has no hash of its own, but a version
            return index
        previous, version_before = hash_, version
    return len(events)


def check(events: Sequence[Recorded], end: End) -> None:
    """Raise Corrupt unless events of one stream, at least one, verify and follow one another and its end."""
    verified = sound(events, end)
    if verified == len(events) and events[0].version - events[0].spans == end.version:
        return
    at = events[min(verified, len(events) - 1)]
    raise Corrupt(f"{at.stream}@{at.version} does not match its hash or what precedes it", hint="nothing was written")


def seal(type_: str, format_: int, body: bytes) -> bytes:
    """Return the digest that a compaction records for the event that replaces others."""
    kind = type_.encode()
    return sha256(struct.pack(">qH", format_, len(kind)) + kind + body).digest()
