"""An agent's history: its events with what each changed, its versions, replays, and the way to append to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any, TypeVar

from maos.errors import Conflict, Corrupt, InvalidInput, MaosError, NotFound
from maos.ids import parse_event_id
from maos.journal.codec import Codec, Event
from maos.journal.journal import Append, Record
from maos.model import agent as agents
from maos.model import changes, checksum
from maos.model.changes import Op
from maos.model.events.core import EVENTS, EventBase
from maos.state import folds
from maos.state.loader import (
    StateFold,
    StateLoader,
    When,
    content,
    empty,
    instant,
    missing,
    operations,
    recorded_total,
    state_after,
)
from maos.state.records import Replay, State, StateEvent, StateVersion, Update
from maos.store.contract import Document, Key, Lease

CONFLICTS_MAX = 100
"""How often a change without an expected version is computed again before the contention is reported."""

T = TypeVar("T")


class StateHistory(StateLoader):
    """The events of agents: read with old and new values, which are what the fold holds at that point, and appended."""

    # --- reading ---------------------------------------------------------------------------------------------

    async def history(self, agent: str, *, after: int = 0, limit: int | None = None) -> list[StateVersion]:
        """The versions of an agent, oldest first.

        Example::

            for version in await m.state.history("reviewer", limit=10):
                print(version.version, version.type, version.source)
        """
        found: list[StateVersion] = []
        stream = await self._stream(agent)
        if limit is not None and limit <= 0:
            return found
        async for record in self._journal.read(stream, after=after):
            event = content(record)
            count = sum(len(op[3]) if op[0] == "ext" else 1 for op in operations(record))
            found.append(
                StateVersion(record.version, record.type, record.time_us, event.source, count, event.sum, record.spans)
            )
            if len(found) == limit:
                break
        return found

    async def events(
        self,
        agent: str,
        *,
        after: int = 0,
        until: int | None = None,
        types: Sequence[str] | None = None,
        since: When | None = None,
        before: When | None = None,
        source: str | None = None,
        correlation: str | None = None,
        path: str | None = None,
        limit: int | None = None,
    ) -> list[StateEvent]:
        """The events of an agent that pass all given filters, with old and new value of each change.

        Example::

            for event in await m.state.events("reviewer", types=["status_changed"], limit=10):
                print(event.id, event.changes)
        """
        for name in types or ():
            if name not in agents.EVENT_TYPES:
                raise InvalidInput(f"{name!r} is not an event type", hint=f"one of {', '.join(agents.EVENT_TYPES)}")
        since_us = instant(since) if since is not None else None
        before_us = instant(before) if before is not None else None
        if path and not path.startswith("/"):
            path = "/" + path
        found: list[StateEvent] = []
        if limit is not None and limit <= 0:
            return found
        async for event in self._between(agent, after, until):
            if (
                (types is None or event.type in types)
                and (since_us is None or event.time_us >= since_us)
                and (before_us is None or event.time_us < before_us)
                and (source is None or event.source == source)
                and (correlation is None or event.correlation == correlation)
                and (path is None or any(changes.meet(change.path, path.rstrip("/")) for change in event.changes))
            ):
                found.append(event)
                if len(found) == limit:
                    break
        return found

    async def event(self, event_id: str) -> StateEvent:
        """One event by its id, such as agent/reviewer@7.

        Example::

            event = await m.state.event("agent/reviewer@2")
        """
        stream, version = parse_event_id(event_id)
        found = await self.events(stream.removeprefix(agents.PREFIX), after=version - 1, limit=1)
        if not found or not found[0].version - found[0].spans < version <= found[0].version:
            raise NotFound(f"there is no event {event_id}")
        return found[0]

    async def stream(self, agent: str, *, after: int = 0) -> AsyncIterator[StateEvent]:
        """The events of an agent after a version, then new ones as they happen; never ends by itself.

        Example::

            async for event in m.state.stream("reviewer", after=1):
                print(event.version, event.type)
                if event.type == "task_completed":
                    break
        """
        fold = StateFold(await self._state_before(agent, after) if after else empty(agent))
        async for record in self._journal.follow_stream(agents.stream(agent), after=fold.version):
            event, fold = await self._take(agent, record, fold)
            if event is not None and record.version > after:
                yield event

    async def replay(self, agent: str, first: int, last: int) -> Replay:
        """Fold a range of events again and compare every recorded checksum on the way (I13).

        Example::

            replay = await m.state.replay("reviewer", 1, 3)
            print(replay.verified, replay.events, replay.state.data["status"])
        """
        begin_ns = perf_counter_ns()
        if first < 1 or last < first:
            raise InvalidInput(f"{first} to {last} is not a range of versions", hint="versions begin at 1")
        start = await self._state_before(agent, first - 1)
        total, data = checksum.checksum(start.raw()), start.raw()
        warnings = []
        if start.version != first - 1:
            warnings.append(f"begins at version {start.version + 1}: earlier ones were compacted")
        count = 0
        state = start
        async for record in self._journal.read(await self._stream(agent), after=start.version, until=last):
            if record.version - record.spans != state.version:
                return await self.replay(agent, first, last)  # compacted while we read
            try:
                total, data = checksum.after(total, data, operations(record))
            except (Corrupt, InvalidInput) as error:
                raise _named(error, record) from error
            if total != recorded_total(record):
                raise Corrupt(f"{record.id}: replay gives another state", stream=record.stream, version=record.version)
            count += 1
            state = state_after(agent, record, data)
        if state.version != last:
            warnings.append(f"ends at version {state.version}")
        return Replay(state, count, (perf_counter_ns() - begin_ns) // 1000, True, tuple(warnings))

    async def _between(self, agent: str, after: int, until: int | None) -> AsyncIterator[StateEvent]:
        stream = await self._stream(agent)
        fold = StateFold(await self._state_before(agent, after))
        async for record in self._journal.read(stream, after=fold.version, until=until):
            event, fold = await self._take(agent, record, fold)
            if event is not None and record.version > after:
                yield event

    async def _take(self, agent: str, record: Record, fold: StateFold) -> tuple[StateEvent | None, StateFold]:
        """An event as its reader sees it, and the fold after it."""
        if record.version - record.spans == fold.version:
            event = state_event(agent, record, fold.data())
            fold.add(record)
            return event, fold
        try:
            state = await self.at(agent, version=record.version)
        except NotFound:
            return None, fold  # compacted once more: a later event stands for this one too
        # Compacted while we read: what was not seen yet comes as one event.
        ops = changes.difference(fold.data(), state.raw())
        return state_event(agent, record, fold.data(), ops), StateFold(state)

    async def _state_before(self, agent: str, version: int) -> State:
        """The state at a version, or the nearest before it that compaction has left."""
        stream = await self._stream(agent)
        while version:
            record = await self._journal.event(stream, version)
            if record is None:
                version = await self._journal.version(stream)
            elif record.version != version:
                version = record.version - record.spans
            if version:
                try:
                    return await self.at(agent, version=version)
                except NotFound:
                    continue  # compacted between the two reads
        return empty(agent)

    async def _stream(self, agent: str) -> str:
        stream = agents.stream(agent)
        if not await self._journal.version(stream):
            raise missing(agent)
        return stream

    # --- appending -------------------------------------------------------------------------------------------

    async def _write(
        self,
        state: State,
        ops: list[Op],
        *,
        type_: str | None = None,
        facts: dict[str, Any] | None = None,
        key: Key | None = None,
        under: Lease | None = None,
        documents: Sequence[Document] = (),
    ) -> Update:
        """Append operations computed from a state, and return the new state once it is on disk."""
        self._journal.principal.check_may_write_for(state.agent, "change the state of")
        facts = self._authored(facts)
        stream, ops = agents.stream(state.agent), without_secrets(self._journal.codec, ops)
        type_, event, total, data = new_event(state, ops, type_, facts)
        entry = self.cache.look(state.agent)
        tally = entry.tally if entry is not None and entry.state is state else None
        if tally is not None:
            documents = [*documents, *folds.due(state, tally, stream)]
        try:
            if key is None and not documents:
                reply = await self._journal.append(stream, event, expected=state.version, under=under)
            else:
                reply = await self._journal.append_all(
                    [Append(stream, (event,), state.version)], key=key, under=under, documents=documents
                )
        except BaseException:
            self.cache.invalidate(state.agent)  # the tally counted documents that may not have been saved
            raise
        if reply.repeated:
            self.cache.invalidate(state.agent)  # the same: a repeated append saves nothing
            return await self._repeated(state.agent, reply.version, reply.position)
        source = facts.get("source", "")
        fresh = State(state.agent, reply.version, data, total, reply.time_us, source, type_)
        self._keep(entry if tally is not None else None, fresh, ops)
        return Update(reply.version, state, fresh, ops, reply.position)

    def _authored(self, facts: Mapping[str, Any] | None) -> dict[str, Any]:
        """The facts of a change; an agent is always its author, whatever source it gives."""
        own = {"source": self._journal.by} if self._journal.principal.is_agent else {}
        return {**(facts or {}), **own}

    async def _write_target(
        self, target: State, type_: str, facts: dict[str, Any], expected: int | None, under: Lease | None
    ) -> Update:
        """Append what makes the newest state equal to an earlier one; computed again when another writer was first,
        unless the caller expects a version."""

        async def work() -> Update:
            state = (await self._current(target.agent)).state
            if expected is not None and state.version != expected:
                raise Conflict(agents.stream(target.agent), expected=expected, actual=state.version)
            ops = changes.difference(state.raw(), target.raw())
            return await self._write(state, ops, type_=type_, facts=facts, under=under)

        return await (work() if expected is not None else retry_conflicts(work))

    async def _repeated(self, agent: str, version: int, position: int) -> Update:
        """The reply to a repeated key; if its event was compacted, with what the one in its place did."""
        event = await self._journal.event(agents.stream(agent), version)
        assert event is not None
        first = event.version - event.spans
        before = await self.at(agent, version=first) if first else empty(agent)
        after = await self.at(agent, version=event.version)
        return Update(version, before, after, changes.difference(before.raw(), after.raw()), position)


async def retry_conflicts(work: Callable[[], Awaitable[T]]) -> T:
    """Do something from the newest state, and again while other writers are first."""
    for _ in range(CONFLICTS_MAX - 1):
        try:
            return await work()
        except Conflict:
            continue
    return await work()


def without_secrets(codec: Codec, ops: list[Op]) -> list[Op]:
    """The operations as they may be stored; the path of a value counts as its name."""
    named = [{op[1]: op[2]} if op[0] == "set" else op for op in ops]
    cleaned = codec.redacted(named)
    if cleaned is named:
        return ops
    return [["set", *next(iter(each.items()))] if isinstance(each, dict) else each for each in cleaned]


def new_event(
    state: State, ops: list[Op], type_: str | None, facts: Mapping[str, Any] | None
) -> tuple[str, EventBase | Event, int, dict[str, Any]]:
    """The event of some operations and its type, and the checksum and the data of the state after it."""
    try:
        total, data = checksum.after(state.total, state.raw(), ops)
    except Corrupt as error:
        raise InvalidInput(f"the changes contradict each other: {error.what}") from error
    type_ = type_ or agents.event_type(ops)
    fields = {"ops": ops, "sum": checksum.text(total), **(facts or {})}
    kind = EVENTS.get(type_)
    return type_, Event(type_, fields) if kind is None else kind(**fields), total, data


def given(**facts: Any) -> dict[str, Any]:
    """What an event says beside its changes; nothing is stored for what was not given."""
    return {name: value for name, value in facts.items() if value}


def state_event(agent: str, record: Record, data: dict[str, object], ops: list[Op] | None = None) -> StateEvent:
    """An event with what it, or what is given instead, changes in the data before it."""
    event = content(record)
    try:
        shown = tuple(changes.changes(data, operations(record) if ops is None else ops))
    except Corrupt as error:
        raise _named(error, record) from error
    return StateEvent(
        agent=agent,
        version=record.version,
        spans=record.spans,
        type=record.type,
        time_us=record.time_us,
        changes=shown,
        checksum=event.sum,
        source=event.source,
        metadata=event.meta,
        causation=event.cause or None,
        correlation=event.corr or None,
        critical=event.critical or record.type in agents.CRITICAL,
        position=record.position,
    )


def _named(error: MaosError, record: Record) -> Corrupt:
    what = error.what if record.id in error.what else f"{record.id}: {error.what}"
    return Corrupt(what, stream=record.stream, version=record.version)
