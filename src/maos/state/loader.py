"""Gets states out of the journal: the newest, that of any version or time, or only the end of a long list."""

from __future__ import annotations

from datetime import datetime
from time import perf_counter_ns
from typing import Any

import msgspec

from maos.clock import to_datetime, to_us
from maos.errors import Corrupt, Erased, InvalidInput, NotFound
from maos.journal.codec import Event
from maos.journal.journal import PAGE_EVENTS, Journal, Record
from maos.model import agent as agents
from maos.model import checksum
from maos.model.changes import MapView, Op, StateDraft, copied, find, meet, well_formed
from maos.model.events.state import CompactionBase, StateEvent, StateUpdated
from maos.state import folds
from maos.state.folds import Cache, Entry, size_of
from maos.state.records import Peek, State

TIME_US_MAX = 253_402_300_800 * 1_000_000  # the year 10000
MEMORY_FACTOR = 4
"""Roughly how much larger data is in memory than as stored."""
When = int | datetime


class StateLoader:
    """Folds the events of agents, starting from the best place there is."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.cache = Cache(self._current)
        """The states used last."""

    async def _current(self, agent: str) -> Entry:
        """The newest state, from memory if the journal has nothing newer."""
        cache = self.cache
        begin_ns = perf_counter_ns()
        if self._journal.vault is not None:
            self._check_erased(agent)
        entry = cache.look(agent)
        version = await self._journal.store.version(agents.PREFIX + agent)
        if entry is not None and entry.state.version == version:
            cache.hits += 1
        elif entry is not None and entry.state.version < version:
            cache.refreshes += 1
            entry.tally.distrust()  # the writer may have saved folds too, with segments in the place of ours
            await self._catch_up(entry)
        elif version == 0:
            cache.invalidate(agent)
            raise missing(agent)
        else:
            cache.misses += 1
            entry = await self._load(agent, version)
            cache.put(agent, entry)
        cache.access_ns += perf_counter_ns() - begin_ns
        return entry

    def _check_erased(self, agent: str) -> None:
        """Raise Erased, and forget what is in memory, when an agent is known to have been erased."""
        if self._journal.is_erased(agents.stream(agent)):
            self.cache.invalidate(agent)
            raise Erased(agent)

    def _keep(self, entry: Entry | None, state: State, ops: list[Op]) -> None:
        """Take a state just written into the cache."""
        if entry is None:
            if state.version == 1:
                self.cache.put(state.agent, Entry(state, folds.Tally(), _added(ops)))
            else:
                self.cache.invalidate(state.agent)
            return
        entry.tally.saw(ops)
        entry.state = state
        self.cache.grow(entry, _added(ops))

    async def at(self, agent: str, *, version: int | None = None, time: When | None = None) -> State:
        """The state at a version, or as it was at a time (microseconds, or a datetime).

        Example::

            state = await m.state.at("reviewer", version=2)
            same = await m.state.at("reviewer", time=state.time_us)
        """
        if (version is None) == (time is None):
            raise InvalidInput("give either a version or a time")
        self._check_erased(agent)
        if version is None:
            assert time is not None
            version = await self._version_at(agent, time)
        stream = agents.stream(agent)
        newest = await self._journal.version(stream)
        if newest == 0:
            raise missing(agent)
        if not 1 <= version <= newest:
            raise NotFound(f"state {agent!r} has no version {version}", hint=f"its versions are 1 to {newest}")
        entry = self.cache.look(agent)
        if entry is not None and entry.state.version == version == newest:  # an older one may be compacted by now
            return entry.state
        kept = await folds.load(self._journal.store, stream, agent, self._journal.notes)
        start = kept.state if kept is not None and kept.state.version <= version else empty(agent)
        return await self._fold(start, version)

    async def _fold(self, state: State, until: int) -> State:
        """A state and the events after it, up to a version."""
        if state.version == until:
            return state
        fold = StateFold(state)
        async for record in self._journal.read(agents.stream(state.agent), after=state.version):
            if overlaps(record, fold.version):
                return await self._fold(empty(state.agent), until)
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

    async def _version_at(self, agent: str, time: When) -> int:
        """The version that was the newest at a time; NotFound when there was none, or compaction has merged it."""
        instant_us = instant(time)
        version = await self._version_before(agent, instant_us + 1)
        for event in await self._journal.store.read(agents.stream(agent), after=version, limit=1):
            if event.spans > 1 and begin(await self._journal.decode(event)) <= instant_us:
                raise NotFound(
                    f"what state {agent!r} was at {to_datetime(instant_us).isoformat()} is no longer known: versions "
                    f"{version + 1} to {event.version} were compacted into one",
                    hint=f"ask for version {event.version} or later, or for {to_datetime(event.time_us).isoformat()}",
                )
        if version == 0:
            raise NotFound(f"state {agent!r} did not exist at {to_datetime(instant_us).isoformat()}")
        return version

    async def _version_before(self, agent: str, instant_us: int) -> int:
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

    async def peek(self, agent: str, path: str, *, last: int = 50) -> Peek:
        """The head of the state and the last entries of one long list, without reading the rest of it.

        Example::

            p = await m.state.peek("reviewer", "/messages", last=50)
            print(p.head["status"], p.entries, p.length)
        """
        if not path.startswith("/"):
            path = "/" + path
        if last < 0:
            raise InvalidInput(f"cannot show the last {last} entries")
        if self.cache.look(agent) is None and (found := await self._peek_lazily(agent, path, last)) is not None:
            return found
        state = (await self._current(agent)).state
        items = find(state.raw(), path)
        if type(items) is not list:
            raise InvalidInput(f"state {agent!r} has no list at {path}", hint="name a list, such as /messages")
        return _peeked(state, {}, copied(items[max(0, len(items) - last) :]), len(items), last)

    async def _peek_lazily(self, agent: str, path: str, last: int) -> Peek | None:
        """A peek at the saved fold and the events after it; how long the list is makes no difference.

        None when they do not tell without the rest of the state: something other than growth happened to a list that
        is left out, or to the events.
        """
        stream = agents.stream(agent)
        kept = await folds.load(self._journal.store, stream, agent, self._journal.notes, path=path, last=last)
        if kept is None or path not in kept.segments:
            return None
        lengths = {each: segments[-1].end for each, segments in kept.segments.items()}
        fold = StateFold(kept.state)
        entries = kept.tail
        async for record in self._journal.read(stream, after=fold.version):
            if overlaps(record, fold.version):
                return None
            others = []
            for op in operations(record):
                if op[0] == "ext" and op[1] in lengths:
                    lengths[op[1]] += len(op[3])
                    entries += op[3] if op[1] == path else ()
                elif any(meet(op[1], each) for each in lengths):
                    return None
                else:
                    others.append(op)
            fold.add(record, others)
        if fold.version == kept.state.version and fold.version > await self._journal.version(stream):
            return None
        return _peeked(fold.state(), lengths, entries, lengths[path], last)

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
        self.cache.grow(entry, size * MEMORY_FACTOR)


class StateFold:
    """A state in the making."""

    def __init__(self, state: State) -> None:
        self._begun = state
        self._draft = StateDraft(state.raw())
        self._last: Record | None = None
        self.version = state.version

    def add(self, record: Record, ops: list[Op] | None = None) -> list[Op]:
        """Apply an event, or only some of its operations; returns them."""
        ops = operations(record) if ops is None else ops
        try:
            for op in ops:
                self._draft.apply(op)
        except Corrupt as error:
            raise Corrupt(f"{record.id}: {error.what}", stream=record.stream, version=record.version) from error
        recorded_total(record)  # Corrupt when it has none
        self._last, self.version = record, record.version
        return ops

    def data(self) -> dict[str, Any]:
        """The data so far."""
        return self._draft.root

    def state(self) -> State:
        """The state so far; nothing may be added afterwards."""
        last = self._last
        return self._begun if last is None else state_after(self._begun.agent, last, self._draft.root)


def state_after(agent: str, record: Record, data: dict[str, Any]) -> State:
    """The state that an event led to."""
    return State(
        agent, record.version, data, recorded_total(record), record.time_us, content(record).source, record.type
    )


def overlaps(record: Record, version: int) -> bool:
    """Whether an event stands for versions on both sides of one: a state of that version cannot continue from it."""
    return record.version - record.spans < version


def missing(agent: str) -> NotFound:
    """The error for an agent that has no state."""
    return NotFound(f"agent {agent!r} has no state", hint="`maos state list` lists the agents that have one")


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


def instant(time: When) -> int:
    """A time as it is stored; InvalidInput for what no calendar has."""
    instant_us = to_us(time) if isinstance(time, datetime) else time
    if not 0 <= instant_us < TIME_US_MAX:
        raise InvalidInput(f"{instant_us} is not a time", hint="times are microseconds since 1970, or datetimes")
    return instant_us


def _added(ops: list[Op]) -> int:
    """Roughly the memory that operations add."""
    return sum(size_of(op[-1]) for op in ops if op[0] != "del")


def _peeked(state: State, lengths: dict[str, int], items: list[Any], length: int, last: int) -> Peek:
    """The head of a state and the end of a list of which `items` are the last; `lengths` are lists already left out."""
    skeleton, lists = folds.split(state.raw())
    elided = {**lengths, **{path: len(each) for path, each in lists.items()}}
    head = StateDraft(skeleton)
    for path in elided:
        head.apply(["del", path])
    start = max(0, length - last)
    entries = items[len(items) - (length - start) :]
    return Peek(state.agent, state.version, state.checksum, MapView(head.root), elided, entries, start, length)
