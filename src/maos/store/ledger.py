"""The writer's cache of stream heads, from which it decides what a batch of appends becomes.

The ledger is a fold of the journal up to `position`. Without touching the disk it decides which appends of a batch are
accepted, which rows they become, and why the others are refused. The database then writes the plan on condition that
the journal still ends at that position, so a decision from an outdated ledger can never be written.
"""

from __future__ import annotations

import json
from asyncio import Future
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from maos.errors import Conflict, InvalidInput, KeyReused, LeaseLost, MaosError
from maos.store.chain import link
from maos.store.contract import (
    GENESIS,
    Appended,
    DataKey,
    Document,
    Key,
    Lease,
    RawEvent,
    Replacement,
    Sealer,
    UsedKey,
    Write,
)

NEWS_MAX = 10_000
"""With more events of other processes than this the cache is cleared."""
STREAMS_REMEMBERED_MAX = 50_000
"""With more streams than this the cache is cleared; a stream that is not in it costs one lookup."""


def expects_twice(writes: Sequence[Write]) -> bool:
    """Return whether a second write to the same stream has an expected version, which would be ambiguous."""
    if len({write.stream for write in writes}) == len(writes):
        return False
    named: set[str] = set()
    for stream, _events, expected in writes:
        if stream in named and expected is not None:
            return True
        named.add(stream)
    return False


class AppendRequest(msgspec.Struct, eq=False):
    """An append in progress: the request, and its reply or error once it is known."""

    writes: Sequence[Write]
    key: Key | None
    under: Lease | None
    documents: Sequence[Document]
    replacing: Sequence[Replacement]
    reply: Appended | None = None
    error: Exception | None = None
    done: bool = False
    waiter: Future[None] | None = None
    size: int = 0


Head = tuple[int, int, bytes]
"""The end of a stream: its id, version and last hash; id and version are 0 when it does not exist yet."""

EventRow = tuple[int, int, int, str, int, int, int, bytes, bytes]
"""A row of the events table: position, stream, version, type, format, time_us, token, body, hash. Rows and heads are
plain tuples because one of each is created for every event."""


Leases = Mapping[str, tuple[int, int]]
"""Token and end of leases, by name."""
Keys = Mapping[str, UsedKey]
T = TypeVar("T")
Asking = Generator[tuple[Any, ...], Sequence[Any] | None, T]
"""Work that needs rows of the database: it yields the name and the arguments of each query, and is sent the rows."""


class WriteBatch(msgspec.Struct, eq=False):
    """The rows of a batch, to be written in one transaction, and its accepted requests."""

    expected: int
    time_us: int
    sealer: Sealer | None = None
    rows: list[EventRow] = []
    streams: list[tuple[int, str]] = []
    keys: dict[str, UsedKey] = {}
    data_keys: dict[str, DataKey] = {}
    """New keys of an encrypted store, by scope."""
    documents: list[Document] = []
    replacing: list[tuple[int, Replacement]] = []
    heads: dict[str, Head] = {}
    leases: set[tuple[str, int]] = set()
    requests: list[AppendRequest] = []

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.rows or self.keys or self.documents or self.replacing)

    @property
    def last_hash(self) -> bytes:
        """The hash of the last event."""
        return self.rows[-1][-1]

    def other_rows(self) -> Iterator[tuple[str, Sequence[Any]]]:
        """Return the statements that write documents and replacements, by name, with their arguments."""
        for document in self.documents:
            yield ("delete_document", document[:3]) if document.body is None else ("save_document", document)
        for stream, (_name, first, last, event) in self.replacing:
            yield "replace_last", (stream, last, last - first + 1, event.type, event.format, event.body)
            yield "delete_replaced", (stream, first, last)

    def check_keyring(self, keyring: Sequence[Sequence[Any]]) -> None:
        """Raise Locked when another process has rotated the key that new keys of this batch are wrapped by."""
        assert self.sealer is not None
        self.sealer.check_newest(keyring)

    def data_key_rows(self) -> list[tuple[Any, ...]]:
        """Return the rows of new data keys."""
        return [key[:5] for key in self.data_keys.values()]

    def not_whole(self, arguments: Sequence[Any]) -> InvalidInput:
        """Return the error for a `replace_last` that found no event to replace."""
        stream, last, spans = arguments[:3]
        name = next(each.stream for id_, each in self.replacing if id_ == stream)
        return InvalidInput(f"versions {last - spans + 1}..{last} of {name} are not whole events")

    @property
    def only_events(self) -> bool:
        """Whether it has only events for existing streams: the case for the fast path."""
        return not (self.streams or self.keys or self.data_keys or self.documents or self.replacing)


