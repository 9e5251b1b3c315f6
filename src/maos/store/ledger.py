"""The writer's memory of where each stream ends, and what follows from it for a batch of appends.

The ledger is a fold of the journal up to `position`. It decides, touching no disk: which appends of a batch are
accepted, what rows they become, why the others are refused. The database then writes the plan on the condition that the
journal still ends at that position, so a decision made from an outdated ledger can never be written.
"""

from __future__ import annotations

import json
from asyncio import Future
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from maos.errors import Conflict, InvalidInput, KeyReused, LeaseLost, MaosError
from maos.store.chain import link
from maos.store.contract import GENESIS, Appended, Document, Key, Lease, Replacement, Write

STREAMS_REMEMBERED_MAX = 50_000
"""Beyond this many streams the memory starts anew; a stream it does not know costs one look-up."""


def expects_twice(writes: Sequence[Write]) -> bool:
    """Whether a write after the first to the same stream says what version it expects: it would be unclear of when."""
    if len({write.stream for write in writes}) == len(writes):
        return False
    named: set[str] = set()
    for stream, _events, expected in writes:
        if stream in named and expected is not None:
            return True
        named.add(stream)
    return False


class AppendRequest:
    """One append on its way: what is asked, and the answer once there is one."""

    __slots__ = ("documents", "error", "key", "replacing", "reply", "settled", "size", "under", "waiter", "writes")

    def __init__(
        self,
        writes: Sequence[Write],
        key: Key | None,
        under: Lease | None,
        documents: Sequence[Document],
        replacing: Sequence[Replacement],
    ) -> None:
        self.writes = writes
        self.key = key
        self.under = under
        self.documents = documents
        self.replacing = replacing
        self.reply: Appended | None = None
        self.error: Exception | None = None
        self.settled = False
        self.waiter: Future[None] | None = None
        self.size = 0


Head = tuple[int, int, bytes]
"""Where a stream ends: its id, its version and its last hash; id and version are 0 when it does not exist yet."""

EventRow = tuple[int, int, int, str, int, int, int, bytes, bytes]
"""A row of the events table: position, stream, version, type, format, time_us, token, body, hash. Rows and heads are
plain tuples because one of each is made for every event there is."""


class KeyRow(NamedTuple):
    """A row of the keys table: a used key and the reply it gave."""

    id: str
    fingerprint: bytes
    position: int
    versions: str


class WriteBatch:
    """What a batch comes to: rows to write, all in one transaction, and the answers to give afterwards."""

    __slots__ = (
        "documents",
        "expected",
        "heads",
        "keys",
        "leases",
        "replacing",
        "requests",
        "rows",
        "streams",
        "time_us",
    )

    def __init__(self, expected: int, time_us: int) -> None:
        self.expected = expected
        self.time_us = time_us
        self.rows: list[EventRow] = []
        self.streams: list[tuple[int, str]] = []
        self.keys: dict[str, KeyRow] = {}
        self.documents: list[Document] = []
        self.replacing: list[tuple[int, Replacement]] = []
        self.heads: dict[str, Head] = {}
        self.leases: set[tuple[str, int]] = set()
        self.requests: list[AppendRequest] = []

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.rows or self.keys or self.documents or self.replacing)

    @property
    def last_place(self) -> tuple[int, int]:
        """Stream and version of the last event."""
        return self.rows[-1][1:3]

    @property
    def last_hash(self) -> bytes:
        """The hash of the last event."""
        return self.rows[-1][-1]

    def stands(self, found: Sequence[Any] | None) -> bool | None:
        """Whether it was written, going by version and hash of what stands at its last place or first after it.

        None if others have compacted that place: what stood there is not known any more.
        """
        if found is None:
            return False
        version, hash_ = found
        return bool(hash_ == self.last_hash) if version == self.last_place[1] else None

    @property
    def only_events(self) -> bool:
        """Whether it is nothing but events for streams that exist: the case worth a fast path."""
        return not (self.streams or self.keys or self.documents or self.replacing)


