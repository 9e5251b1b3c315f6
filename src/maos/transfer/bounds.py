"""Limits for what comes from elsewhere: times that a calendar has, numbers that everything here can count with, and
data that is not nested too deeply."""

from __future__ import annotations

from typing import Any

import msgspec

from maos.errors import Corrupt
from maos.journal.codec import DEPTH_MAX

TIME_US_MAX = 253_402_300_799_000_000
"""The last second of the year 9999."""
NUMBER_MAX = 1 << 53

_ANYTHING = ("result", "value")
"""What a workflow has returned, or was sent: it may be any number."""


def check_numbers(found: msgspec.Struct, where: str) -> None:
    """Corrupt unless all times and numbers of an event or a fold are within the limits."""
    for name in found.__struct_fields__:
        value = getattr(found, name)
        _check_number(name, value, where)
        if isinstance(value, msgspec.Struct):
            check_numbers(value, where)
        for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            if isinstance(item, msgspec.Struct):
                check_numbers(item, where)
            elif name == "sleeping":
                _check_number("until_us", item, where)


def _check_number(name: str, value: Any, where: str) -> None:
    is_time = name.endswith("_us")
    if type(value) not in (int, float) or name in _ANYTHING:
        return
    if not 0 <= value <= TIME_US_MAX if is_time else abs(value) > NUMBER_MAX:
        raise Corrupt(f"{where}: {name} is {value!r}, which makes no sense", hint="nothing was imported")


def check_depth(value: Any, where: str, depth: int = 0) -> None:
    """Corrupt for data that is nested more deeply than the journal allows."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if inside and depth >= DEPTH_MAX:
        raise Corrupt(f"{where} is nested too deeply", hint="nothing was imported")
    for item in inside:
        check_depth(item, where, depth + 1)
