"""The journal: streams of events over a store.

Everything maos knows is here; everything else is a fold of it, a name for a place in it, or the right to extend it.
What is read has been checked against the hash chain first, so damaged data is an error and never a wrong answer.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import zstandard

from maos.errors import Conflict, Corrupt, Erased, InvalidInput, MaosError
from maos.ids import check_name, event_id, incarnation
from maos.journal import dictionary
from maos.journal.codec import Codec, Data, EncodedEvent, Event, EventType, damaged
from maos.keys.envelope import key_id_of
from maos.keys.vault import UnknownKey, Vault
from maos.model.events.core import EventBase
from maos.model.principal import ENGINE, Principal
from maos.store import chain
from maos.store.contract import (
    GENESIS,
    Appended,
    Document,
    Key,
    Lease,
    RawEvent,
    Recorded,
    Replacement,
    Store,
    StreamEnding,
    Write,
)
from maos.tuples import NamedTuple

PAGE_EVENTS = 256
PAGE_NAMES = 1_000
FOLLOW_REST_S, FOLLOW_REST_S_MAX = 0.005, 0.16
"""For how long a follower rests after it was woken for nothing: twice as long each time."""
END = (1 << 63) - 1  # above every version
STREAMS_FOLLOWED_MAX = 10_000
NAMES_KNOWN_MAX = 10_000
NOTES_MAX = 100
DICTIONARIES_MAX = 256  # above what all stages train
MISMATCH = "does not match its hash"

TYPES = (EventType(dictionary.TYPE),)

_decode = msgspec.json.Decoder(Data).decode
_NOT_LOADED = (dictionary.UnknownDictionary, UnknownKey)


class Append(NamedTuple):
    """Events for one stream, as part of an append over several.

    Example::

        note = maos.Event("note", {"text": "hello"})
        await journal.append_all([maos.Append("run/1", [note]), maos.Append("run/2", [note], expected=0)])
    """

    stream: str
    events: Sequence[Event | EventBase | EncodedEvent[Any]]
    expected: int | None = None


def by_stream(appends: Sequence[Append]) -> list[Append]:
    """The same appends, those for one stream as one; the first of them says what is expected of the stream."""
    events: dict[str, list[Event | EventBase | EncodedEvent[Any]]] = {}
    for each in appends:
        events.setdefault(each.stream, []).extend(each.events)
    expected = {each.stream: each.expected for each in reversed(appends)}
    return [Append(stream, said, expected[stream]) for stream, said in events.items()]


class Record(msgspec.Struct, gc=False):
    """An event read from the journal, verified and decoded."""

    position: int
    stream: str
    version: int
    spans: int
    type: str
    time_us: int
    token: int
    event: Any
    """The event itself, of the class that its type has; an `Event` for types whose events are plain data."""
    hash: bytes
    size: int
    """The bytes its body takes up in the store."""
    _body: bytes
    _data: Data | None = None

    @property
    def data(self) -> Data:
        """The event as plain data, with fields that this maos does not know."""
        if self._data is None:
            self._data = _decode(self._body)
        return self._data

    @property
    def json(self) -> bytes:
        """The event as it is stored, as JSON."""
        return self._body

    @property
    def id(self) -> str:
        """The event's name."""
        return event_id(self.stream, self.version)


class JournalNotes(list[str]):
    """Notes to be read some day: each once, and of too many the newest."""

    def append(self, note: str) -> None:
        """Keep a note."""
        if note not in self:
            super().append(note)
            del self[:-NOTES_MAX]