class Ledger:
    """The heads of streams as of a position."""

    def __init__(self, sealer: Sealer | None = None) -> None:
        self.sealer = sealer
        self.position = -1  # unknown: the journal has not been read yet
        self.time_us = 0
        self.next_stream = 1
        self.attempt: WriteBatch | None = None
        """The plan being written; its outcome is unknown if the write fails."""
        self._heads: dict[str, Head] = {}

    def forget(self) -> None:
        """Clear the cache, for example after an I/O error."""
        self.position = -1
        self.attempt = None
        self._heads.clear()

    def news(self, position: int, time_us: int) -> Asking[None]:
        """Move to a position that other processes have written; clear the cache when there is too much to read."""
        news: Sequence[Any] | None = None
        if 0 <= self.position < position <= self.position + NEWS_MAX:
            news = yield "news", self.position, NEWS_MAX
        [(next_stream,)] = (yield ("next_stream",)) or ()
        if news is None:
            self._heads.clear()
        for name, id_, version, hash_ in news or ():
            if name in self._heads:
                self._heads[name] = (id_, version, hash_)
        self.position = position
        self.time_us = max(self.time_us, time_us)
        self.next_stream = int(next_stream)

    def unknown(self, batch: Iterable[AppendRequest]) -> set[str]:
        """Return the streams of a batch that are not in the cache."""
        heads = self._heads
        if len(heads) > STREAMS_REMEMBERED_MAX:
            heads.clear()  # before this batch is checked against it
        unknown = {write.stream for request in batch for write in request.writes if write.stream not in heads}
        for request in batch:
            if request.replacing:
                unknown.update(each.stream for each in request.replacing if each.stream not in heads)
        return unknown

    def facts(self, batch: Sequence[AppendRequest]) -> Asking[tuple[Leases, Keys]]:
        """Read what deciding a batch takes, as of the ledger's position: the heads of its streams that are not in the
        cache, and its leases and used keys."""
        for name in self.unknown(batch):
            rows = yield "stream_head", name
            self._heads[name] = tuple(rows[0]) if rows else (0, 0, GENESIS)
            if self.sealer is not None and not self.sealer.knows(scope := self.sealer.scope_of(name)):
                self.sealer.learn(scope, (yield "scope_keys", scope) or ())
        leases: dict[str, tuple[int, int]] = {}
        keys: dict[str, UsedKey] = {}
        for request in batch:
            if request.key is not None and (rows := (yield "used_key", request.key.id)):
                keys[request.key.id] = UsedKey(*rows[0])
            if request.under is not None and (rows := (yield "lease", request.under.name)):
                leases[request.under.name] = tuple(rows[0])
        return leases, keys

    def decide(
        self,
        batch: Sequence[AppendRequest],
        now_us: int,
        leases: Leases | None,
        keys: Keys,
    ) -> WriteBatch:
        """Decide a batch and return its plan; with `leases` None, the write itself checks the leases."""
        self.attempt = plan = WriteBatch(self.position, max(now_us, self.time_us), self.sealer)
        for request in batch:
            request.reply = request.error = None  # from an earlier plan with an outdated ledger
            try:
                if request.key is not None and self._is_repeated(request.key, request, keys, plan):
                    continue
                if request.under is not None:
                    _check_lease(request.under, now_us, leases)
                    plan.leases.add((request.under.name, request.under.token))
                reply = request.reply = self._add(request, plan)
            except MaosError as error:
                request.error = error
                continue
            plan.requests.append(request)
            if request.key is not None:
                row = UsedKey(*request.key, reply.position, json.dumps(reply.versions))
                plan.keys[row.id] = row
        return plan

    def advance(self, plan: WriteBatch) -> None:
        """Move on to the end of a plan that is on disk."""
        self._heads.update(plan.heads)
        self.position = plan.expected + len(plan.rows)
        self.time_us = plan.time_us
        self.next_stream += len(plan.streams)
        self.attempt = None
        for scope, key in plan.data_keys.items():  # only now: before, they could be lost with what they sealed
            assert self.sealer is not None
            self.sealer.learn(scope, [key])

    def _is_repeated(self, key: Key, request: AppendRequest, keys: Mapping[str, UsedKey], plan: WriteBatch) -> bool:
        row = keys.get(key.id) or plan.keys.get(key.id)
        if row is None:
            return False
        if row.fingerprint != key.fingerprint:
            raise KeyReused(key.id)
        request.reply = Appended(row.position, tuple(json.loads(row.versions)), repeated=True)
        return True

    def _add(self, request: AppendRequest, plan: WriteBatch) -> Appended:
        """Assign position, version and hash to each event; a refusal leaves the plan as it was."""
        heads, known, writes = plan.heads, self._heads, request.writes
        if len(writes) > 1 and expects_twice(writes):
            raise InvalidInput(
                "one append expects two versions of one stream", hint="give the version with the first write to it"
            )
        sealer, data_keys = self.sealer, dict[str, DataKey | None]()
        if sealer is not None:  # what was erased, or is locked, is refused as such
            data_keys = _known_keys(sealer, request, plan)
        for stream, _events, expected in writes:
            if expected is not None:
                version = (heads.get(stream) or known[stream])[1]
                if version != expected:
                    raise Conflict(stream, expected=expected, actual=version)
        for stream, first, last, _event in request.replacing:
            if not 0 < first <= last <= known[stream][1]:
                raise InvalidInput(f"{stream} has no versions {first}..{last} to replace")
        replacing, documents = request.replacing, request.documents
        if sealer is not None:
            for scope, key in data_keys.items():
                if key is None:
                    data_keys[scope] = plan.data_keys[scope] = sealer.new_key(scope, plan.time_us)
            replacing = [_seal_replacement(sealer, data_keys, each) for each in replacing]
            documents = [_seal_document(sealer, data_keys, each) for each in documents]
        if replacing:
            plan.replacing.extend((known[each.stream][0], each) for each in replacing)

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
            if sealer is not None:
                events = _seal_events(sealer, data_keys, stream, version, events)
            for type_, format_, body in events:
                position += 1
                version += 1
                hash_ = link(hash_, name, version, type_.encode(), format_, time_us, token, body)
                rows.append((position, id_, version, type_, format_, time_us, token, body, hash_))
            heads[stream] = (id_, version, hash_)
            versions.append(version)
        if documents:
            plan.documents.extend(documents)
        return Appended(position, tuple(versions), False, time_us)


