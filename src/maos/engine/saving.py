"""How often the files of agents that run are saved: by a setting in the journal, which every engine goes by, else by
the settings of the machine.

Output, messages and decisions are on disk before anybody hears of them; only files change without telling us.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from maos.clock import Clock
from maos.errors import InvalidInput
from maos.journal.journal import Journal
from maos.model.events.records import SettingChanged

if TYPE_CHECKING:
    from maos.settings.schema import CheckpointSettings

STREAM = "settings/save-interval"


async def interval_s(journal: Journal, otherwise_s: float) -> float:
    """The interval that counts now: as last set for all engines, else that of the settings."""
    version = await journal.version(STREAM)
    record = await journal.event(STREAM, version) if version else None
    return otherwise_s if record is None or record.event.value is None else record.event.value


async def set_interval(journal: Journal, clock: Clock, seconds: float) -> None:
    """Have every engine on this journal, also those that run, save files that often."""
    await journal.append(STREAM, SettingChanged(value=check(seconds), at_us=clock.now_us()))


def check(seconds: float) -> float:
    """The seconds, if they make sense."""
    from maos.settings import schema

    field = schema.fields()["checkpoint.interval_s"]
    try:
        return float(field.convert(seconds))
    except ValueError:
        raise InvalidInput(f"the interval cannot be {seconds} seconds", hint=f"give {field.allowed}") from None


def is_due(settings: CheckpointSettings, trigger: str, turns: int) -> bool:
    """Whether the files of an agent are saved at the end of a turn, or because an interval is over (R-1002)."""
    if not settings.enabled:
        return False
    if trigger == "timer":
        return settings.frequency in ("every_step", "time_based")
    if settings.frequency == "every_n_steps":
        return turns % settings.steps == 0
    return settings.frequency == "every_step"
