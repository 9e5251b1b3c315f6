"""An agent's past: its versions, its events with what each changed, and replays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from maos.errors import Corrupt, InvalidInput, MaosError, NotFound
from maos.journal.journal import Journal, Record
from maos.model import agent as agents
from maos.model import changes, checksum
from maos.model.changes import Op
from maos.state.cache import Cache
from maos.state.loader import Loader, StateFold, content, empty, instant, operations, recorded_total
from maos.state.records import Replay, State, StateEvent, Version


class History:
    """Reads an agent's events. Old values are not stored: they are what the fold holds at that point."""

    def __init__(self, journal: Journal, loader: Loader) -> None:
        self._journal = journal
        self._loader = loader

    async def versions(self, agent: str, after: int, limit: int | None) -> list[Version]:
        """The versions after one, oldest first."""
        found: list[Version] = []
        stream = await self._stream(agent)
        if limit is not None and limit <= 0:
            return found
        async for record in self._journal.read(stream, after=after):
            event = content(record)
            count = sum(len(op[3]) if op[0] == "ext" else 1 for op in operations(record))
            found.append(
                Version(record.version, record.type, record.time_us, event.source, count, event.sum, record.spans)
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
        since: int | datetime | None = None,
        before: int | datetime | None = None,
        source: str | None = None,
        correlation: str | None = None,
        path: str | None = None,
        limit: int | None = None,
    ) -> list[StateEvent]:
        """The events that pass all filters."""
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
                and (path is None or any(_below(change.path, path) for change in event.changes))
            ):
                found.append(event)
                if len(found) == limit:
                    break
        return found

    async def stream(self, agent: str, after: int) -> AsyncIterator[StateEvent]:
        """The events after a version, then new ones as they happen."""
        stream = agents.stream(agent)
        fold = StateFold(await self._state_before(agent, after) if after else empty(agent))
        async for record in self._journal.follow_stream(stream, after=fold.version):
            event, fold = await self._take(agent, record, fold)
            if event is not None and record.version > after:
                yield event

    async def replay(self, agent: str, first: int, last: int) -> Replay:
        """Fold a range again, comparing every checksum."""
        begin_ns = Cache.clock_ns()
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
            source = content(record).source
            state = State(agent, record.version, data, total, record.time_us, source, record.type)
        if state.version != last:
            warnings.append(f"ends at version {state.version}")
        return Replay(state, count, (Cache.clock_ns() - begin_ns) // 1000, True, tuple(warnings))

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
            state = await self._loader.at(agent, record.version)
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
                    return await self._loader.at(agent, version)
                except NotFound:
                    continue  # compacted between the two reads
        return empty(agent)

    async def _stream(self, agent: str) -> str:
        stream = agents.stream(agent)
        if not await self._journal.version(stream):
            raise NotFound(f"there is no agent {agent!r}", hint="`maos state list` shows the agents there are")
        return stream


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


def _below(path: str, ancestor: str) -> bool:
    return path == ancestor or path.startswith(ancestor.rstrip("/") + "/") or ancestor.startswith(path + "/")
