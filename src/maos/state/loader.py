"""Gets states out of the journal: the newest, or that of any version or time."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from maos.clock import to_datetime, to_us
from maos.errors import Corrupt, InvalidInput, NotFound
from maos.journal.codec import Event
from maos.journal.journal import PAGE_EVENTS, Journal, Record
from maos.model import agent as agents
from maos.model import checksum
from maos.model.changes import Op, StateDraft, well_formed
from maos.model.events.state import CompactionBase, StateEvent, StateUpdated
from maos.state import folds
from maos.state.cache import Cache, Entry, size_of
from maos.state.records import State

TIME_US_MAX = 253_402_300_800 * 1_000_000  # the year 10000
MEMORY_FACTOR = 4
"""Roughly how much larger data is in memory than as stored."""


class Loader:
    """Folds an agent's events, starting from the best place there is."""

    def __init__(self, journal: Journal, cache: Cache) -> None:
        self._journal = journal
        self._cache = cache

    async def current(self, agent: str) -> Entry:
        """The newest state, from memory if the journal has nothing newer."""
        cache = self._cache
        begin_ns = cache.clock_ns()
        entry = cache.look(agent)
        version = await self._journal.store.version(agents.PREFIX + agent)
        if entry is not None and entry.state.version == version:
            cache.hits += 1
        elif entry is not None and entry.state.version < version:
            cache.refreshes += 1
            entry.tally.distrust()  # whoever wrote may have saved folds too, with segments in the place of ours
            await self._catch_up(entry)
        elif version == 0:
            cache.invalidate(agent)
            raise missing(agent)
        else:
            cache.misses += 1
            entry = await self._load(agent, version)
            cache.put(agent, entry)
        cache.access_ns += cache.clock_ns() - begin_ns
        return entry

    def remembered(self, agent: str) -> State | None:
        """The state in memory, however old."""
        entry = self._cache.look(agent)
        return entry.state if entry is not None else None

    def keep(self, entry: Entry | None, state: State, ops: list[Op]) -> None:
        """Take a state just written into the cache."""
        if entry is None:
            if state.version == 1:
                self._cache.put(state.agent, Entry(state, folds.Tally(), _added(ops)))
            else:
                self._cache.invalidate(state.agent)
            return
        entry.tally.saw(ops)
        entry.state = state
        self._cache.grow(entry, _added(ops))

    async def at(self, agent: str, version: int) -> State:
        """The state at a version."""
        stream = agents.stream(agent)
        newest = await self._journal.version(stream)
        if newest == 0:
            raise missing(agent)
        if not 1 <= version <= newest:
            raise NotFound(f"agent {agent!r} has no version {version}", hint=f"its versions are 1 to {newest}")
        entry = self._cache.look(agent)
        if entry is not None and entry.state.version == version == newest:  # an older one may be compacted by now
            return entry.state
        kept = await folds.load(self._journal.store, stream, agent, self._journal.notes)
        start = kept.state if kept is not None and kept.state.version <= version else empty(agent)
        return await self.fold(start, version)

    async def fold(self, state: State, until: int) -> State:
        """A state and the events after it, up to a version."""
        if state.version == until:
            return state
        fold = StateFold(state)
        async for record in self._journal.read(agents.stream(state.agent), after=state.version):
            if overlaps(record, fold.version):
                return await self.fold(empty(state.agent), until)
            if record.version > until:
                raise NotFound(
                    f"agent {state.agent!r} no longer has version {until}: versions "
                    f"{record.version - record.spans + 1} to {record.version} were compacted into one",
                    hint=f"ask for version {record.version} or later",
                )
            fold.add(record)
            if record.version == until:  # what comes later may be damaged
                break
        return fold.state()

    async def version_at(self, agent: str, time: int | datetime) -> int:
        """The version that was the newest at a time; NotFound when there was none, or compaction has merged it."""
        instant_us = instant(time)
        version = await self.version_before(agent, instant_us + 1)
        for event in await self._journal.store.read(agents.stream(agent), after=version, limit=1):
            if event.spans > 1 and begin(await self._journal.decode(event)) <= instant_us:
                raise NotFound(
                    f"what agent {agent!r} was at {to_datetime(instant_us).isoformat()} is no longer known: versions "
                    f"{version + 1} to {event.version} were compacted into one",
                    hint=f"ask for version {event.version} or later, or for {to_datetime(event.time_us).isoformat()}",
                )
        if version == 0:
            raise NotFound(f"agent {agent!r} did not exist at {to_datetime(instant_us).isoformat()}")
        return version

    async def version_before(self, agent: str, instant_us: int) -> int:
        """The newest version older than a time; 0 when there is none."""
        stream = agents.stream(agent)
        low, high = 0, await self._journal.version(stream)
        if high == 0:
            raise missing(agent)
        while low < high:  # times never decrease along a stream
            middle = (low + high + 1) // 2
            event = (await self._journal.store.read(stream, after=middle - 1, limit=1))[0]
            if event.time_us < instant_us:
                low = max(middle, min(event.version, high))
            else:
                high = event.version - event.spans
        return low

    async def _load(self, agent: str, version: int) -> Entry:
        stream = agents.stream(agent)
        kept = await folds.load(self._journal.store, stream, agent, self._journal.notes)
        if kept is not None and kept.state.version > version:
            self._journal.notes.append(f"the saved fold of {stream} is newer than its events and was not used")
            kept = None
        if kept is None:
            entry = Entry(empty(agent), folds.Tally(), 0)
        else:
            entry = Entry(kept.state, folds.Tally(kept.state.version, kept.segments), kept.size * 2)
        await self._catch_up(entry)
        return entry

    async def _catch_up(self, entry: Entry) -> None:
        """Apply what was written since."""
        stream = agents.stream(entry.state.agent)
        fold = StateFold(entry.state)
        size = 0
        while True:
            page = await self._journal.page(stream, after=fold.version)
            if page and overlaps(page[0], fold.version):
                # Compacted across our version, here or by another process: only the start is sure to fit.
                fold = StateFold(empty(entry.state.agent))
                entry.tally = folds.Tally()
                continue
            for record in page:
                entry.tally.saw(fold.add(record))
                size += record.size
            if len(page) < PAGE_EVENTS:
                break
        entry.state = fold.state()
        self._cache.grow(entry, size * MEMORY_FACTOR)


