"""Workflows that begin by themselves: each time once, however many processes serve them.

The id of what begins is made of the schedule's name and the time, so whoever comes second finds it begun. Of the times
that passed while nobody served, the last one is made up for.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from maos.clock import MICROSECONDS, Clock, to_datetime, to_us
from maos.engine.types import SCHEDULES
from maos.errors import Conflict, InvalidInput, MaosError, NotFound
from maos.journal.codec import Event
from maos.journal.journal import Journal
from maos.model.schedule import NAME, Schedule, Schedules
from maos.workflows import values
from maos.workflows.cron import Cron
from maos.workflows.definition import Workflow, find

if TYPE_CHECKING:
    from maos.workflows.workflows import Handle, Workflows

LOOK_S = 5.0
"""How often schedules and workflows that nobody runs are looked for."""

Told = Callable[[str], None]


async def all_of(journal: Journal) -> dict[str, Schedule]:
    """What begins when, by name."""
    found = await SCHEDULES.load(journal, NAME)
    return {} if found is None else found.known


async def put(
    journal: Journal,
    clock: Clock,
    name: str,
    cron: str,
    workflow: Workflow[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    zone: str,
) -> Schedule:
    """Have a workflow begin at times that come again; one of that name is replaced."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,40}", name):
        raise InvalidInput(f"{name!r} cannot name a schedule", hint="use up to 41 letters, digits, dashes, underscores")
    Cron(cron, zone)
    arguments = values.plain({"args": list(args), "kwargs": kwargs}, f"an argument of {workflow.name}")
    made = Schedule(
        name=name,
        cron=cron,
        zone=zone,
        workflow=workflow.name,
        definition=workflow.version,
        arguments=arguments,
        where=workflow.where,
        set_us=clock.now_us(),
    )
    await journal.append(SCHEDULES.stream(NAME), Event("schedule_set", msgspec.to_builtins(made)))
    return made


async def remove(journal: Journal, clock: Clock, name: str) -> None:
    """Have it begin no more."""
    while True:
        known = await SCHEDULES.load(journal, NAME) or Schedules(id=NAME)
        if name not in known.known:
            raise NotFound(f"there is no schedule {name!r}", hint="`maos workflow schedule list` shows them")
        event = Event("schedule_removed", {"name": name, "at_us": clock.now_us()})
        try:
            await journal.append(SCHEDULES.stream(NAME), event, expected=known.version)
            return
        except Conflict:
            continue  # somebody else has changed one of them


def due(schedule: Schedule, now_us: int) -> datetime | None:
    """The last time it should have begun; None when there was none since it was made."""
    last = Cron(schedule.cron, schedule.zone).last(to_datetime(now_us))
    return last if last is not None and to_us(last) >= schedule.set_us else None


def next_time(schedule: Schedule, now_us: int) -> datetime | None:
    """When it begins next."""
    return Cron(schedule.cron, schedule.zone).after(to_datetime(now_us))


class Server:
    """Runs what is due, and goes on with what nobody runs, until it is stopped."""

    def __init__(self, workflows: Workflows, journal: Journal, clock: Clock, *, tell: Told) -> None:
        self._workflows = workflows
        self._journal = journal
        self._clock = clock
        self._tell = tell
        self._said: set[str] = set()

    async def serve(self) -> None:
        """Never ends by itself."""
        while True:
            for handle in await self._workflows.resume_all():
                self._tell(f"went on with {handle.id}")
            waits_s = LOOK_S
            for schedule in (await all_of(self._journal)).values():
                await self._begin_if_due(schedule)
                coming = next_time(schedule, self._clock.now_us())
                if coming is not None:
                    waits_s = min(waits_s, (to_us(coming) - self._clock.now_us()) / MICROSECONDS)
            await asyncio.sleep(max(0.05, waits_s))

    async def _begin_if_due(self, schedule: Schedule) -> None:
        moment = due(schedule, self._clock.now_us())
        if moment is None:
            return
        id = f"{schedule.name}-{to_datetime(to_us(moment)):%Y%m%dT%H%MZ}"
        if id in self._said:
            return
        try:
            await self._workflows.get(id)
        except NotFound:
            try:
                handle = await self._begin(schedule, id)
            except Conflict:
                pass  # another process was faster
            except MaosError as error:
                self._tell(f"{id} could not begin: {error}")
            else:
                self._tell(f"began {handle.id}")
        self._said.add(id)

    async def _begin(self, schedule: Schedule, id: str) -> Handle:
        arguments = schedule.arguments
        return await self._workflows.start(
            find(schedule.workflow, schedule.definition), *arguments["args"], id=id, **arguments["kwargs"]
        )
