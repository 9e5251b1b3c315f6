"""Snapshots that a person or a policy requested, and compaction, which makes histories shorter.

Snapshots are documents, not truth: the events they were folded from are. A damaged one costs the time of a replay, as
long as the events are still there (I17), and says so.

Compaction does not change a state. The last event of a compacted range stays in its place, with its hash, and from then
on stands for the whole range; a `compacted` event at the end of the stream records the seal of what was put there. So
versions have no gaps, every later hash still verifies, and the history says that and when it was shortened.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Container
from time import perf_counter_ns
from typing import Any

import msgspec

from maos.clock import Clock
from maos.errors import Conflict, Corrupt, InvalidInput, MaosError, NotFound, UnknownFormat
from maos.journal import compress
from maos.journal.journal import Append, Journal, Record
from maos.model import agent as agents
from maos.model import changes
from maos.model.changes import copied
from maos.model.events.core import EventBase
from maos.model.events.parts import Replaced
from maos.model.events.state import Baseline, Compacted, EventsMerged
from maos.state import folds, loader
from maos.state.history import StateHistory, given, retry_conflicts
from maos.state.loader import StateFold, When, empty
from maos.state.records import Compaction, Retention, SnapshotInfo, SnapshotRestored, State, StatePreview
from maos.store import chain
from maos.store.contract import Document, Lease, Replacement
from maos.tuples import NamedTuple

FORMAT = 1
TRIGGERS = ("scheduled", "manual", "event", "migration")


class _Range(NamedTuple):
    """Versions that become one event."""

    first: int
    last: Record
    events: int
    event: EventBase


class StateSnapshots(StateHistory):
    """The snapshots of all agents, and the compaction of their histories."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        super().__init__(journal)
        self._clock = clock

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
        """Take a snapshot of the newest state: full, incremental (since the last snapshot) or checkpoint (only a name).

        Example::

            info = await m.state.snapshot("reviewer", name="before")
        """
        if trigger not in TRIGGERS:
            raise InvalidInput(f"{trigger!r} is not a trigger", hint=f"one of {', '.join(TRIGGERS)}")

        async def work() -> SnapshotInfo:
            state = (await self._current(agent)).state
            info, document = await self._make(
                state, kind, trigger, name=name, source=source, retention=retention, compression=compression
            )
            meta = {"snapshot": info.id, "kind": info.kind, "version": info.version, "trigger": trigger}
            facts = given(meta=meta | given(name=name), source=source)
            await self._write(state, [], type_="snapshot_created", facts=facts, documents=[document])
            return info

        return await retry_conflicts(work)

    async def _make(
        self,
        state: State,
        kind: str,
        trigger: str,
        *,
        source: str,
        name: str = "",
        retention: Retention | None = None,
        compression: str = "zstd",
    ) -> tuple[SnapshotInfo, Document]:
        """A snapshot of a state, not yet saved."""
        begin_ns = perf_counter_ns()
        base: SnapshotInfo | None = None
        content: Any = None
        if kind == "incremental":
            base, before = await self._newest(state.agent)
            if before is None:
                kind = "full"  # there is nothing to build on
            else:
                content = changes.difference(before.raw(), state.raw())
        if kind == "full":
            content = state.raw()
        elif kind not in agents.SNAPSHOT_KINDS:
            raise InvalidInput(f"{kind!r} is not a kind of snapshot", hint=f"one of {', '.join(agents.SNAPSHOT_KINDS)}")
        plain = b"" if kind == "checkpoint" else msgspec.json.encode(content)
        stored = compress.compress(plain, compression) if plain else b""
        info = SnapshotInfo(
            id=f"v{state.version}-{secrets.token_hex(4)}",
            agent=state.agent,
            version=state.version,
            kind=kind,
            trigger=trigger,
            name=name,
            time_us=self._clock.now_us(),
            source=source,
            checksum=state.checksum,
            compression=compression if plain else "none",
            base=base.id if base is not None else None,
            bytes_plain=len(plain),
            bytes_stored=len(stored),
            duration_us=(perf_counter_ns() - begin_ns) // 1000,
            retention=retention or Retention(),
        )
        return info, Document("snapshot", _key(info), state.version, _seal(info, stored))

    async def snapshots(self, agent: str) -> list[SnapshotInfo]:
        """The snapshots of an agent, oldest first; a damaged one is noted and left out.

        Example::

            for info in await m.state.snapshots("reviewer"):
                print(info.id, info.name, info.version, info.kind)
        """
        found = []
        for document in await self._documents(agent):
            try:
                found.append(_open(document)[0])
            except Corrupt as error:
                self._journal.notes.append(f"a snapshot of {agent!r} cannot be used: {error.what}")
        found.sort(key=lambda info: (info.version, info.time_us))
        return found

    async def _filled(self, agent: str, versions: Container[int]) -> list[Document]:
        """The checkpoints of some versions about to be compacted, as full snapshots, so that they stay."""
        documents = []
        for info in await self.snapshots(agent):
            if info.kind == "checkpoint" and info.version in versions:
                plain = msgspec.json.encode((await self.at(agent, version=info.version)).raw())
                stored = compress.compress(plain)
                info = info._replace(kind="full", compression="zstd", bytes_plain=len(plain), bytes_stored=len(stored))
                documents.append(Document("snapshot", _key(info), info.version, _seal(info, stored)))
        return documents

    async def read_snapshot(self, agent: str, snapshot: str) -> State:
        """What a snapshot holds, verified, even when the agent's events are damaged; Corrupt if it does not verify.

        Example::

            state = await m.state.read_snapshot("reviewer", "before")
        """
        return await self._state_of(await self._find(agent, snapshot))

    async def restore(
        self, agent: str, snapshot: str, *, expected: int | None = None, source: str = "", under: Lease | None = None
    ) -> SnapshotRestored:
        """Restore the state of a snapshot, after verifying it. This appends an event. With `expected`, Conflict unless
        the agent is at that version.

        Example::

            restored = await m.state.restore("reviewer", "before")
            print(restored.previous, restored.version)
        """
        begin_ns = perf_counter_ns()
        id_, target, warnings = await self._sought(agent, snapshot)
        facts = given(meta={"snapshot": id_, "to": target.version}, critical=True, source=source)
        update = await self._write_target(target, "restored", facts, expected, under)
        if update.checksum != target.checksum:
            raise Corrupt(f"restoring {id_} led to {update.checksum} instead of {target.checksum}")
        duration_us = (perf_counter_ns() - begin_ns) // 1000
        return SnapshotRestored(update.version, update.previous, id_, True, 0, duration_us, warnings)

    async def preview_restore(self, agent: str, snapshot: str) -> StatePreview:
        """What restoring a snapshot would change, and what is wrong with the snapshot.

        Example::

            print((await m.state.preview_restore("reviewer", "before")).changes)
        """
        state = (await self._current(agent)).state
        id_, target, warnings = await self._sought(agent, snapshot)
        found = changes.changes(state.raw(), changes.difference(state.raw(), target.raw()))
        return StatePreview(id_, state.version, list(found), warnings)

    async def _sought(self, agent: str, snapshot: str) -> tuple[str, State, tuple[str, ...]]:
        """The id of a snapshot, the state restoring it leads to, and warnings.

        That of a damaged snapshot is taken from the events, if they still have its version.
        """
        document = await self._find(agent, snapshot)
        id_ = document.key.rpartition("\t")[2]
        try:
            return id_, await self._state_of(document), ()
        except Corrupt as error:
            try:
                state = await self.at(agent, version=document.version)
            except NotFound:
                raise error from None
            loader.check(state)
            return id_, state, (f"the snapshot is damaged ({error.what}); its state is taken from the events",)

    async def delete_snapshot(self, agent: str, snapshot: str, *, force: bool = False) -> None:
        """Remove a snapshot; permanent, critical and damaged ones only by force, the base of others not at all.

        Example::

            await m.state.delete_snapshot("reviewer", "before")
        """
        self._journal.principal.check_may_decide(f"delete a snapshot of {agent}")
        document = await self._find(agent, snapshot)
        try:
            info = _open(document)[0]
        except Corrupt:
            if not force:  # how long it was to be kept cannot be read any more
                raise
        else:
            needed = [each.id for each in await self.snapshots(agent) if each.base == info.id]
            if needed:
                raise InvalidInput(f"snapshot {info.id} is the base of {', '.join(needed)}", hint="delete those first")
            if (info.retention.permanent or info.retention.critical) and not force:
                kind = "permanent" if info.retention.permanent else "critical"
                raise InvalidInput(f"snapshot {info.id} is {kind}", hint="delete it by force if you are sure")
        await self._journal.store.append(documents=[document._replace(body=None)])

    async def expire_snapshots(self, agent: str) -> list[str]:
        """Remove the snapshots that have expired; returns their ids.

        Example::

            removed = await m.state.expire_snapshots("reviewer")
        """
        now_us = self._clock.now_us()
        removed: list[str] = []
        for info in reversed(await self.snapshots(agent)):  # those built on others first
            ends = info.retention
            if ends.permanent or ends.critical or ends.expires_us is None or ends.expires_us > now_us:
                continue
            try:
                await self.delete_snapshot(agent, info.id)
            except InvalidInput:
                continue  # a kept one is built on it
            removed.append(info.id)
        return removed

    async def check_snapshots(self, agent: str) -> list[tuple[int, str]]:
        """Version and reason for every snapshot of an agent that does not verify."""
        bad = []
        for document in await self._documents(agent):
            try:
                await self._state_of(document)
            except MaosError as error:
                bad.append((document.version, error.what))
        return bad

    async def _newest(self, agent: str) -> tuple[SnapshotInfo | None, State | None]:
        """The newest snapshot that holds a state, and that state; None for both when there is none that verifies."""
        for document in reversed(await self._documents(agent)):
            try:
                info = _open(document)[0]
                if info.kind != "checkpoint":
                    return info, await self._state_of(document)
            except Corrupt as error:
                self._journal.notes.append(f"a snapshot of {agent!r} cannot be built on: {error.what}")
        return None, None

    async def _documents(self, agent: str) -> list[Document]:
        found: list[Document] = []
        after = ""
        prefix = f"{agents.stream(agent)}\t"
        while page := await self._journal.store.scan("snapshot", prefix=prefix, after=after):
            found.extend(page)
            after = page[-1].key
        return found

    async def _find(self, agent: str, snapshot: str) -> Document:
        for document in await self._documents(agent):
            if document.key.endswith(f"\t{snapshot}"):
                return document
        for info in await self.snapshots(agent):
            if info.name and info.name == snapshot:
                return await self._find(agent, info.id)
        if not await self._journal.version(agents.stream(agent)):
            raise loader.missing(agent)
        raise NotFound(
            f"state {agent!r} has no snapshot {snapshot!r}", hint="`maos state snapshot NAME --list` shows them"
        )

    async def _state_of(self, document: Document) -> State:
        info, stored = _open(document)
        if info.kind == "checkpoint":
            return await self.at(info.agent, version=info.version)
        plain = compress.decompress(stored, info.compression, size=info.bytes_plain)
        try:
            content = msgspec.json.decode(plain)
        except msgspec.DecodeError as error:
            raise Corrupt(f"snapshot {info.id}: {error}") from error
        if info.kind == "incremental":
            assert info.base is not None
            before = await self.read_snapshot(info.agent, info.base)
            content = changes.apply(before.raw(), content)
        state = State(
            info.agent, info.version, content, int(info.checksum, 16), info.time_us, info.source, "snapshot_created"
        )
        loader.check(state)
        return state

    # --- compaction ------------------------------------------------------------------------------------------

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
        """Compact an agent's history. The state does not change; compacted versions can no longer be read.

        `snapshot` and `delete` replace all events before the kept ones by one (`snapshot` also takes a permanent
        snapshot); `merge` replaces each sequence of uncritical events by one.

        Example::

            plan = await m.state.compact("reviewer", keep_last=2, dry_run=True)
            if plan.events_after < plan.events_before:
                await m.state.compact("reviewer", keep_last=2)
        """
        if not dry_run:
            self._journal.principal.check_may_decide(f"compact the history of {agent}")
        if strategy not in agents.STRATEGIES:
            raise InvalidInput(f"{strategy!r} is not a strategy", hint=f"one of {', '.join(agents.STRATEGIES)}")
        if sum((keep_last is not None, keep_since is not None, critical_only)) > 1:
            raise InvalidInput("give only one of keep_last, keep_since and critical_only")
        if keep_last is not None and keep_last < 0:
            raise InvalidInput(f"cannot keep the last {keep_last} events")

        async def work() -> Compaction:
            entry = await self._current(agent)
            state = entry.state
            loader.check(state)  # never put a wrong state in the place of the events that would show it
            through = await self._through(state, keep_last, keep_since)
            records = await self._records(state, through)
            ranges = _ranges(agent, records, keep_critical=strategy == "merge" or critical_only)
            left = len(records) - sum(each.events - 1 for each in ranges)
            if left == len(records) or dry_run:
                return Compaction(agent, strategy, through, len(records), left, None, None)
            documents = folds.renewed(state, entry.tally, agents.stream(agent))
            snapshot: str | None = None
            if strategy == "snapshot":
                kept = await self.at(agent, version=records[-1].version)
                permanent = Retention(permanent=True)
                info, document = await self._make(kept, "full", "event", source=source, retention=permanent)
                documents.append(document)
                snapshot = info.id
            gone = {version for each in ranges for version in range(each.first, each.last.version)}
            documents.extend(await self._filled(agent, gone))
            version = await self._replace(state, ranges, documents, strategy, source)
            return Compaction(agent, strategy, through, len(records), left, snapshot, version)

        return await retry_conflicts(work)

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
            return await self._version_before(state.agent, loader.instant(keep_since))
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


