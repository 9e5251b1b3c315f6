"""How often the files of agents are saved: as a setting in the journal says, which every engine uses, else as the
settings of the machine do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from maos.bus.mailbox import patiently
from maos.clock import Clock
from maos.errors import InvalidInput
from maos.journal.journal import Journal
from maos.model.events.records import SettingChanged
from maos.settings import schema
from maos.settings.schema import CheckpointSettings

NOTICE_S = 10.0
"""How soon a change of how often checkpoints are made is noticed."""
INTERVAL = "settings/save-interval"
"""The stream of the interval that all engines on a journal use."""


async def ticks(interval_s: Callable[[], Awaitable[float]]) -> AsyncIterator[None]:
    """Yield whenever an interval is over; it is asked for again and again, so that a change of it counts soon."""
    while True:
        waited_s = 0.0
        while (left_s := await patiently(interval_s) - waited_s) > 0:
            await asyncio.sleep(min(left_s, NOTICE_S))
            waited_s += min(left_s, NOTICE_S)
        yield


async def interval_s(journal: Journal, otherwise_s: float) -> float:
    """The interval that counts now: as last set for all engines, else that of the settings."""
    version = await journal.version(INTERVAL)
    record = await journal.event(INTERVAL, version) if version else None
    return otherwise_s if record is None or record.event.value is None else record.event.value


async def set_interval(journal: Journal, clock: Clock, seconds: float) -> None:
    """Have every engine on this journal, also those that run, save files that often."""
    field = schema.fields()["checkpoint.interval_s"]
    try:
        value = float(field.convert(seconds))
    except ValueError:
        raise InvalidInput(f"the interval cannot be {seconds} seconds", hint=f"give {field.allowed}") from None
    await journal.append(INTERVAL, SettingChanged(value=value, at_us=clock.now_us()))


def is_due(settings: CheckpointSettings, trigger: str, turns: int) -> bool:
    """Whether the files of an agent are saved at the end of a turn, or because an interval is over (R-1002)."""
    if not settings.enabled:
        return False
    if trigger == "timer":
        return settings.frequency in ("every_step", "time_based")
    if settings.frequency == "every_n_steps":
        return turns % settings.steps == 0
    return settings.frequency == "every_step"
