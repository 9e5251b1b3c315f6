"""Moments of a run: a version of it, and the position of the journal up to which everything else counts as well."""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

from maos.clock import to_us
from maos.engine.types import RUN
from maos.errors import Corrupt, InvalidInput, NotFound
from maos.journal.journal import PAGE_EVENTS, Journal, Record
from maos.model import bundle
from maos.model.branch import digest, leads_here
from maos.model.events.records import BundleImported
from maos.model.run import Run, stream


class PointInTime(NamedTuple):
    """A moment of a run."""

    run: str
    version: int
    position: int
    time_us: int
    name: str = ""
    """Of the checkpoint that it is, if it is one."""
    digest: str = ""
    """What was recorded of the state when it was current, if anything was."""
    is_now: bool = False
    """Whether it is the present, whenever that is."""

    @property
    def spoken(self) -> str:
        """It as people say it."""
        return f"checkpoint {self.name}, version {self.version}" if self.name else f"version {self.version}"


When = PointInTime | int | str | datetime | None
"""How a moment can be told: a version (12, or -1 for the one before the newest), the name of a checkpoint,
"@POSITION" of the journal, a time; None for now."""

_POSITION = re.compile(r"@([0-9]{1,18})")


async def find(journal: Journal, run: Run, when: When) -> PointInTime:
    """The moment that is meant."""
    if isinstance(when, PointInTime):
        return when
    if when is None:
        return await newest(journal, run)
    if isinstance(when, datetime):
        return await at_time(journal, run, to_us(when))
    if isinstance(when, int):
        return await at_version(journal, run, when if when > 0 else run.version + when)
    position = _POSITION.fullmatch(when)
    return await (at_position(journal, run, int(position[1])) if position else named(journal, run, when))


async def last_checkpoint(journal: Journal, run: Run) -> PointInTime:
    """The moment of the newest checkpoint of a run; one of a branch that was given up is not meant."""
    found = [each["version"] for each in run.checkpoints if leads_here(run, each["version"])]
    if not found:
        raise InvalidInput(f"{run.id} has no checkpoints", hint="say which moment is meant: a version, or a time")
    return await at_version(journal, run, found[-1])


async def newest(journal: Journal, run: Run) -> PointInTime:
    """Now."""
    return PointInTime(run.id, run.version, await journal.head(), run.updated_us, is_now=True)


async def at_version(journal: Journal, run: Run, version: int) -> PointInTime:
    """The moment at which a version was recorded, with what was sent to others in the same append."""
    if not 1 <= version <= run.version:
        raise NotFound(f"{run.id} has no version {version}", hint=f"its versions are 1 to {run.version}")
    own = await journal.event(stream(run.id), version)
    if own is None:
        raise NotFound(f"{run.id} has no version {version}", hint="`maos checkpoint --list` lists some")
    checkpoint = next((each for each in run.checkpoints if each["version"] == version), {})
    position = await _imported(journal, run.id, own) or await _end_of_append(journal, own)
    return PointInTime(run.id, version, position, own.time_us, checkpoint.get("name", ""), checkpoint.get("state", ""))


async def _imported(journal: Journal, id: str, own: Record) -> int:
    """The same for an event that was imported: all of an import is one append here; 0 when it was not imported."""
    async for record in journal.read(bundle.stream(id)):
        brought = record.event
        if isinstance(brought, BundleImported) and 0 < own.position - record.position <= brought.events:
            return own.position + brought.later.get(str(own.version), 0)
    return 0


async def _end_of_append(journal: Journal, own: Record) -> int:
    """Where the append ends that holds an event of a run: its own events come first, then those for others."""
    position, others = own.position, False
    while True:
        page = await journal.store.read_log(after=position, limit=PAGE_EVENTS)
        for event in page:
            others = others or event.stream != own.stream
            if event.time_us != own.time_us or (others and event.stream == own.stream):
                return position
            position = event.position
        if len(page) < PAGE_EVENTS:
            return position


async def named(journal: Journal, run: Run, name: str) -> PointInTime:
    """The moment of a checkpoint."""
    for each in run.checkpoints:
        if each.get("name") == name:
            return await at_version(journal, run, each["version"])
    raise NotFound(f"{run.id} has no checkpoint {name!r}", hint=f"`maos checkpoint {run.id} --list` lists them")


async def at_position(journal: Journal, run: Run, position: int) -> PointInTime:
    """The moment of a position of the journal: between two versions, agents went on."""
    version = time_us = 0
    async for record in journal.read(stream(run.id)):
        if record.position > position:
            break
        version, time_us = record.version, record.time_us
    if not version:
        raise NotFound(f"{run.id} did not exist at position {position}", hint="choose a later one")
    return PointInTime(run.id, version, min(position, await journal.head()), time_us)


async def at_time(journal: Journal, run: Run, time_us: int) -> PointInTime:
    """The moment of a time of day, by the clock of the database."""
    first, last = 0, await journal.head()
    while first < last:  # the last position whose time is not later
        middle = (first + last + 1) // 2
        events = await journal.store.read_log(after=middle - 1, limit=1)
        if events and events[0].time_us <= time_us:
            first = middle
        else:
            last = middle - 1
    if run.created_us > time_us:
        raise NotFound(f"{run.id} did not exist then", hint="choose a later time")
    return await at_position(journal, run, first)


async def run_at(journal: Journal, moment: PointInTime) -> Run:
    """The run as it was; Corrupt when that is not what was recorded of it at the time (I13).

    What it works on is where it is now: files that were moved since do not move back.
    """
    found = await RUN.at(journal, moment.run, version=moment.version)
    if found is None or found.version != moment.version:
        raise NotFound(f"{moment.run} has no version {moment.version}", hint="choose another one")
    if moment.digest and digest(found) != moment.digest:
        raise Corrupt(f"{moment.run} at {moment.spoken} is not what was recorded then", stream=stream(moment.run))
    newest = await RUN.load(journal, moment.run)
    if newest is not None and newest.moved > moment.version:
        found.folder = newest.folder
        place = newest.options.get("workspace")
        found.options = {**found.options, **({"workspace": place} if place else {})}
    return found


def check_planned(then: Run, moment: PointInTime) -> None:
    """Refuse a moment at which there was nothing to go on with."""
    if not then.tasks:
        raise InvalidInput(f"nothing was planned yet at {moment.spoken} of {moment.run}", hint="choose a later one")
