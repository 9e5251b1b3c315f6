"""Workflows that begin by themselves: each time once, however many processes serve them.

The id of what begins is made of the schedule's name and the time, so a second process finds it begun. Of the times
that passed while no process served, the last one is made up for.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from maos.clock import MICROSECONDS, Clock, to_datetime, to_us
from maos.engine.streams import SCHEDULES, WORKFLOW_RUN
from maos.errors import Conflict, Corrupt, InvalidInput, MaosError, NotFound, StoreUnavailable
from maos.journal.journal import Journal
from maos.model.events.records import ScheduleRemoved
from maos.model.schedule import NAME, Schedule, Schedules
from maos.workflows import values
from maos.workflows.cron import Cron
from maos.workflows.definition import Workflow, find

LOOK_S = 5.0
"""How often schedules and interrupted workflows are looked for."""

Told = Callable[[str], None]
Load = Callable[[Schedule], Workflow[..., Any]]
"""How the workflow of a schedule is found."""
Start = Callable[..., Awaitable[Any]]


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
    values.given(workflow.function, arguments, workflow.name)
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
    await journal.append(SCHEDULES.stream(NAME), made)
    return made


async def remove(journal: Journal, clock: Clock, name: str) -> None:
    """Have it begin no more."""
    while True:
        known = await SCHEDULES.load(journal, NAME) or Schedules(id=NAME)
        if name not in known.known:
            raise NotFound(f"there is no schedule {name!r}", hint="`maos workflow schedule list` shows them")
        event = ScheduleRemoved(name=name, at_us=clock.now_us())
        try:
            await journal.append(SCHEDULES.stream(NAME), event, expected=known.version)
            return
        except Conflict:
            continue  # another process has changed one of them


def due(schedule: Schedule, now_us: int) -> datetime | None:
    """The last time it should have begun; None when there was none since it was made."""
    last = Cron(schedule.cron, schedule.zone).last(to_datetime(now_us))
    return last if last is not None and to_us(last) >= schedule.set_us else None


def next_time(schedule: Schedule, now_us: int) -> datetime | None:
    """When it begins next."""
    return Cron(schedule.cron, schedule.zone).after(to_datetime(now_us))


class ScheduleServer:
    """Starts what is due, and resumes what was interrupted, until it is stopped."""

    def __init__(
        self, journal: Journal, clock: Clock, *, start: Start, resume: Start, tell: Told, load: Load | None = None
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._start = start
        self._resume = resume
        self._tell = tell
        self._load = load or _defined_here
        self._told: set[str] = set()
        self._settled: set[str] = set()
        """Ids of those that have begun, or never can."""

    async def serve(self) -> None:
        """Never ends by itself: what is wrong with one is told once, and the others are served."""
        while True:
            waits_s = LOOK_S
            try:
                known = await all_of(self._journal)
                ready = [each for each in known.values() if self._is_ready(each)]
                for handle in await self._resume(tell=self._tell_once):
                    self._tell(f"went on with {handle.id}")
                for schedule in ready:
                    await self._begin_if_due(schedule)
                    coming = next_time(schedule, self._clock.now_us())
                    if coming is not None:
                        waits_s = min(waits_s, (to_us(coming) - self._clock.now_us()) / MICROSECONDS)
            except (StoreUnavailable, Corrupt) as error:
                self._tell_once(f"could not look: {error}")
            await asyncio.sleep(max(0.05, waits_s))

    def _is_ready(self, schedule: Schedule) -> bool:
        """Whether its workflow is defined here by now; it may have been added, or its file put back, at any time."""
        try:
            self._load(schedule)
        except MaosError as error:
            self._tell_once(f"the schedule {schedule.name} cannot be served: {error}")
            return False
        return True

    async def _begin_if_due(self, schedule: Schedule) -> None:
        moment = due(schedule, self._clock.now_us())
        if moment is None:
            return
        id = f"{schedule.name}-{to_datetime(to_us(moment)):%Y%m%dT%H%MZ}"
        if id in self._settled:
            return
        try:
            is_begun = await WORKFLOW_RUN.load(self._journal, id) is not None
        except Corrupt as error:
            self._tell_once(f"{id} cannot be read: {error}")
            is_begun = True
        if is_begun or await self._begin(schedule, id):
            self._settled.add(id)

    async def _begin(self, schedule: Schedule, id: str) -> bool:
        """Start the workflow of a schedule; whether it has begun, or never can."""
        try:
            arguments = schedule.arguments
            await self._start(self._load(schedule), arguments["args"], arguments["kwargs"], id=id)
        except Conflict:
            return False  # another process was faster, which is seen at the next look
        except MaosError as error:
            self._tell_once(f"{id} could not begin: {error}")
            return isinstance(error, InvalidInput)  # anything else may work at the next look
        self._tell(f"began {id}")
        return True

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(text)


def _defined_here(schedule: Schedule) -> Workflow[..., Any]:
    return find(schedule.workflow, schedule.definition)
