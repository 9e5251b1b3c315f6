"""The hash chain: each event's hash covers all of it and the hash of the event before it in its stream.

The position is left out on purpose: a journal copied to another store keeps its hashes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import sha256

from maos.store.contract import GENESIS, Recorded

_FIXED = struct.Struct(">32sqqqqHH")


def link(
    previous: bytes, stream: bytes, version: int, type_: bytes, format_: int, time_us: int, token: int, body: bytes
) -> bytes:
    """The hash of an event that follows the event with hash `previous`."""
    # Lengths come first, so that no two different events give the same bytes.
    fixed = _FIXED.pack(previous, version, format_, time_us, token, len(stream), len(type_))
    return sha256(fixed + stream + type_ + body).digest()


def follows(event: Recorded, previous: bytes) -> bool:
    """Whether the event's stored hash is the one its content and its predecessor give."""
    return event.hash == link(
        previous,
        event.stream.encode(),
        event.version,
        event.type.encode(),
        event.format,
        event.time_us,
        event.token,
        event.body,
    )


def sound(events: Sequence[Recorded], before: Recorded | None) -> int:
    """How many of some events of one stream, in order, follow one another and the event before them."""
    previous, version_before = (GENESIS, 0) if before is None else (before.hash, before.version)
    name = events[0].stream.encode() if events else b""
    for index, (_, _, version, spans, type_, format_, time_us, token, body, hash_) in enumerate(events):
        if spans == 1:
            if hash_ != link(previous, name, version, type_.encode(), format_, time_us, token, body):
                return index
        elif version - spans != version_before:  # compaction put it there: it has no hash of its own, but a place
            return index
        previous, version_before = hash_, version
    return len(events)


def seal(type_: str, format_: int, body: bytes) -> bytes:
    """The digest by which a compaction vouches for an event it put in the place of others."""
    kind = type_.encode()
    return sha256(struct.pack(">qH", format_, len(kind)) + kind + body).digest()
