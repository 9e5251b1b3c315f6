"""Makes an agent's history shorter without changing its state.

The last event of a compacted range stays in its place, with its hash, and from then on stands for the whole range; a
`compacted` event at the end of the stream records the seal of what was put there. So versions have no gaps, every later
hash still verifies, and the history says that and when it was shortened.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from maos.errors import Conflict, InvalidInput
from maos.journal.journal import Append, Record
from maos.model import agent as agents
from maos.model import changes
from maos.model.events.core import EventBase
from maos.model.events.parts import Replaced
from maos.model.events.state import Baseline, Compacted, EventsMerged
from maos.model.view import copied
from maos.state import folds, loader
from maos.state.history import When
from maos.state.loader import StateFold, empty
from maos.state.records import Compaction, Retention, State
from maos.state.snapshots import StateSnapshots, retry_conflicts
from maos.store import chain
from maos.store.contract import Document, Replacement


class _Range(NamedTuple):
    """Versions that become one event."""

    first: int
    last: Record
    events: int
    event: EventBase


class StateCompaction(StateSnapshots):
    """The compaction of histories."""

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
        if strategy not in agents.STRATEGIES:
            raise InvalidInput(f"{strategy!r} is not a strategy", hint=f"one of {', '.join(agents.STRATEGIES)}")
        if sum((keep_last is not None, keep_since is not None, critical_only)) > 1:
            raise InvalidInput("give only one of keep_last, keep_since and critical_only")
        if keep_last is not None and keep_last < 0:
            raise InvalidInput(f"cannot keep the last {keep_last} events")
        work = partial(self._compact, agent, strategy, keep_last, keep_since, critical_only, dry_run, source)
        return await retry_conflicts(work)

    async def _compact(
        self,
        agent: str,
        strategy: str,
        keep_last: int | None,
        keep_since: When | None,
        critical_only: bool,
        dry_run: bool,
        source: str,
    ) -> Compaction:
        entry = await self.loader.current(agent)
        state = entry.state
        loader.check(state)  # never put a wrong state in the place of the events that would show it
        through = await self._through(state, keep_last, keep_since)
        records = await self._records(state, through)
        ranges = _runs(agent, records) if strategy == "merge" or critical_only else _everything(agent, records)
        removed = sum(each.events - 1 for each in ranges)
        before = len(records)
        if not removed or dry_run:
            return Compaction(agent, strategy, through, before, before - removed, None, None)
        documents = folds.renewed(state, entry.tally, agents.stream(agent))
        snapshot: str | None = None
        if strategy == "snapshot":
            kept = await self.loader.at(agent, records[-1].version)
            info, document = await self._make(kept, "full", source, retention=Retention(permanent=True))
            documents.append(document)
            snapshot = info.id
        gone = {version for each in ranges for version in range(each.first, each.last.version)}
        documents.extend(await self._filled(agent, gone))
        version = await self._replace(state, ranges, documents, strategy, source)
        return Compaction(agent, strategy, through, before, before - removed, snapshot, version)

    async def _records(self, state: State, through: int) -> list[Record]:
        records: list[Record] = []
        version = 0
        async for record in self._journal.read(agents.stream(state.agent), until=through):
            if record.version - record.spans != version:  # another compaction was first
                raise Conflict(agents.stream(state.agent), expected=state.version, actual=state.version + 1)
            version = record.version
            records.append(record)
        return records

    async def _through(self, state: State, keep_last: int | None, keep_since: When | None) -> int:
        if keep_last is not None:
            return max(0, state.version - keep_last)
        if keep_since is not None:
            return await self.loader.version_before(state.agent, loader.instant(keep_since))
        return state.version

    async def _replace(
        self, state: State, ranges: list[_Range], documents: list[Document], strategy: str, source: str
    ) -> int:
        stream = agents.stream(state.agent)
        replacing = []
        seals: list[Replaced] = []
        for each in ranges:
            raw = self._journal.codec.encode_sealed(each.event)
            replacing.append(Replacement(stream, each.first, each.last.version, raw))
            seals.append(
                {
                    "first": each.first, "last": each.last.version, "seal": chain.seal(*raw).hex(),
                    "time_us": each.last.time_us, "token": each.last.token,
                }
            )  # fmt: skip
        event = Compacted(ops=[], sum=state.checksum, replaced=seals, meta={"strategy": strategy}, source=source)
        try:
            reply = await self._journal.append_all(
                [Append(stream, [event], state.version)], documents=documents, replacing=replacing
            )
        finally:
            self.cache.invalidate(state.agent)  # its tally counts folds that were replaced, or perhaps not
        return reply.version


def _everything(agent: str, records: list[Record]) -> list[_Range]:
    """All of them as one baseline that holds the state they led to."""
    if not records:
        return []
    fold = StateFold(empty(agent))
    for record in records:
        fold.add(record)
    loader.check(fold.state())
    event = Baseline(
        ops=[["set", "", copied(fold.data())]],
        sum=loader.content(records[-1]).sum,
        since_us=loader.begin(records[0]),
    )
    return [_Range(1, records[-1], len(records), event)]


def _runs(agent: str, records: list[Record]) -> list[_Range]:
    """Each run of uncritical events as one event with what they changed together."""
    ranges: list[_Range] = []
    fold = StateFold(empty(agent))
    run: list[Record] = []
    before: dict[str, Any] = {}

    def close() -> None:
        if len(run) > 1:
            ops = changes.difference(before, fold.data())
            first = run[0].version - run[0].spans + 1
            event = EventsMerged(
                ops=copied(ops),
                sum=loader.content(run[-1]).sum,
                since_us=loader.begin(run[0]),
                meta={"events": len(run)},
            )
            ranges.append(_Range(first, run[-1], len(run), event))
        run.clear()

    for record in records:
        is_critical = loader.content(record).critical or record.type in agents.CRITICAL
        if is_critical:
            close()
        elif not run:
            before = copied(fold.data())
        if not is_critical:
            run.append(record)
        fold.add(record)
    close()
    loader.check(fold.state())
    return ranges
