"""How often the files of agents that run are saved: a setting in the journal, so that every engine goes by it.

Output, messages and decisions are on disk before anybody hears of them; only files change without telling us.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from maos.clock import Clock
from maos.errors import InvalidInput
from maos.journal.codec import Event
from maos.journal.journal import Journal

STREAM = "settings/save-interval"
EVENT_TYPES = ("setting_changed",)
VARIABLE = "MAOS_CHECKPOINT_INTERVAL"
DEFAULT_S, MIN_S, MAX_S = 120.0, 1.0, 86_400.0


async def interval_s(journal: Journal, environment: Mapping[str, str] | None = None) -> float:
    """The interval that counts now: as last set, else from MAOS_CHECKPOINT_INTERVAL, else two minutes."""
    version = await journal.version(STREAM)
    record = await journal.event(STREAM, version) if version else None
    if record is not None and record.data["value"] is not None:
        return float(record.data["value"])
    given = (os.environ if environment is None else environment).get(VARIABLE, "")
    return check(given, of=VARIABLE) if given else DEFAULT_S


async def set_interval(journal: Journal, clock: Clock, seconds: float) -> None:
    """Have every engine on this journal, also those that run, save files that often."""
    await journal.append(STREAM, Event("setting_changed", {"value": check(seconds), "at_us": clock.now_us()}))


def check(given: str | float, *, of: str = "the interval") -> float:
    """The seconds, if they make sense."""
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not MIN_S <= seconds <= MAX_S:
        raise InvalidInput(f"{of} cannot be {given} seconds", hint=f"give {MIN_S:g} to {MAX_S:g} seconds")
    return seconds