class Ledger:
    """Where each stream ends, as of a position."""

    def __init__(self) -> None:
        self.position = -1  # nothing known yet, not even that the journal is empty
        self.time_us = 0
        self.next_stream = 1
        self.attempt: WriteBatch | None = None
        """The plan being written; its outcome is unknown if the write fails."""
        self._heads: dict[str, Head] = {}

    def forget(self) -> None:
        """Trust nothing remembered, e.g. after an I/O error."""
        self.position = -1
        self.attempt = None
        self._heads.clear()

    def moved_to(self, position: int, time_us: int, next_stream: int, news: Iterable[tuple[str, Head]] | None) -> None:
        """Take in what others wrote; `news` is None when that is too much to follow."""
        if news is None:
            self._heads.clear()
        else:
            for name, head in news:
                if name in self._heads:
                    self._heads[name] = head
        self.position = position
        self.time_us = max(self.time_us, time_us)
        self.next_stream = next_stream

    def unknown(self, batch: Iterable[AppendRequest]) -> set[str]:
        """The streams of a batch whose ends have to be looked up first."""
        heads = self._heads
        if len(heads) > STREAMS_REMEMBERED_MAX:
            heads.clear()  # before the streams of this batch are looked for among them
        unknown = {write.stream for request in batch for write in request.writes if write.stream not in heads}
        for request in batch:
            if request.replacing:
                unknown.update(each.stream for each in request.replacing if each.stream not in heads)
        return unknown

    def learn(self, names: Iterable[str], found: Mapping[str, Head]) -> None:
        """Remember the ends of streams, as they are at the ledger's position."""
        for name in names:
            self._heads[name] = found.get(name) or (0, 0, GENESIS)

    def decide(
        self,
        batch: Sequence[AppendRequest],
        now_us: int,
        leases: Mapping[str, tuple[int, int]] | None,
        keys: Mapping[str, KeyRow],
    ) -> WriteBatch:
        """The plan for a batch; `leases` of None assumes the claimed ones are valid (the write checks them again)."""
        self.attempt = plan = WriteBatch(self.position, max(now_us, self.time_us))
        for request in batch:
            request.reply = request.error = None  # an earlier plan may have been made from an outdated ledger
            try:
                if request.key is not None and self._repeated(request.key, request, keys, plan):
                    continue
                if request.under is not None:
                    _check_lease(request.under, now_us, leases)
                    plan.leases.add((request.under.name, request.under.token))
                reply = request.reply = self._place(request, plan)
            except MaosError as error:
                request.error = error
                continue
            plan.requests.append(request)
            if request.key is not None:
                row = KeyRow(*request.key, reply.position, json.dumps(reply.versions))
                plan.keys[row.id] = row
        return plan

    def written(self, plan: WriteBatch) -> None:
        """Remember a plan that is on disk."""
        self._heads.update(plan.heads)
        self.position = plan.expected + len(plan.rows)
        self.time_us = plan.time_us
        self.next_stream += len(plan.streams)
        self.attempt = None

    def _repeated(self, key: Key, request: AppendRequest, keys: Mapping[str, KeyRow], plan: WriteBatch) -> bool:
        row = keys.get(key.id) or plan.keys.get(key.id)
        if row is None:
            return False
        if row.fingerprint != key.fingerprint:
            raise KeyReused(key.id)
        request.reply = Appended(row.position, tuple(json.loads(row.versions)), repeated=True)
        return True

    def _place(self, request: AppendRequest, plan: WriteBatch) -> Appended:
        """Give each event its position, version and hash; a refusal leaves the plan as it was."""
        heads, known, writes = plan.heads, self._heads, request.writes
        if len(writes) > 1 and expects_twice(writes):
            raise InvalidInput(
                "one append expects two versions of one stream", hint="say it with the first write to it"
            )
        for stream, _events, expected in writes:
            if expected is not None:
                version = (heads.get(stream) or known[stream])[1]
                if version != expected:
                    raise Conflict(stream, expected=expected, actual=version)
        if request.replacing:
            self._check_replacing(request.replacing)
            plan.replacing.extend((known[each.stream][0], each) for each in request.replacing)

        token = request.under.token if request.under is not None else 0
        rows, time_us = plan.rows, plan.time_us
        position = plan.expected + len(rows)
        versions = []
        for stream, events, _expected in writes:
            id_, version, hash_ = heads.get(stream) or known[stream]
            if id_ == 0 and events:
                id_ = self.next_stream + len(plan.streams)
                plan.streams.append((id_, stream))
            name = stream.encode()
            for type_, format_, body in events:
                position += 1
                version += 1
                hash_ = link(hash_, name, version, type_.encode(), format_, time_us, token, body)
                rows.append((position, id_, version, type_, format_, time_us, token, body, hash_))
            heads[stream] = (id_, version, hash_)
            versions.append(version)
        if request.documents:
            plan.documents.extend(request.documents)
        return Appended(position, tuple(versions), False, time_us)

    def _check_replacing(self, replacing: Sequence[Replacement]) -> None:
        for stream, first, last, _event in replacing:
            if not 0 < first <= last <= self._heads[stream][1]:
                raise InvalidInput(f"{stream} has no versions {first}..{last} to replace")


def _check_lease(claimed: Lease, now_us: int, leases: Mapping[str, tuple[int, int]] | None) -> None:
    if leases is None:
        return
    token, expires_us = leases.get(claimed.name, (0, 0))
    if token != claimed.token:
        raise LeaseLost(claimed.name, token=claimed.token, why=f"the newest token is {token}")
    if expires_us <= now_us:
        raise LeaseLost(claimed.name, token=claimed.token, why="it expired")
