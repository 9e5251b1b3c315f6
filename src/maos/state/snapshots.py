"""Snapshots a person or a policy asked for: kept by their retention, restored after verification.

They are documents, not truth: the events they were folded from are. A damaged one costs the time of a replay, as long
as the events are still there (I17), and says so.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Container, Sequence
from typing import Any, Protocol

import msgspec

from maos.clock import Clock
from maos.errors import Corrupt, InvalidInput, MaosError, NotFound, UnknownFormat
from maos.journal import compress
from maos.journal.journal import Journal
from maos.model import agent as agents
from maos.model import changes
from maos.model.changes import Op
from maos.state import loader
from maos.state.cache import Cache
from maos.state.loader import Loader
from maos.state.records import Restored, Retention, SnapshotInfo, State, Update
from maos.store.contract import Document, Lease

FORMAT = 1
TRIGGERS = ("scheduled", "manual", "event", "migration")


class SnapshotWrite(Protocol):
    """Appends operations computed from a state."""

    async def __call__(
        self,
        state: State,
        ops: list[Op],
        *,
        type_: str | None = None,
        facts: dict[str, Any] | None = None,
        under: Lease | None = None,
        documents: Sequence[Document] = (),
    ) -> Update: ...


class Snapshots:
    """The snapshots of all agents."""

    def __init__(self, journal: Journal, loader: Loader, write: SnapshotWrite, clock: Clock) -> None:
        self._journal = journal
        self._loader = loader
        self._write = write
        self._clock = clock

    async def take(
        self, agent: str, *, kind: str, name: str, trigger: str, retention: Retention, compression: str, source: str
    ) -> SnapshotInfo:
        """See AgentStates.snapshot."""
        if trigger not in TRIGGERS:
            raise InvalidInput(f"{trigger!r} is not a trigger", hint=f"one of {', '.join(TRIGGERS)}")
        state = (await self._loader.current(agent)).state
        info, document = await self.make(
            state, kind=kind, name=name, trigger=trigger, retention=retention, compression=compression, source=source
        )
        meta = {"snapshot": info.id, "kind": info.kind, "version": info.version, "trigger": trigger}
        if name:
            meta["name"] = name
        facts: dict[str, Any] = {"meta": meta}
        if source:
            facts["source"] = source
        await self._write(state, [], type_="snapshot_created", facts=facts, documents=[document])
        return info

    async def make(
        self, state: State, *, kind: str, name: str, trigger: str, retention: Retention, compression: str, source: str
    ) -> tuple[SnapshotInfo, Document]:
        """A snapshot of a state, not yet saved."""
        begin_ns = Cache.clock_ns()
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
            duration_us=(Cache.clock_ns() - begin_ns) // 1000,
            retention=retention,
        )
        return info, Document("snapshot", _key(info), state.version, _seal(info, stored))

    async def of(self, agent: str) -> list[SnapshotInfo]:
        """The snapshots of an agent, oldest first; a damaged one is noted and left out."""
        found = []
        for document in await self._documents(agent):
            try:
                found.append(_open(document)[0])
            except Corrupt as error:
                self._journal.notes.append(f"a snapshot of {agent!r} cannot be used: {error.what}")
        found.sort(key=lambda info: (info.version, info.time_us))
        return found

    async def filled(self, agent: str, versions: Container[int]) -> list[Document]:
        """The checkpoints of some versions that are about to go, as full snapshots: they shall not go with them."""
        documents = []
        for info in await self.of(agent):
            if info.kind == "checkpoint" and info.version in versions:
                plain = msgspec.json.encode((await self._loader.at(agent, info.version)).raw())
                stored = compress.compress(plain)
                info = info._replace(kind="full", compression="zstd", bytes_plain=len(plain), bytes_stored=len(stored))
                documents.append(Document("snapshot", _key(info), info.version, _seal(info, stored)))
        return documents

    async def state(self, agent: str, snapshot: str) -> State:
        """What a snapshot holds, verified; Corrupt if it does not verify."""
        return await self._state_of(_open(await self._find(agent, snapshot))[0])

    async def restore(self, agent: str, snapshot: str, *, source: str, under: Lease | None) -> Restored:
        """See AgentStates.restore."""
        begin_ns = Cache.clock_ns()
        id_, target, warnings = await self.sought(agent, snapshot)
        current = (await self._loader.current(agent)).state
        facts: dict[str, Any] = {"meta": {"snapshot": id_, "to": target.version}, "critical": True}
        if source:
            facts["source"] = source
        ops = changes.difference(current.raw(), target.raw())
        update = await self._write(current, ops, type_="restored", facts=facts, under=under)
        if update.checksum != target.checksum:
            raise Corrupt(f"restoring {id_} led to {update.checksum} instead of {target.checksum}")
        duration_us = (Cache.clock_ns() - begin_ns) // 1000
        return Restored(update.version, update.previous, id_, True, 0, duration_us, warnings)

    async def sought(self, agent: str, snapshot: str) -> tuple[str, State, tuple[str, ...]]:
        """The id of a snapshot, the state restoring it leads to, and warnings.

        That of a damaged snapshot is taken from the events, if they still have its version.
        """
        document = await self._find(agent, snapshot)
        id_ = document.key.rpartition("\t")[2]
        try:
            return id_, await self._state_of(_open(document)[0]), ()
        except Corrupt as error:
            try:
                state = await self._loader.at(agent, document.version)
            except NotFound:
                raise error from None
            loader.check(state)
            return id_, state, (f"the snapshot is damaged ({error.what}); its state is taken from the events",)

    async def delete(self, agent: str, snapshot: str, *, force: bool) -> None:
        """See AgentStates.delete_snapshot."""
        document = await self._find(agent, snapshot)
        try:
            info = _open(document)[0]
        except Corrupt:
            if not force:  # nobody can tell any more how long it was to be kept
                raise
            await self._journal.store.append(documents=[document._replace(body=None)])
            return
        needed = [each.id for each in await self.of(agent) if each.base == info.id]
        if needed:
            raise InvalidInput(f"snapshot {info.id} is the base of {', '.join(needed)}", hint="delete those first")
        if (info.retention.permanent or info.retention.critical) and not force:
            kind = "permanent" if info.retention.permanent else "critical"
            raise InvalidInput(f"snapshot {info.id} is {kind}", hint="delete it by force if you are sure")
        await self._journal.store.append(documents=[document._replace(body=None)])

    async def expire(self, agent: str) -> list[str]:
        """See AgentStates.expire_snapshots."""
        now_us = self._clock.now_us()
        removed: list[str] = []
        for info in reversed(await self.of(agent)):  # those built on others first
            ends = info.retention
            if ends.permanent or ends.critical or ends.expires_us is None or ends.expires_us > now_us:
                continue
            try:
                await self.delete(agent, info.id, force=False)
            except InvalidInput:
                continue  # a kept one is built on it
            removed.append(info.id)
        return removed

    async def check(self, agent: str) -> list[tuple[int, str]]:
        """Version and reason for every snapshot of an agent that does not verify."""
        bad = []
        for document in await self._documents(agent):
            try:
                await self._state_of(_open(document)[0])
            except MaosError as error:
                bad.append((document.version, error.what))
        return bad

    async def _newest(self, agent: str) -> tuple[SnapshotInfo | None, State | None]:
        """The newest snapshot that holds a state, and that state; None for both when there is none that verifies."""
        for info in reversed(await self.of(agent)):
            if info.kind != "checkpoint":
                try:
                    return info, await self._state_of(info)
                except Corrupt as error:
                    self._journal.notes.append(f"snapshot {info.id} of {agent!r} cannot be built on: {error.what}")
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
        for info in await self.of(agent):
            if info.name and info.name == snapshot:
                return await self._find(agent, info.id)
        if not await self._journal.version(agents.stream(agent)):
            raise NotFound(f"there is no agent {agent!r}", hint="`maos state list` shows the agents there are")
        raise NotFound(
            f"agent {agent!r} has no snapshot {snapshot!r}", hint="`maos state snapshot AGENT --list` shows them"
        )

    async def _state_of(self, info: SnapshotInfo) -> State:
        if info.kind == "checkpoint":
            return await self._loader.at(info.agent, info.version)
        document = await self._journal.store.load("snapshot", _key(info))
        if document is None:
            raise Corrupt(f"snapshot {info.id} of {info.agent!r} is gone")
        _info, stored = _open(document)
        plain = compress.decompress(stored, info.compression, size=info.bytes_plain)
        try:
            content = msgspec.json.decode(plain)
        except msgspec.DecodeError as error:
            raise Corrupt(f"snapshot {info.id}: {error}") from error
        if info.kind == "incremental":
            assert info.base is not None
            before = await self.state(info.agent, info.base)
            content = changes.apply(before.raw(), content)
        state = State(
            info.agent, info.version, content, int(info.checksum, 16), info.time_us, info.source, "snapshot_created"
        )
        loader.check(state)
        return state


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
