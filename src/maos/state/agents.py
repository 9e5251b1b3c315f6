"""The state of agents: created, updated, read at any version or time, compared, rolled back, followed.

Every change is an event in the agent's stream; the state is their fold. An update computes what it changes, appends
that under the version it was computed from, and only then returns it; when another writer was first, it starts again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from maos.errors import Conflict, InvalidInput, MaosError
from maos.ids import check_name
from maos.journal import verify as journal_verify
from maos.journal.codec import EventType
from maos.journal.journal import Append, Journal
from maos.journal.verify import Damage, Report
from maos.model import agent as agents
from maos.model import changes, checksum
from maos.model.changes import Change, copied
from maos.model.events.core import EVENTS
from maos.state import folds, history, loader
from maos.state.history import given, new_event
from maos.state.loader import empty
from maos.state.records import State, StatePreview, StateSummary, Update
from maos.state.snapshots import StateSnapshots
from maos.store.contract import Key, Lease

TYPES = tuple(EventType.of(EVENTS[name]) for name in agents.EVENT_TYPES)


class AgentStates(StateSnapshots):
    """Versioned, event-sourced state of any number of agents."""

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
        """Create the state of an agent; without data, with the default fields.

        Example::

            state = await m.state.create("reviewer", {"status": "idle"}, source="cli")
        """
        check_name(agent, "agent")
        try:
            content = agents.new_state() if data is None else copied(dict(data))
        except RecursionError:
            raise InvalidInput("the data is nested too deep, or contains itself") from None
        facts = given(source=source, meta=dict(metadata or {}), cause=causation, corr=correlation)
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
                what=f"agent {agent!r} has a state already",
                hint=f"change it with `maos state update {agent}`, or choose another name",
            ) from None
        return update.state

    async def get(self, agent: str) -> State:
        """The newest state; from memory when the journal has nothing newer.

        Example::

            state = await m.state.get("reviewer")
            print(state.version, state.data["status"])
        """
        return (await self._current(agent)).state

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

        With `expected`, Conflict unless the agent is at that version. Without it, the changes are computed again
        when another writer was first. Nothing is written when nothing would change.

        Example::

            await m.state.update("reviewer", {"status": "busy", "messages": maos.Extend([{"text": "hello"}])})
        """
        facts = given(source=source, meta=dict(metadata or {}), cause=causation, corr=correlation, critical=critical)
        whole_key = None if key is None else _key(key, agent, wanted, type, facts)
        # What is in memory will do, however old: the append is refused unless it is the newest.
        entry = self.cache.look(agent)
        state = entry.state if entry is not None else None
        for _ in range(history.CONFLICTS_MAX):
            if state is None or (expected is not None and state.version != expected):
                state = (await self._current(agent)).state
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
                newest = (await self._current(agent)).state
                if newest.version == state.version:
                    return await self._earlier(agent, whole_key, error)
            else:
                newest = (await self._current(agent)).state
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
        self._journal.principal.check_may_write_for(agent, "change the state of")
        state = (await self._current(agent)).state
        ops = history.without_secrets(self._journal.codec, changes.operations(state.raw(), wanted))
        if not ops:
            return None
        _type, event, _total, _data = new_event(state, ops, None, self._authored(given(source=source)))
        return Append(agents.stream(agent), (event,), state.version)

    async def all(self, prefix: str = "") -> AsyncIterator[StateSummary]:
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

    async def summary(self, agent: str) -> StateSummary:
        """One agent as `all` lists it.

        Example::

            print((await m.state.summary("reviewer")).status)
        """
        state = await self.get(agent)
        status = state.raw().get("status")
        return StateSummary(state.agent, state.version, status, state.type, state.source, state.time_us)

    async def version(self, agent: str) -> int:
        """The newest version of an agent; 0 when there is no such agent.

        Example::

            print(await m.state.version("reviewer"))
        """
        return await self._journal.version(agents.stream(agent))

    # --- time travel -----------------------------------------------------------------------------------------

    async def diff(self, agent: str, first: int, second: int) -> list[Change]:
        """What changed between two versions.

        Example::

            for change in await m.state.diff("reviewer", 1, 3):
                print(change.kind, change.path, change.old, change.new)
        """
        old = (await self.at(agent, version=first)).raw()
        new = (await self.at(agent, version=second)).raw()
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
        """Roll the state back to a version. This appends an event; nothing is rewritten (I14).

        Example::

            update = await m.state.rollback("reviewer", 2, source="cli")
        """
        target = await self.at(agent, version=version)
        facts = given(source=source, meta={**(metadata or {}), "to": version}, critical=True)
        return await self._write_target(target, "rolled_back", facts, expected, under)

    async def preview_rollback(self, agent: str, version: int) -> StatePreview:
        """What a rollback to a version would change.

        Example::

            print((await m.state.preview_rollback("reviewer", 2)).changes)
        """
        newest = await self.version(agent)
        return StatePreview(str(version), newest, await self.diff(agent, newest, version))

    # --- inside ----------------------------------------------------------------------------------------------

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