class StateFold:
    """A state in the making."""

    def __init__(self, state: State) -> None:
        self._agent = state.agent
        self._draft = StateDraft(state.raw())
        self.version = state.version
        self.total = state.total
        self._time_us = state.time_us
        self._source = state.source
        self._type = state.type

    def add(self, record: Record) -> list[Op]:
        """Apply an event; returns its operations."""
        event, ops = content(record), operations(record)
        try:
            for op in ops:
                self._draft.apply(op)
        except Corrupt as error:
            raise Corrupt(f"{record.id}: {error.what}", stream=record.stream, version=record.version) from error
        self.version = record.version
        self.total = recorded_total(record)
        self._time_us = record.time_us
        self._source = event.source
        self._type = record.type
        return ops

    def data(self) -> dict[str, Any]:
        """The data so far."""
        return self._draft.root

    def state(self) -> State:
        """The state so far; nothing may be added afterwards."""
        return State(self._agent, self.version, self._draft.root, self.total, self._time_us, self._source, self._type)


def overlaps(record: Record, version: int) -> bool:
    """Whether an event stands for versions on both sides of one: a state of that version cannot go on from it."""
    return record.version - record.spans < version


def missing(agent: str) -> NotFound:
    """The error for an agent that does not exist."""
    return NotFound(f"there is no agent {agent!r}", hint="`maos state list` shows the agents there are")


def empty(agent: str) -> State:
    """The state before the first event."""
    return State(agent, 0, {}, checksum.EMPTY, 0, "", "")


def content(record: Record) -> StateEvent:
    """An event of an agent; one of a user's own type has the fields of an update."""
    if not isinstance(record.event, Event):
        found: StateEvent = record.event
        return found
    try:
        return msgspec.convert(record.data, StateUpdated)
    except msgspec.ValidationError as error:
        raise Corrupt(f"{record.id}: {error}", stream=record.stream, version=record.version) from error


def operations(record: Record) -> list[Op]:
    """The operations of an event of an agent."""
    ops = content(record).ops
    if not all(map(well_formed, ops)):
        raise Corrupt(f"{record.id} has no operations", stream=record.stream, version=record.version)
    return ops


def begin(record: Record) -> int:
    """The time of the first event that an event stands for."""
    return record.event.since_us if isinstance(record.event, CompactionBase) else record.time_us


def recorded_total(record: Record) -> int:
    """The checksum of the state an event led to."""
    try:
        return int(content(record).sum, 16)
    except ValueError as error:
        raise Corrupt(f"{record.id} has no checksum", stream=record.stream, version=record.version) from error


def check(state: State) -> None:
    """Corrupt unless the data gives the recorded checksum (I13)."""
    try:
        computed = checksum.checksum(state.raw())
    except InvalidInput as error:
        raise Corrupt(f"agent {state.agent!r} at version {state.version}: {error.what}") from error
    if computed != state.total:
        raise Corrupt(
            f"agent {state.agent!r} at version {state.version} has checksum {checksum.text(computed)}, "
            f"recorded was {state.checksum}",
            stream=agents.stream(state.agent),
            version=state.version,
        )


def instant(time: int | datetime) -> int:
    """A time as it is stored; InvalidInput for what no calendar has."""
    instant_us = to_us(time) if isinstance(time, datetime) else time
    if not 0 <= instant_us < TIME_US_MAX:
        raise InvalidInput(f"{instant_us} is not a time", hint="times are microseconds since 1970, or datetimes")
    return instant_us


def _added(ops: list[Op]) -> int:
    """Roughly the memory that operations add."""
    return sum(size_of(op[-1]) for op in ops if op[0] != "del")
