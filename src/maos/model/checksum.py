"""A checksum of a state that follows its changes.

It is the sum of a hash for every value at every path, so an update costs a hash for each value that came or went, not
one over the whole state. Two states have the same checksum if they are the same data, in whatever order it was built;
keys of a dictionary have no order. It guards against damage and mistakes; the hash chain guards against forgery.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from maos.errors import InvalidInput
from maos.model.changes import MISSING, Op, StateDraft, find

MODULUS = 1 << 128
DEPTH_MAX = 96
"""What lies deeper would not fit into an event that carries the whole state (see the codec's limit)."""
_FRESH = blake2b(digest_size=16, person=b"maos state")  # copying it takes a third less than making one like it


def checksum(state: dict[str, Any]) -> int:
    """The checksum of a whole state; InvalidInput, naming the place, for anything that is not plain data."""
    return _total(state, "", 0) % MODULUS


def after(total: int, state: dict[str, Any], ops: Iterable[Op]) -> tuple[int, dict[str, Any]]:
    """The checksum and the state after some operations, from those before them."""
    draft = StateDraft(state)
    for op in ops:
        path = op[1]
        depth = path.count("/")
        if path == "":
            total = checksum(op[2])
        elif op[0] == "ext":
            for offset, item in enumerate(op[3]):
                total += _total(item, f"{path}/{op[2] + offset}", depth + 1)
        else:
            old = find(draft.root, path)
            if old is not MISSING:
                total -= _total(old, path, depth)
            if op[0] == "set":
                total += _total(op[2], path, depth)
        draft.apply(op)
    return total % MODULUS, draft.root


def text(total: int) -> str:
    """A checksum as it is stored and shown."""
    return f"{total:032x}"


def _hash(path: str, tagged: bytes) -> int:
    try:
        place = path.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"a key below {path.encode('utf-8', 'replace')!r} is not text: {error}") from error
    digest = _FRESH.copy()
    digest.update(b"%d:%b%b" % (len(place), place, tagged))
    return int.from_bytes(digest.digest(), "big")


def _total(value: Any, path: str, depth: int) -> int:
    kind = type(value)
    if kind is str:
        try:
            return _hash(path, b"s" + value.encode())
        except UnicodeEncodeError as error:
            raise InvalidInput(f"{path}: {error}", hint="lone surrogates are not text; clean the string") from error
    if kind is int:
        try:
            return _hash(path, b"i%d" % value)
        except ValueError as error:  # Python refuses to write very long numbers
            raise InvalidInput(f"{path} is too large a number", hint="store it as a string") from error
    if kind is bool or value is None:
        return _hash(path, b"%a" % value)
    if kind is float:
        if not math.isfinite(value):
            raise InvalidInput(f"{path} is {value}", hint="JSON has no such number; use None or a string")
        return _hash(path, b"f" + repr(value + 0.0).encode())  # -0.0 equals 0.0
    if depth > DEPTH_MAX:
        raise InvalidInput(f"{path} is nested more than {DEPTH_MAX} levels deep")
    if kind is dict:
        total = _hash(path, b"{")
        for key, item in value.items():
            if type(key) is not str:
                raise InvalidInput(
                    f"{path}: the key {key!r} is a {type(key).__name__}", hint="keys are strings in JSON"
                )
            part = key.replace("~", "~0").replace("/", "~1") if "~" in key or "/" in key else key
            total += _total(item, f"{path}/{part}", depth + 1)
        return total
    if kind is list:
        total = _hash(path, b"[")
        for index, item in enumerate(value):
            total += _total(item, f"{path}/{index}", depth + 1)
        return total
    raise InvalidInput(
        f"{path or '/'} is a {kind.__module__}.{kind.__qualname__}",
        hint="store plain JSON values: strings, numbers, booleans, None, lists, dictionaries",
    )


EMPTY = checksum({})
"""The checksum of a state without fields, from which every history begins."""
