"""Workflows that are started at recurring times: each time once, however many processes serve the schedules.

The id of a workflow run that is started is made of the schedule's name and the time, so a second process finds it
started. Of the times that passed while no process served, only the last one is made up for.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from maos.clock import MICROSECONDS, Clock, to_datetime, to_us
from maos.engine.streams import SCHEDULES, WORKFLOW_RUN
from maos.errors import Conflict, Corrupt, InvalidInput, MaosError, StoreUnavailable
from maos.journal.journal import Journal
from maos.model.workflow import Schedule
from maos.patterns import regex
from maos.tuples import NamedTuple
from maos.workflows.definition import Workflow, find

NAME = "all"
LOOK_S = 5.0
"""How often schedules and interrupted workflow runs are looked for."""
YEARS_MAX = 8
"""How far ahead a time is looked for: the 29th of February may be that far."""

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_WORDS = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}  # fmt: skip

_NUMBER = regex(r"[0-9]{1,4}")
_STEP = regex(r"0*[1-9][0-9]{0,3}")

Tell = Callable[[str], None]
Load = Callable[[Schedule], Workflow[..., Any]]
"""How the workflow of a schedule is found."""
Start = Callable[..., Awaitable[Any]]


class _Field(NamedTuple):
    name: str
    least: int
    most: int
    words: tuple[str, ...] = ()


_FIELDS = (
    _Field("minute", 0, 59), _Field("hour", 0, 23), _Field("day of the month", 1, 31),
    _Field("month", 1, 12, ("", *_MONTHS)), _Field("day of the week", 0, 7, _DAYS),
)  # fmt: skip


class Cron:
    """When something is due, in a time zone: an hour that is left out in spring is made up for, and of one that comes
    twice in autumn the first counts; except for what is due in every hour, which runs in both.
    """

    def __init__(self, text: str, zone: str = "UTC") -> None:
        self.text = text
        parts = _WORDS.get(text.strip().lower(), text).split()
        if len(parts) != len(_FIELDS):
            raise InvalidInput(
                f"{text!r} has {len(parts)} fields",
                hint="give five, such as '0 3 * * *': minute, hour, day of the month, month, day of the week",
            )
        minutes, hours, days, months, weekdays = (
            _parsed(part, field) for part, field in zip(parts, _FIELDS, strict=True)
        )
        self._minutes, self._hours, self._days, self._months = sorted(minutes), sorted(hours), days, months
        self._weekdays = {day % 7 for day in weekdays}
        self._every_hour = parts[1] == "*"
        self._either = not parts[2].startswith("*") and not parts[4].startswith("*")
        """Both days are named: one of them is enough, as in every cron."""
        try:
            self.zone = ZoneInfo(zone)
        except (KeyError, ValueError, OSError) as error:
            raise InvalidInput(f"there is no time zone {zone!r}", hint="use a name such as Europe/Berlin") from error
        if self.after(datetime(2024, 1, 1, tzinfo=self.zone)) is None:
            raise InvalidInput(f"{text!r} never comes", hint="check the day of the month and the month")

    def after(self, time: datetime) -> datetime | None:
        """The first time after another; None when there is none for years."""
        days = self._days_from(time, timedelta(days=1), 366 * YEARS_MAX + 1)
        found = (each for day in days for each in self._times(day))
        return next((each for each in found if each.timestamp() > time.timestamp()), None)

    def last(self, time: datetime) -> datetime | None:
        """The last time that is not after another; None when there is none for a year."""
        days = self._days_from(time, timedelta(days=-1), 367)
        found = (each for day in days for each in reversed(list(self._times(day))))
        return next((each for each in found if each.timestamp() <= time.timestamp()), None)

    def _days_from(self, time: datetime, step: timedelta, count: int) -> Iterator[datetime]:
        """The days that are due among so many from that of a time on."""
        day = time.astimezone(self.zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        for _ in range(count):
            if day.month in self._months and self._is_due(day):
                yield day
            day += step

    def _times(self, day: datetime) -> Iterator[datetime]:
        """The times of a day that is due, in order."""
        for hour in self._hours:
            of_hour = [day.replace(hour=hour, minute=minute, tzinfo=self.zone) for minute in self._minutes]
            yield from of_hour
            if self._every_hour:
                again = [each.replace(fold=1) for each in of_hour]
                yield from (each for each in again if each.timestamp() > each.replace(fold=0).timestamp())

    def _is_due(self, day: datetime) -> bool:
        by_month = day.day in self._days
        by_week = (day.weekday() + 1) % 7 in self._weekdays
        return by_month or by_week if self._either else by_month and by_week


def _parsed(text: str, field: _Field) -> set[int]:
    found: set[int] = set()
    for part in text.lower().split(","):
        span, slash, step = part.partition("/")
        if slash and not _STEP.fullmatch(step):
            raise _bad(part, field)
        if span == "*":
            first, last = field.least, field.most if field.name != "day of the week" else 6
        else:
            low, dash, high = span.partition("-")
            first = _number(low, field)
            last = _number(high, field) if dash else field.most if slash else first
        if first > last:
            raise _bad(part, field)
        found |= set(range(first, last + 1, int(step) if slash else 1))
    return found


def _number(text: str, field: _Field) -> int:
    if text in field.words and text:
        return field.words.index(text)
    if not _NUMBER.fullmatch(text) or not field.least <= int(text) <= field.most:
        raise _bad(text, field)
    return int(text)


def _bad(text: str, field: _Field) -> InvalidInput:
    return InvalidInput(f"{text!r} is no {field.name}", hint=f"use {field.least} to {field.most}, *, a-b, a,b or */n")


async def all_of(journal: Journal) -> dict[str, Schedule]:
    """All schedules, by name."""
    found = await SCHEDULES.load(journal, NAME)
    return {} if found is None else found.known


def check(name: str, cron: str, zone: str) -> None:
    """InvalidInput when a schedule cannot have this name or these times."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,40}", name):
        raise InvalidInput(f"{name!r} cannot name a schedule", hint="use up to 41 letters, digits, dashes, underscores")
    Cron(cron, zone)


