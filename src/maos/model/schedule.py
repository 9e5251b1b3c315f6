"""Workflows that begin at times that come again: a fold of one stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

FORMAT = 1
EVENT_TYPES = ("schedule_set", "schedule_removed")
NAME = "all"


class Schedule(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What begins when."""

    name: str
    cron: str
    zone: str = "UTC"
    workflow: str
    definition: str = ""
    arguments: dict[str, Any] = {}
    where: dict[str, str] = {}
    set_us: int = 0


class Schedules(msgspec.Struct, kw_only=True, omit_defaults=True):
    """All of them, by name."""

    id: str
    version: int = 0
    owner: dict[str, Any] = {}
    known: dict[str, Schedule] = {}

    def apply(self, type_: str, data: Mapping[str, Any]) -> None:
        """Fold one more event in."""
        self.version += 1
        if type_ == "schedule_set":
            self.known = {**self.known, data["name"]: msgspec.convert(data, Schedule)}
        else:
            self.known = {name: each for name, each in self.known.items() if name != data["name"]}
