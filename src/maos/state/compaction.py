"""Makes an agent's history shorter without changing its state.

The last event of a compacted range stays in its place, with its hash, and from then on stands for the whole range; a
`compacted` event at the end of the stream records the seal of what was put there. So versions have no gaps, every later
hash still verifies, and the history says that and when it was shortened.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from maos.errors import Conflict, InvalidInput
from maos.journal.journal import Append, Journal, Record
from maos.model import agent as agents
from maos.model import changes
from maos.model.events.core import EventBase
from maos.model.events.parts import Replaced
from maos.model.events.state import Baseline, Compacted, Merged
from maos.model.view import copied
from maos.state import folds, loader
from maos.state.cache import Cache
from maos.state.loader import Loader, StateFold, empty
from maos.state.records import Compaction, Retention, State
from maos.state.snapshots import Snapshots
from maos.store import chain
from maos.store.contract import Document, Replacement


class _Range(NamedTuple):
    """Versions that become one event."""

    first: int
    last: Record
    events: int
    event: EventBase


class Compactor:
    """Shortens histories."""

    def __init__(self, journal: Journal, loader: Loader, snapshots: Snapshots, cache: Cache) -> None:
        self._journal = journal
        self._loader = loader
        self._snapshots = snapshots
        self._cache = cache

    async def compact(
        self,
        agent: str,
        *,
        strategy: str,
        keep_last: int | None,
        keep_since: int | datetime | None,
        critical_only: bool,
        dry_run: bool,
        source: str,
    ) -> Compaction:
        """See AgentStates.compact."""
        if strategy not in agents.STRATEGIES:
            raise InvalidInput(f"{strategy!r} is not a strategy", hint=f"one of {', '.join(agents.STRATEGIES)}")
        if sum((keep_last is not None, keep_since is not None, critical_only)) > 1:
            raise InvalidInput("give only one of keep_last, keep_since and critical_only")
        if keep_last is not None and keep_last < 0:
            raise InvalidInput(f"cannot keep the last {keep_last} events")
        entry = await self._loader.current(agent)
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
            kept = await self._loader.at(agent, records[-1].version)
            info, document = await self._snapshots.make(
                kept, kind="full", name="", trigger="event", retention=Retention(permanent=True),
                compression="zstd", source=source,
            )  # fmt: skip
            documents.append(document)
            snapshot = info.id
        gone = {version for each in ranges for version in range(each.first, each.last.version)}
        documents.extend(await self._snapshots.filled(agent, gone))
        version = await self._replace(state, ranges, documents, strategy, source)
        return Compaction(agent, strategy, through, before, before - removed, snapshot, version)

    async def _records(self, state: State, through: int) -> list[Record]:
        records: list[Record] = []
        version = 0
        async for record in self._journal.read(agents.stream(state.agent), until=through):
            if record.version - record.spans != version:  # another compaction was faster
                raise Conflict(agents.stream(state.agent), expected=state.version, actual=state.version + 1)
            version = record.version
            records.append(record)
        return records

    async def _through(self, state: State, keep_last: int | None, keep_since: int | datetime | None) -> int:
        if keep_last is not None:
            return max(0, state.version - keep_last)
        if keep_since is not None:
            return await self._loader.version_before(state.agent, loader.instant(keep_since))
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
            self._cache.invalidate(state.agent)  # its tally counts folds that were replaced, or perhaps not
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
            event = Merged(
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