def _key(info: SnapshotInfo) -> str:
    return f"{agents.stream(info.agent)}\t{info.version:012d}\t{info.id}"


def _seal(info: SnapshotInfo, stored: bytes) -> bytes:
    header = msgspec.json.encode({"format": FORMAT, **info._asdict(), "retention": info.retention._asdict()})
    rest = len(header).to_bytes(4, "big") + header + stored
    return hashlib.sha256(rest).digest() + rest


def _open(document: Document) -> tuple[SnapshotInfo, bytes]:
    """The description and the stored content of a snapshot; Corrupt or UnknownFormat if it is not one of ours."""
    body = document.body or b""
    rest = body[32:]
    if hashlib.sha256(rest).digest() != body[:32]:
        raise Corrupt(f"snapshot {document.key!r} does not match its checksum")
    size = int.from_bytes(rest[:4], "big")
    fields = msgspec.json.decode(rest[4 : 4 + size])
    format_ = fields.pop("format")
    if format_ != FORMAT:
        raise UnknownFormat(f"snapshot {document.key!r} has format {format_}, this maos knows {FORMAT}")
    fields["retention"] = Retention(**fields["retention"])
    return SnapshotInfo(**fields), rest[4 + size :]


def _ranges(agent: str, records: list[Record], *, keep_critical: bool) -> list[_Range]:
    """Each run of uncritical events as one event with what they changed together; or all events as one baseline that
    holds the state they led to."""
    ranges: list[_Range] = []
    fold = StateFold(empty(agent))
    run: list[Record] = []
    before: dict[str, Any] = {}

    def close() -> None:
        if len(run) > 1:
            total, since_us = loader.content(run[-1]).sum, loader.begin(run[0])
            event: EventBase = Baseline(ops=[["set", "", copied(fold.data())]], sum=total, since_us=since_us)
            if keep_critical:
                ops = copied(changes.difference(before, fold.data()))
                event = EventsMerged(ops=ops, sum=total, since_us=since_us, meta={"events": len(run)})
            ranges.append(_Range(run[0].version - run[0].spans + 1, run[-1], len(run), event))
        run.clear()

    for record in records:
        if keep_critical and (loader.content(record).critical or record.type in agents.CRITICAL):
            close()
        else:
            if not run:
                before = copied(fold.data())
            run.append(record)
        fold.add(record)
    close()
    loader.check(fold.state())
    return ranges
