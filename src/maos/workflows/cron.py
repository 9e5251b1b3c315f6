"""Times that come again, as cron writes them: minute, hour, day of the month, month, day of the week."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from maos.errors import InvalidInput

YEARS_MAX = 8
"""How far ahead a time is looked for: the 29th of February may be that far."""

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_WORDS = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}  # fmt: skip

_NUMBER = re.compile(r"[0-9]{1,4}")
_STEP = re.compile(r"0*[1-9][0-9]{0,3}")


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

    def after(self, moment: datetime) -> datetime | None:
        """The first time after a moment; None when there is none for years."""
        local = moment.astimezone(self.zone)
        day = local.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        last = day + timedelta(days=366 * YEARS_MAX)
        while day <= last:
            if day.month in self._months and self._is_day(day):
                for found in self._times(day):
                    if found.timestamp() > moment.timestamp():
                        return found
            day += timedelta(days=1)
        return None

    def last(self, moment: datetime) -> datetime | None:
        """The last time that is not after a moment; None when there is none for a year."""
        local = moment.astimezone(self.zone)
        day = local.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        for _ in range(367):
            if day.month in self._months and self._is_day(day):
                for found in reversed(list(self._times(day))):
                    if found.timestamp() <= moment.timestamp():
                        return found
            day -= timedelta(days=1)
        return None

    def _times(self, day: datetime) -> Iterator[datetime]:
        """The times of a day that is due, in order."""
        for hour in self._hours:
            of_hour = [day.replace(hour=hour, minute=minute, tzinfo=self.zone) for minute in self._minutes]
            yield from of_hour
            if self._every_hour:
                again = [each.replace(fold=1) for each in of_hour]
                yield from (each for each in again if each.timestamp() > each.replace(fold=0).timestamp())

    def _is_day(self, day: datetime) -> bool:
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
