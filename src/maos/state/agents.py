"""The state of agents: created, updated, read at any version or time, compared, rolled back, followed.

Every change is an event in the agent's stream; the state is their fold. An update computes what it changes, appends
that under the version it was computed from, and only then shows it; when somebody else was faster it is computed anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from maos.clock import Clock
from maos.errors import Conflict, Corrupt, InvalidInput, MaosError, NotFound
from maos.ids import check_name, parse_event_id
from maos.journal.codec import Event, EventType
from maos.journal.journal import Append, Journal
from maos.model import agent as agents
from maos.model import changes, checksum
from maos.model.changes import Change, Op
from maos.model.events import EVENTS
from maos.model.events.core import EventBase
from maos.model.view import copied
from maos.state import folds, tail
from maos.state.cache import Cache
from maos.state.compaction import Compactor
from maos.state.history import History
from maos.state.loader import Loader, empty
from maos.state.records import (
    Compaction,
    Peek,
    Preview,
    Replay,
    Restored,
    Retention,
    SnapshotInfo,
    State,
    StateEvent,
    Summary,
    Update,
    Version,
)
from maos.state.snapshots import Snapshots
from maos.store.contract import Document, Key, Lease

TYPES = tuple(EventType.of(EVENTS[name]) for name in agents.EVENT_TYPES)
CONFLICTS_MAX = 100
"""How often an update without an expected version is computed anew before the contention is reported."""

When = int | datetime
T = TypeVar("T")


class AgentStates:
    """Versioned, event-sourced state of any number of agents."""

    def __init__(self, journal: Journal, clock: Clock, *, cache: Cache | None = None) -> None:
        self._journal = journal
        self.cache = cache or Cache()
        self.cache.warm_with(self.get)
        self.loader = Loader(journal, self.cache)
        self._history = History(journal, self.loader)
        self.snapshot_store = Snapshots(journal, self.loader, self._write, clock)
        self._compactor = Compactor(journal, self.loader, self.snapshot_store, self.cache)

    # --- reading and writing ---------------------------------------------------------------------------------

    async def create(
        self,
        agent: str,
        data: Mapping[str, Any] | None = None,
        *,
        source: str = "",
        metadata: Mapping[str, Any] | None = None,
        causation: str | None = None,
        correlation: str | None = None,
        key: str | None = None,
        under: Lease | None = None,
    ) -> State:
        """Begin an agent's history; without data, with the usual fields of an agent.

        Example::

            state = await m.state.create("reviewer", {"status": "idle"}, source="cli")
        """
        check_name(agent, "agent")
        try:
            content = agents.new_state() if data is None else copied(dict(data))
        except RecursionError:
            raise InvalidInput("the data is nested too deep, or contains itself") from None
        facts = _facts(source, metadata, causation, correlation, critical=False)
        try:
            update = await self._write(
                empty(agent),
                [["set", "", content]],
                type_="instance_created",
                facts=facts,
                key=None if key is None else _key(key, agent, content, "instance_created", facts),
                under=under,
            )
        except Conflict as error:
            raise Conflict(
                error.stream,
                actual=error.actual,
                what=f"agent {agent!r} already exists",
                hint=f"choose another name, or change it: `maos state update {agent}`",
            ) from error
        return update.state

    async def get(self, agent: str) -> State:
        """The newest state; from memory when the journal has nothing newer.

        Example::

            state = await m.state.get("reviewer")
            print(state.version, state.data["status"])
        """
        return (await self.loader.current(agent)).state

    async def update(
        self,
        agent: str,
        wanted: Mapping[str, Any],
        *,
        expected: int | None = None,
        type: str | None = None,
        source: str = "",
        metadata: Mapping[str, Any] | None = None,
        causation: str | None = None,
        correlation: str | None = None,
        critical: bool = False,
        key: str | None = None,
        under: Lease | None = None,
    ) -> Update:
        """Change some fields; what is not named stays. Nested dictionaries merge.

        With `expected`, Conflict unless the agent is at that version. Without it, the changes are computed anew
        when somebody else was faster. Nothing is written when nothing would change.

        Example::

            await m.state.update("reviewer", {"status": "busy", "messages": maos.Extend([{"text": "hello"}])})
        """
        facts = _facts(source, metadata, causation, correlation, critical=critical)
        whole_key = None if key is None else _key(key, agent, wanted, type, facts)
        # What is in memory will do, however old: the append is refused unless it is the newest.
        state = self.loader.remembered(agent)
        for _ in range(CONFLICTS_MAX):
            if state is None or (expected is not None and state.version != expected):
                state = (await self.loader.current(agent)).state
                if expected is not None and state.version != expected:
                    error = Conflict(agents.stream(agent), expected=expected, actual=state.version)
                    return await self._earlier(agent, whole_key, error)
            try:
                ops = changes.operations(state.raw(), wanted)
                if ops or key is not None:
                    return await self._write(state, ops, type_=type, facts=facts, key=whole_key, under=under)
            except Conflict:
                if expected is not None:
                    raise
                state = None
                continue
            except InvalidInput as error:
                newest = (await self.loader.current(agent)).state
                if newest.version == state.version:
                    return await self._earlier(agent, whole_key, error)
            else:
                newest = (await self.loader.current(agent)).state
                if newest.version == state.version:
                    return Update(state.version, state, state, (), 0)
            state = newest  # what cannot be done, or need not, is decided from the newest state only
        newer = await self.version(agent)
        raise Conflict(agents.stream(agent), expected=newer - 1, actual=newer)

    async def composed(self, agent: str, wanted: Mapping[str, Any], *, source: str = "") -> Append | None:
        """What `update` would append now, to be written as part of a larger append; None when nothing would change.

        Conflict from that append means that the agent has changed meanwhile: compose it again.

        Example::

            change = await m.state.composed("reviewer", {"status": "busy"})
            if change is not None:
                await m.journal.append_all([change])
        """
        state = (await self.loader.current(agent)).state
        ops = changes.operations(state.raw(), wanted)
        if not ops:
            return None
        _type, event, _total, _data = _event(state, ops, None, _facts(source, None, None, None, critical=False))
        return Append(agents.stream(agent), (event,), state.version)

    async def peek(self, agent: str, path: str, *, last: int = 50) -> Peek:
        """The head of the state and the last entries of one long list, without reading the rest of it.

        Example::

            p = await m.state.peek("reviewer", "/messages", last=50)
            print(p.head["status"], p.entries, p.length)
        """
        return await tail.peek(self._journal, self.loader, agent, path, last)

    async def all(self, prefix: str = "") -> AsyncIterator[Summary]:
        """All agents, sorted by name.

        Example::

            async for summary in m.state.all("review"):
                print(summary.agent, summary.version, summary.status)
        """
        async for name in self.names(prefix):
            yield await self.summary(name)

    async def names(self, prefix: str = "") -> AsyncIterator[str]:
        """The names of all agents that begin with a prefix, sorted; their states are not read.

        Example::

            print([name async for name in m.state.names("review")])
        """
        async for stream in self._journal.streams(agents.PREFIX + prefix):
            yield stream.removeprefix(agents.PREFIX)

    async def summary(self, agent: str) -> Summary:
        """One agent as `all` lists it.

        Example::

            print((await m.state.summary("reviewer")).status)
        """
        state = await self.get(agent)
        status = state.raw().get("status")
        return Summary(state.agent, state.version, status, state.type, state.source, state.time_us)

    async def version(self, agent: str) -> int:
        """The newest version of an agent; 0 when there is no such agent.

        Example::

            print(await m.state.version("reviewer"))
        """
        return await self._journal.version(agents.stream(agent))

    # --- time travel -----------------------------------------------------------------------------------------

    async def at(self, agent: str, *, version: int | None = None, time: When | None = None) -> State:
        """The state at a version, or as it was at a time (microseconds, or a datetime).

        Example::

            state = await m.state.at("reviewer", version=2)
            same = await m.state.at("reviewer", time=state.time_us)
        """
        if (version is None) == (time is None):
            raise InvalidInput("give either a version or a time")
        if version is None:
            assert time is not None
            version = await self.loader.version_at(agent, time)
        return await self.loader.at(agent, version)

    async def diff(self, agent: str, first: int, second: int) -> list[Change]:
        """What changed between two versions.

        Example::

            for change in await m.state.diff("reviewer", 1, 3):
                print(change.kind, change.path, change.old, change.new)
        """
        old = (await self.loader.at(agent, first)).raw()
        new = (await self.loader.at(agent, second)).raw()
        return list(changes.changes(old, changes.difference(old, new)))

    async def rollback(
        self,
        agent: str,
        version: int,
        *,
        expected: int | None = None,
        source: str = "",
        metadata: Mapping[str, Any] | None = None,
        under: Lease | None = None,
    ) -> Update:
        """Make the state what it was at a version. This appends: nothing that happened is rewritten (I14).

        Example::

            update = await m.state.rollback("reviewer", 2, source="cli")
        """
        target = await self.loader.at(agent, version)
        facts = _facts(source, {**(metadata or {}), "to": version}, None, None, critical=True)
        for _ in range(CONFLICTS_MAX):
            state = (await self.loader.current(agent)).state
            if expected is not None and state.version != expected:
                raise Conflict(agents.stream(agent), expected=expected, actual=state.version)
            ops = changes.difference(state.raw(), target.raw())
            try:
                return await self._write(state, ops, type_="rolled_back", facts=facts, under=under)
            except Conflict:
                if expected is not None:
                    raise
        raise Conflict(agents.stream(agent), expected=state.version, actual=await self.version(agent))

    async def preview_rollback(self, agent: str, version: int) -> Preview:
        """What a rollback to a version would change.

        Example::

            print((await m.state.preview_rollback("reviewer", 2)).changes)
        """
        newest = await self.version(agent)
        return Preview(str(version), newest, await self.diff(agent, newest, version))

    async def replay(self, agent: str, first: int, last: int) -> Replay:
        """Fold a range of events again and compare every recorded checksum on the way (I13).

        Example::

            replay = await m.state.replay("reviewer", 1, 3)
            print(replay.verified, replay.events, replay.state.data["status"])
        """
        return await self._history.replay(agent, first, last)

    # --- history ---------------------------------------------------------------------------------------------

    async def history(self, agent: str, *, after: int = 0, limit: int | None = None) -> list[Version]:
        """The versions of an agent, oldest first.

        Example::

            for version in await m.state.history("reviewer", limit=10):
                print(version.version, version.type, version.source)
        """
        return await self._history.versions(agent, after, limit)

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
        return await self._history.events(
            agent,
            after=after,
            until=until,
            types=types,
            since=since,
            before=before,
            source=source,
            correlation=correlation,
            path=path,
            limit=limit,
        )

    async def event(self, event_id: str) -> StateEvent:
        """One event by its id, such as agent/reviewer@7.

        Example::

            event = await m.state.event("agent/reviewer@2")
        """
        stream, version = parse_event_id(event_id)
        found = await self._history.events(stream.removeprefix(agents.PREFIX), after=version - 1, limit=1)
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
        async for event in self._history.stream(agent, after):
            yield event

    # --- snapshots and compaction ----------------------------------------------------------------------------

    async def snapshot(
        self,
        agent: str,
        *,
        kind: str = "full",
        name: str = "",
        trigger: str = "manual",
        retention: Retention | None = None,
        compression: str = "zstd",
        source: str = "",
    ) -> SnapshotInfo:
        """Keep the newest state: full, incremental (since the last snapshot) or checkpoint (only a name for it).

        Example::

            info = await m.state.snapshot("reviewer", name="before")
        """
        return await _persistently(
            lambda: self.snapshot_store.take(
                agent,
                kind=kind,
                name=name,
                trigger=trigger,
                retention=retention or Retention(),
                compression=compression,
                source=source,
            )
        )

    async def snapshots(self, agent: str) -> list[SnapshotInfo]:
        """The snapshots of an agent, oldest first.

        Example::

            for info in await m.state.snapshots("reviewer"):
                print(info.id, info.name, info.version, info.kind)
        """
        return await self.snapshot_store.of(agent)

    async def read_snapshot(self, agent: str, snapshot: str) -> State:
        """What a snapshot holds, verified, even when the agent's events are damaged.

        Example::

            state = await m.state.read_snapshot("reviewer", "before")
        """
        return await self.snapshot_store.state(agent, snapshot)

    async def restore(self, agent: str, snapshot: str, *, source: str = "", under: Lease | None = None) -> Restored:
        """Make the state what a snapshot holds, after verifying it. This appends.

        Example::

            restored = await m.state.restore("reviewer", "before")
            print(restored.previous, restored.version)
        """
        return await _persistently(lambda: self.snapshot_store.restore(agent, snapshot, source=source, under=under))

    async def preview_restore(self, agent: str, snapshot: str) -> Preview:
        """What restoring a snapshot would change, and what is wrong with the snapshot.

        Example::

            print((await m.state.preview_restore("reviewer", "before")).changes)
        """
        state = await self.get(agent)
        id_, target, warnings = await self.snapshot_store.sought(agent, snapshot)
        found = changes.changes(state.raw(), changes.difference(state.raw(), target.raw()))
        return Preview(id_, state.version, list(found), warnings)

    async def delete_snapshot(self, agent: str, snapshot: str, *, force: bool = False) -> None:
        """Remove a snapshot; permanent, critical and damaged ones only by force, the base of others not at all.

        Example::

            await m.state.delete_snapshot("reviewer", "before")
        """
        await self.snapshot_store.delete(agent, snapshot, force=force)

    async def expire_snapshots(self, agent: str) -> list[str]:
        """Remove the snapshots whose time is over; returns their ids.

        Example::

            removed = await m.state.expire_snapshots("reviewer")
        """
        return await self.snapshot_store.expire(agent)

    async def compact(
        self,
        agent: str,
        *,
        strategy: str = "snapshot",
        keep_last: int | None = None,
        keep_since: When | None = None,
        critical_only: bool = False,
        dry_run: bool = False,
        source: str = "",
    ) -> Compaction:
        """Shrink an agent's history. What the state is does not change; what can be travelled back to does.

        `snapshot` and `delete` put one event in the place of all before the kept ones (`snapshot` also leaves a
        permanent snapshot); `merge` puts one in the place of each run of uncritical ones.

        Example::

            plan = await m.state.compact("reviewer", keep_last=2, dry_run=True)
            if plan.events_after < plan.events_before:
                await m.state.compact("reviewer", keep_last=2)
        """
        return await _persistently(
            lambda: self._compactor.compact(
                agent,
                strategy=strategy,
                keep_last=keep_last,
                keep_since=keep_since,
                critical_only=critical_only,
                dry_run=dry_run,
                source=source,
            )
        )

    # --- inside ----------------------------------------------------------------------------------------------

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
        """Append operations computed from a state, and show the result only once it is on disk."""
        stream = agents.stream(state.agent)
        type_, event, total, data = _event(state, ops, type_, facts)
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
        source = (facts or {}).get("source", "")
        fresh = State(state.agent, reply.version, data, total, reply.time_us, source, type_)
        self.loader.keep(entry if tally is not None else None, fresh, ops)
        return Update(reply.version, state, fresh, ops, reply.position)

    async def _earlier(self, agent: str, key: Key | None, error: MaosError) -> Update:
        """What an earlier call with the same key did; the error if there was none."""
        if key is None:
            raise error
        try:
            # No stream is at version -1: this is answered from what the key stands for, or not at all.
            reply = await self._journal.append_all([Append(agents.stream(agent), (), -1)], key=key)
        except Conflict:
            raise error from None
        return await self._repeated(agent, reply.version, reply.position)

    async def _repeated(self, agent: str, version: int, position: int) -> Update:
        """The reply to a repeated key; if its event was compacted, with what the one in its place did."""
        event = await self._journal.event(agents.stream(agent), version)
        assert event is not None
        first = event.version - event.spans
        before = await self.loader.at(agent, first) if first else empty(agent)
        after = await self.loader.at(agent, event.version)
        return Update(version, before, after, changes.difference(before.raw(), after.raw()), position)


def _event(
    state: State, ops: list[Op], type_: str | None, facts: dict[str, Any] | None
) -> tuple[str, EventBase | Event, int, dict[str, Any]]:
    """The event of some operations, its type, and what the state is after it."""
    try:
        total, data = checksum.after(state.total, state.raw(), ops)
    except Corrupt as error:
        raise InvalidInput(f"the changes contradict each other: {error.what}") from error
    type_ = type_ or agents.event_type(ops)
    return type_, _typed(type_, ops, checksum.text(total), facts or {}), total, data


async def _persistently(work: Callable[[], Awaitable[T]]) -> T:
    """Does something from the newest state, and again while somebody else is faster."""
    for _ in range(CONFLICTS_MAX - 1):
        try:
            return await work()
        except Conflict:
            continue
    return await work()


def _typed(type_: str, ops: list[Op], sum: str, facts: Mapping[str, Any]) -> EventBase | Event:
    kind = EVENTS.get(type_)
    if kind is None:
        return Event(type_, {"ops": ops, "sum": sum, **facts})
    return kind(ops=ops, sum=sum, **facts)


def _facts(
    source: str,
    metadata: Mapping[str, Any] | None,
    causation: str | None,
    correlation: str | None,
    *,
    critical: bool,
) -> dict[str, Any]:
    """What an event says beside its changes; nothing is stored for what was not given."""
    facts: dict[str, Any] = {}
    if source:
        facts["source"] = source
    if metadata:
        facts["meta"] = dict(metadata)
    if causation:
        facts["cause"] = causation
    if correlation:
        facts["corr"] = correlation
    if critical:
        facts["critical"] = True
    return facts


def _key(key: str, agent: str, wanted: Mapping[str, Any], type_: str | None, facts: Mapping[str, Any]) -> Key:
    """An idempotency key for what was asked: what it changes depends on the state it meets, the wish does not."""
    try:
        wish = json.dumps([agent, changes.describe(wanted), type_, facts], sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"what is asked for under key {key!r} is not plain data: {error}") from error
    return Key(check_name(key, "key"), hashlib.sha256(wish.encode()).digest())