def due(schedule: Schedule, now_us: int) -> datetime | None:
    """The last time at which it should have started its workflow; None when there was none since it was made."""
    last = Cron(schedule.cron, schedule.zone).last(to_datetime(now_us))
    return last if last is not None and to_us(last) >= schedule.set_us else None


def next_time(schedule: Schedule, now_us: int) -> datetime | None:
    """When it starts its workflow next."""
    return Cron(schedule.cron, schedule.zone).after(to_datetime(now_us))


async def serve(
    journal: Journal, clock: Clock, *, start: Start, resume: Start, tell: Tell, load: Load | None = None
) -> None:
    """Start what is due and resume what was interrupted, until cancelled: what is wrong with one schedule is reported
    once, and the others are served."""
    load = load or (lambda schedule: find(schedule.workflow, schedule.definition))
    told: set[str] = set()

    def tell_once(text: str) -> None:
        if text not in told:
            told.add(text)
            tell(text)

    def is_ready(schedule: Schedule) -> bool:
        """Whether its workflow is defined here by now; it may have been added, or its file put back, at any time."""
        try:
            load(schedule)
        except MaosError as error:
            tell_once(f"the schedule {schedule.name} cannot be served: {error}")
            return False
        return True

    async def start_if_due(schedule: Schedule) -> None:
        time = due(schedule, clock.now_us())
        if time is None:
            return
        id = f"{schedule.name}-{to_datetime(to_us(time)):%Y%m%dT%H%MZ}"
        try:
            if await WORKFLOW_RUN.load(journal, id) is None:
                arguments = schedule.arguments
                await start(load(schedule), arguments["args"], arguments["kwargs"], id=id)
                tell(f"started {id}")
        except Conflict:
            pass  # another process was faster, which is seen the next time
        except MaosError as error:  # which may be otherwise the next time
            tell_once(f"{id} could not be started: {error}")

    while True:
        waits_s = LOOK_S
        try:
            ready = [each for each in (await all_of(journal)).values() if is_ready(each)]
            for handle in await resume(tell=tell_once):
                tell(f"resumed {handle.id}")
            for schedule in ready:
                await start_if_due(schedule)
                coming = next_time(schedule, clock.now_us())
                if coming is not None:
                    waits_s = min(waits_s, (to_us(coming) - clock.now_us()) / MICROSECONDS)
        except (StoreUnavailable, Corrupt) as error:
            tell_once(f"the schedules cannot be read: {error}")
        await asyncio.sleep(max(0.05, waits_s))