def _key(key: str, agent: str, wanted: Mapping[str, Any], type_: str | None, facts: Mapping[str, Any]) -> Key:
    """An idempotency key for a wanted update; what it changes depends on the state that it meets."""
    try:
        described = json.dumps([agent, changes.describe(wanted), type_, facts], sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"what is asked for under key {key!r} is not plain data: {error}") from error
    return Key(check_name(key, "key"), hashlib.sha256(described.encode()).digest())


# --- verification ------------------------------------------------------------------------------------------------


async def verify(
    journal: Journal,
    states: AgentStates,
    *,
    agent: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Check every event, replay every agent, and compare its folds and snapshots with the replay (I12, I13)."""
    only = agents.stream(agent) if agent is not None else None
    if only is not None and not await journal.version(only):
        raise loader.missing(str(agent))
    report = await journal_verify.verify(journal, stream=only, progress=progress)
    damage = list(report.damage)
    if journal.vault is not None and not journal.vault.is_unlocked:
        return report  # without the key no state can be folded
    async for stream in journal.streams(only or agents.PREFIX):
        if only is not None and stream != only:
            continue
        name = stream.removeprefix(agents.PREFIX)
        known = any(each.stream == stream for each in damage)
        try:
            if known:
                kept = await _kept_versions(journal, states, name)
                damage = [_add_kept(each, kept) if each.stream == stream else each for each in damage]
            damage.extend(await _check_agent(journal, states, name, damaged=known))
        except MaosError as error:  # a damaged page: the others are still looked at
            if not known:
                damage.append(Damage(stream, 0, f"cannot be read: {error.what}", "what verifies of its events"))
    return report._replace(damage=damage)


async def _kept_versions(journal: Journal, states: AgentStates, agent: str) -> list[int]:
    """Return the versions whose state is kept beside the events."""
    kept = await folds.load(journal.store, agents.stream(agent), agent, journal.notes)
    found = {info.version for info in await states.snapshots(agent)} | ({kept.state.version} if kept else set())
    return sorted(found)


def _add_kept(damage: Damage, kept: list[int]) -> Damage:
    """Return damage with the states that can be recovered although events before them cannot be replayed."""
    after = [str(version) for version in kept if version >= damage.version]
    if not after:
        return damage
    which = f"the state at version{'s' if len(after) > 1 else ''} {', '.join(after)}, from a snapshot"
    return damage._replace(recoverable=f"{damage.recoverable}; {which}" if damage.recoverable else which)


async def _check_agent(journal: Journal, states: AgentStates, agent: str, *, damaged: bool) -> list[Damage]:
    stream = agents.stream(agent)
    found: list[Damage] = []
    newest = await journal.version(stream)
    kept = await folds.load(journal.store, stream, agent, journal.notes)
    if not damaged:
        try:
            await states.replay(agent, 1, newest)
        except MaosError as error:
            found.append(Damage(stream, newest, error.what, "see the damaged versions"))
        else:
            if kept is not None and kept.state.version <= newest:
                replayed = (await states.replay(agent, 1, kept.state.version)).state
                if replayed.version == kept.state.version and not _same(kept.state, replayed):
                    found.append(
                        Damage(stream, kept.state.version, "the saved fold differs from a replay", "all, by replay")
                    )
    for version, what in await states.check_snapshots(agent):
        recoverable = "its versions by replay" if not damaged else "nothing"
        found.append(Damage(stream, version, f"snapshot: {what}", recoverable))
    return found


def _same(kept: State, replayed: State) -> bool:
    try:
        return checksum.checksum(kept.raw()) == replayed.total == kept.total
    except InvalidInput:
        return False  # it holds something that is not plain data