class Journal:
    """Streams with versions, written atomically and read in order."""

    def __init__(
        self,
        store: Store,
        types: Iterable[EventType] = (),
        *,
        secrets: Mapping[str, str] | None = None,
        vault: Vault | None = None,
    ) -> None:
        self.store = store
        self.vault = vault
        """The keys of an encrypted store; None when it is not."""
        self.principal: Principal = ENGINE
        """Who acts through it, for the field `by` of events; the program that opens the journal sets it once."""
        self.owner = incarnation()
        # A dictionary has parts of many events, and an erasure of some of them could not reach it.
        self._dictionaries = dictionary.Dictionaries(trains=vault is None)
        self.codec = Codec((*TYPES, *types), self._dictionaries, secrets, vault)
        self._names: set[str] = set()
        self._dictionaries_loaded = False
        self._trainer: asyncio.Task[None] | None = None
        self.notes: list[str] = JournalNotes()
        """Things that went wrong without consequence for what is stored."""

    @property
    def by(self) -> str:
        """The text of its principal, as events record it."""
        return str(self.principal)

    def acting_for(self, principal: Principal) -> Journal:
        """The same journal for another principal: it shares the store, and is another owner of leases."""
        other = copy.copy(self)
        other.principal, other.owner, other._trainer = principal, incarnation(), None
        return other

    # --- writing ---------------------------------------------------------------------------------------------

    async def append(
        self,
        stream: str,
        events: Event | EventBase | Sequence[Event | EventBase],
        *,
        expected: int | None = None,
        key: str | None = None,
        under: Lease | None = None,
    ) -> Appended:
        """Write events to the end of a stream; on disk when this returns.

        `expected` is the version the stream must be at (0: it must not exist). With a `key`, a repeated call adds
        nothing. `under` a lease, nothing is written once the lease is lost.

        Example::

            await journal.append("run/1", maos.Event("note", {"text": "hello"}), expected=0)
        """
        # Not by way of `append_all`, which takes a tenth longer.
        if not self._dictionaries_loaded:
            await self._load_dictionaries()
        if stream not in self._names:
            self._check_stream(stream)
        encode = self.codec.encode
        if isinstance(events, (Event, EventBase)):
            events = (events,)
        write = Write(stream, [encode(event) for event in events], expected)
        whole_key = None if key is None else self._key(key, [Append(stream, events)])
        reply = await self.store.append(write, key=whole_key, under=under)
        if self._dictionaries.due():
            self._train_dictionary()
        return reply

    async def append_all(
        self,
        appends: Sequence[Append],
        *,
        key: str | Key | None = None,
        under: Lease | None = None,
        documents: Sequence[Document] = (),
        replacing: Sequence[Replacement] = (),
    ) -> Appended:
        """Write to several streams at once, to all of them or to none.

        A `Key` has a fingerprint that the caller chose; that of a plain string is computed from the events.

        Example::

            note = maos.Event("note", {"text": "hello"})
            await journal.append_all([maos.Append("run/1", [note]), maos.Append("run/2", [note])], key="task/2")
        """
        if not self._dictionaries_loaded:
            await self._load_dictionaries()
        writes = []
        encoded: dict[int, RawEvent] = {}
        encode = self.codec.encode
        for stream, events, expected in appends:
            if stream not in self._names:
                self._check_stream(stream)
            for event in events:  # one that goes to many streams is encoded once
                if id(event) not in encoded:
                    encoded[id(event)] = event.raw if isinstance(event, EncodedEvent) else encode(event)
            writes.append(Write(stream, [encoded[id(event)] for event in events], expected))
        reply = await self.store.append(
            *writes,
            key=self._key(key, appends) if isinstance(key, str) else key,
            under=under,
            documents=documents,
            replacing=replacing,
        )
        if self._dictionaries.due():
            self._train_dictionary()
        return reply

    # --- reading ---------------------------------------------------------------------------------------------

    async def read(self, stream: str, *, after: int = 0, until: int | None = None) -> AsyncIterator[Record]:
        """The events of a stream with versions above `after` (up to `until`), oldest first.

        Corrupt, or UnknownFormat, at the first one that is; those before it are read all the same.

        Example::

            async for record in journal.read("run/1", after=1):
                print(record.version, record.type, record.data)
        """
        while True:
            events, damage = await self._verified(stream, after, PAGE_EVENTS)
            for event in events:
                if until is not None and event.version > until:
                    return
                try:
                    record = self._record(event)
                except _NOT_LOADED:
                    record = await self.decode(event)
                yield record
                after = event.version
            if until is not None and after >= until:
                return
            if damage is not None:
                raise damage
            if len(events) < PAGE_EVENTS:
                return

    async def page(self, stream: str, *, after: int = 0, limit: int = PAGE_EVENTS) -> list[Record]:
        """The next events of a stream, at most `limit`."""
        events, damage = await self._verified(stream, after, limit)
        if damage is not None:
            raise damage
        return await self._decoded(events)

    async def continued(self, events: Sequence[Recorded], before: Record | None) -> list[Record]:
        """Events of one stream that were read with others and follow a record; none unless they verify as such.

        Example::

            first, *others = await journal.store.read("run/1")
            assert await journal.continued(others, await journal.event("run/1", 1))
        """
        return await self._decoded(events) if chain.sound(events, before) == len(events) else []

    async def page_back(self, stream: str, *, before: int | None = None, limit: int = PAGE_EVENTS) -> list[Record]:
        """The events of a stream before a version, or the last ones, newest first."""
        events = await self.store.read(stream, after=END if before is None else before, limit=limit + 1, backwards=True)
        events.reverse()
        oldest = events.pop(0) if len(events) > limit else None
        sound = chain.sound(events, oldest)
        if sound < len(events):
            raise damaged(events[sound], MISMATCH)
        events.reverse()
        return await self._decoded(events)

    async def event(self, stream: str, version: int) -> Record | None:
        """One event, or the compacted one that stands for it.

        Example::

            record = await journal.event("run/1", 2)
            if record is not None:
                print(record.type, record.data)
        """
        page = await self.page(stream, after=version - 1, limit=1)
        return page[0] if page else None

    async def follow(
        self,
        *,
        after: int = 0,
        prefix: str = "",
        rest_s: float = 0.0,
        wanted: Callable[[str], bool] | None = None,
    ) -> AsyncIterator[Record]:
        """Every event with a position above `after`, in order, then new ones as they come; never ends by itself.

        `wanted` tells by its name whether the events of a stream are given; `prefix` is how it must begin. While others
        write and nothing of it is wanted, new events gather for ever longer before they are read, up to
        FOLLOW_REST_S_MAX; `rest_s` is how long they gather always.

        Example::

            async for record in journal.follow(prefix="run/"):
                print(record.id, record.data)
                if record.type == "done":
                    break
        """
        hashes: dict[str, bytes] = {}
        doubtful: Recorded | None = None
        idle_s = FOLLOW_REST_S
        while True:
            for event in await self.store.read_log(after=after, limit=PAGE_EVENTS):
                if event.stream.startswith(prefix) and (wanted is None or wanted(event.stream)):
                    idle_s = 0.0
                    previous = hashes.get(event.stream)
                    if previous is None:
                        before = await self._before(event)
                        previous = before.hash if before is not None else GENESIS
                    if event.spans == 1 and event.hash != chain.hash_of(event, previous):
                        if event == doubtful:
                            raise damaged(event, MISMATCH)
                        doubtful = event  # or its stream was compacted since this page was read: look again
                        hashes.pop(event.stream, None)
                        break
                    if len(hashes) >= STREAMS_FOLLOWED_MAX:
                        hashes.clear()
                    hashes[event.stream] = event.hash
                    if (record := await self.decode_unless_erased(event)) is not None:
                        yield record
                after = event.position
            else:
                if max(rest_s, idle_s):
                    await asyncio.sleep(max(rest_s, idle_s))
                await self.store.wait(after=after, timeout_s=60)
                idle_s = min(2 * idle_s, FOLLOW_REST_S_MAX) or FOLLOW_REST_S

    async def follow_stream(self, stream: str, *, after: int = 0) -> AsyncIterator[Record]:
        """The events of one stream above a version, then new ones as they come; never ends by itself.

        Example::

            async for record in journal.follow_stream("run/1", after=1):
                print(record.version, record.data)
                if record.type == "done":
                    break
        """
        while True:
            head = await self.store.head()
            async for record in self.read(stream, after=after):
                after = record.version
                yield record
            await self.store.wait(after=head, timeout_s=60, streams=(stream,))

    async def version(self, stream: str) -> int:
        """Where a stream ends; 0 when it does not exist.

        Example::

            version = await journal.version("run/1")
            await journal.append("run/1", maos.Event("note", {"text": "hello"}), expected=version)
        """
        return await self.store.version(stream)

    async def head(self) -> int:
        """Where the journal ends.

        Example::

            position = await journal.head()
        """
        return await self.store.head()

    async def streams(
        self, prefix: str = "", *, erased: bool = False, unless: StreamEnding | None = None, newest: bool = False
    ) -> AsyncIterator[str]:
        """The names of all streams with a prefix, sorted; of those that were erased only if `erased`.

        Those that have ended as `unless` says are left out. With `newest`, those made last come first.

        Example::

            names = [name async for name in journal.streams("run/")]
        """
        after, vault = "", None if erased else self.vault
        if vault is not None:
            await vault.refresh()
        while True:
            names = await self.store.streams(prefix=prefix, after=after, limit=PAGE_NAMES, unless=unless, newest=newest)
            for name in names:
                if vault is None or not self.is_erased(name):
                    yield name
            if len(names) < PAGE_NAMES:
                return
            after = names[-1]

    def is_erased(self, stream: str) -> bool:
        """Whether a stream is known to have been erased; `streams` looks for what other processes have erased."""
        return self.vault is not None and self.vault.scope_of(stream) in self.vault.erased

    # --- leases ----------------------------------------------------------------------------------------------

    async def acquire(self, name: str, *, ttl_s: float = 30.0, owner: str | None = None) -> Lease | None:
        """Acquire a lease; None while that of another owner is valid.

        Example::

            lease = await journal.acquire("reviewer", ttl_s=60)
            if lease is not None:
                await m.state.update("reviewer", {"status": "busy"}, under=lease)
        """
        return await self.store.acquire(check_name(name, "lease"), owner=owner or self.owner, ttl_s=ttl_s)

    async def renew(self, lease: Lease, *, ttl_s: float = 30.0) -> Lease | None:
        """The lease with a later end; None when it is lost.

        Example::

            renewed = await journal.renew(lease, ttl_s=60)
            if renewed is not None:
                lease = renewed
        """
        return await self.store.renew(lease, ttl_s=ttl_s)

    async def release(self, lease: Lease) -> None:
        """Release a lease before it expires.

        Example::

            lease = await journal.acquire("reviewer")
            if lease is not None:
                await journal.release(lease)
        """
        await self.store.release(lease)

    async def close(self) -> None:
        """Finish what is under way and close the store.

        Example::

            await journal.close()
        """
        if self._trainer is not None:
            await asyncio.wait([self._trainer])
        await self.store.close()

    # --- inside ----------------------------------------------------------------------------------------------

    def _check_stream(self, stream: str) -> None:
        check_name(stream, "stream")
        if self.codec.redacted(stream) != stream:
            raise InvalidInput("the name of a stream contains a secret", hint="choose another name")
        if stream == dictionary.STREAM:
            raise InvalidInput(f"the stream {stream} is the journal's own", hint="choose another name")
        if len(self._names) >= NAMES_KNOWN_MAX:
            self._names.clear()
        self._names.add(stream)

    def _key(self, key: str, appends: Iterable[Append]) -> Key:
        """The fingerprint is of the plain data: a repeat may be compressed differently and is still the same."""
        digest = hashlib.sha256()
        for stream, events, _expected in appends:
            digest.update(f"{len(stream)}:{stream}".encode())
            for each in events:
                event = each.event if isinstance(each, EncodedEvent) else each
                kind, body = self.codec.plain(event)
                if isinstance(event, EventBase):  # a default may be in the body or not, and is the same
                    body = msgspec.json.encode(msgspec.structs.asdict(event))
                digest.update(f"{len(kind.name)}:{kind.name}:{len(body)}:".encode() + body)
        return Key(check_name(key, "key"), digest.digest())

    async def _verified(self, stream: str, after: int, limit: int) -> tuple[list[Recorded], Corrupt | None]:
        """The next events of a stream, each compared with the one before it; up to the first that is damaged."""
        events, before = await self._next(stream, after, limit)
        while (sound := chain.sound(events, before)) < len(events):
            again, before = await self._next(stream, after, limit)
            if again == events:  # else it was compacted between two reads
                return events[:sound], damaged(events[sound], MISMATCH)
            events = again
        return events, None

    async def _next(self, stream: str, after: int, limit: int) -> tuple[list[Recorded], Recorded | None]:
        """The next events of a stream and the one before them, in one read when it stands where it should."""
        events = await self.store.read(stream, after=max(0, after - 1), limit=limit + 1)
        if events and events[0].version == after:
            return events[1:], events[0]
        del events[limit:]
        return events, await self._before(events[0]) if events else None

    async def _before(self, event: Recorded) -> Recorded | None:
        if event.version <= 1:
            return None
        before = await self.store.read(event.stream, after=event.version, limit=1, backwards=True)
        return before[0] if before else None

    async def decode(self, event: Recorded) -> Record:
        """The decoded form of an event; the caller has verified it."""
        try:
            return self._record(event)
        except UnknownKey:
            await self._fetch_key(event)
        except dictionary.UnknownDictionary:
            await self._load_dictionaries()  # not read yet, or trained by another process since
        try:
            return self._record(event)
        except dictionary.UnknownDictionary as missing:
            why = f"needs compression dictionary {missing}, which is not in {dictionary.STREAM}"
            raise damaged(event, why) from missing

    async def decode_unless_erased(self, event: Recorded) -> Record | None:
        """The decoded form of an event; None when it was erased."""
        try:
            return await self.decode(event)
        except Erased:
            return None

    async def unpacked(self, event: Recorded) -> bytes:
        """The body of an event of a store that is not encrypted, in a form that needs no dictionary."""
        if event.type == dictionary.TYPE and event.stream == dictionary.STREAM:
            return msgspec.json.encode({"bytes": len(event.body)})
        if not self._dictionaries_loaded:
            await self._load_dictionaries()
        return dictionary.repack(event.body, self._dictionaries)

    async def opened(self, event: Recorded) -> bytes:
        """The body of an event as it was before it was sealed."""
        try:
            return self.codec.opened(event)
        except UnknownKey:
            await self._fetch_key(event)
        return self.codec.opened(event)

    async def _fetch_key(self, event: Recorded) -> None:
        assert self.vault is not None
        await self.vault.fetch(key_id_of(event.body))

    async def _decoded(self, events: Sequence[Recorded]) -> list[Record]:
        """`decode` for many, with a coroutine for those only that need a dictionary first."""
        records = []
        for event in events:
            try:
                records.append(self._record(event))
            except _NOT_LOADED:
                records.append(await self.decode(event))
        return records

    def _record(self, event: Recorded) -> Record:
        position, stream, version, spans, type_, _format, time_us, token, body, hash_ = event
        found, json, data = self.codec.decode(event)
        return Record(position, stream, version, spans, type_, time_us, token, found, hash_, len(body), json, data)

    async def _load_dictionaries(self) -> None:
        if self.vault is not None:  # nothing in an encrypted store needs one
            self._dictionaries_loaded = True
            return
        events, damage = await self._verified(dictionary.STREAM, 0, DICTIONARIES_MAX)
        for event in events:
            self._dictionaries.add(event.body)
        if damage is not None:
            raise damage
        self._dictionaries_loaded = True

    def _train_dictionary(self) -> None:
        if self._trainer is None or self._trainer.done():
            self._trainer = asyncio.get_running_loop().create_task(self._train(self._dictionaries.train()))

    async def _train(self, training: Any) -> None:
        expected = self._dictionaries.count
        try:
            content = await asyncio.to_thread(training)
            raw = RawEvent(dictionary.TYPE, 1, content)
            try:
                await self.store.append(Write(dictionary.STREAM, [raw], expected))
                self._dictionaries.add(content)
            except Conflict:
                await self._load_dictionaries()  # another process was first; its dictionary serves as well
        except (MaosError, ValueError, zstandard.ZstdError) as error:
            self.notes.append(f"no compression dictionary was trained: {error}")
