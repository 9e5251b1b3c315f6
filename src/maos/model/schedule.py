"""Workflows that begin at times that come again: a fold of one stream."""

from __future__ import annotations

import msgspec

from maos.model.events.parts import Owner
from maos.model.events.records import ScheduleRemoved, ScheduleSet

FORMAT = 1
NAME = "all"

Schedule = ScheduleSet
"""What begins when: as the event says that sets it."""


class Schedules(msgspec.Struct, kw_only=True, omit_defaults=True):
    """All of them, by name."""

    id: str
    version: int = 0
    owner: Owner = {}
    known: dict[str, ScheduleSet] = {}

    def apply(self, event: ScheduleSet | ScheduleRemoved) -> None:
        """Fold one more event in."""
        self.version += 1
        match event:
            case ScheduleSet():
                self.known = {**self.known, event.name: event}
            case ScheduleRemoved():
                self.known = {name: each for name, each in self.known.items() if name != event.name}