DataKeys = Mapping[str, DataKey | None]


def _known_keys(sealer: Sealer, request: AppendRequest, plan: WriteBatch) -> dict[str, DataKey | None]:
    """Return the key of each scope that a request writes to; None for one that has none yet. Raise Erased or Locked."""
    scopes = {sealer.scope_of(write[0]) for write in request.writes}
    if request.replacing or request.documents:
        scopes.update(sealer.scope_of(each.stream) for each in request.replacing)
        scopes.update(
            sealer.scope_of_document(each.kind, each.key) for each in request.documents if each.body is not None
        )
    return {scope: plan.data_keys.get(scope) or sealer.current(scope) for scope in scopes}


def _seal_events(
    sealer: Sealer, keys: DataKeys, stream: str, version: int, events: Sequence[RawEvent]
) -> Sequence[RawEvent]:
    key = keys[sealer.scope_of(stream)]
    assert key is not None
    return sealer.seal_events(key, stream, version, events)


def _seal_replacement(sealer: Sealer, keys: DataKeys, replacement: Replacement) -> Replacement:
    stream, first, last, event = replacement
    [sealed] = _seal_events(sealer, keys, stream, last - 1, [event])
    return Replacement(stream, first, last, sealed)


def _seal_document(sealer: Sealer, keys: DataKeys, document: Document) -> Document:
    if document.body is None:
        return document
    key = keys[sealer.scope_of_document(document.kind, document.key)]
    assert key is not None
    return sealer.seal_document(key, document)


def _check_lease(claimed: Lease, now_us: int, leases: Leases | None) -> None:
    if leases is None:
        return
    token, expires_us = leases.get(claimed.name, (0, 0))
    if token != claimed.token:
        raise LeaseLost(claimed.name, token=claimed.token, why=f"the newest token is {token}")
    if expires_us <= now_us:
        raise LeaseLost(claimed.name, token=claimed.token, why="it expired")
