"""The one way into a stream that an engine owns: under its lease, in order, waiting while the store is away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from base64 import b85decode, b85encode
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from functools import cache
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

import msgspec
import zstandard

from maos.engine import log
from maos.engine.log import Action
from maos.errors import Conflict, Corrupt, Erased, LeaseLost, StoreUnavailable
from maos.faults import crash_point
from maos.journal.codec import EncodedEvent, Event
from maos.journal.journal import Append, Journal, Record
from maos.model.events.core import EventBase
from maos.model.events.parts import Owner
from maos.settings import LEASE_S as LEASE_S
from maos.store.contract import Document, Lease, Store, StreamEnding
from maos.tuples import NamedTuple

FOLD_EVERY = 64
FOLD_BYTES_MAX = 1 << 30
ZSTD_LEVEL = 3
LOOK_EVERY_S = 1.0
PAUSE_S_MAX = 5.0
RELEASE_S_MAX = 10.0
NEVER_US = 1 << 62
"""A time that does not come."""
SHARED_WEIGHT_MAX = 60_000
"""How much the folds that readers share may weigh together, in tasks: a fold with few counts as `FOLD_EVERY`."""
_LEASE_LOST = Action("lease.lost", "lease lost", logging.WARNING)


class Fold(Protocol):
    """What is known of a thing: a fold of the events of its stream."""

    id: str
    version: int
    """How many events are folded in."""
    owner: Owner

    def apply(self, event: Any) -> None:
        """Fold one more event in."""
        ...


F = TypeVar("F", bound=Fold)
E = TypeVar("E", bound=Event | EventBase)


class SharedFolds:
    """Folds in memory that readers of one store share, those used last, up to a limit."""

    def __init__(self) -> None:
        self._folds: OrderedDict[str, tuple[Any, int]] = OrderedDict()
        self._weight = 0

    def get(self, stream: str) -> Any:
        """The fold of a stream, however old; None when there is none."""
        found = self._folds.get(stream)
        if found is None:
            return None
        self._folds.move_to_end(stream)
        return found[0]

    def put(self, stream: str, fold: Any, weight: int) -> None:
        """Keep a fold, None to keep none, and forget those unused for longest."""
        self._weight -= self._folds.pop(stream, (None, 0))[1]
        if fold is None:
            return
        self._folds[stream] = (fold, weight)
        self._weight += weight
        while self._weight > SHARED_WEIGHT_MAX and len(self._folds) > 1:
            self._weight -= self._folds.popitem(last=False)[1][1]


_shared: WeakKeyDictionary[Store, SharedFolds] = WeakKeyDictionary()


class Kind(NamedTuple, Generic[F]):
    """A kind of stream whose fold is kept beside it."""

    name: str
    fold: type[F]
    format: int
    quiet: Collection[str] = ()
    """Events so frequent that the fold is not kept with each, only now and then."""
    every: Callable[[F], int] = lambda _fold: FOLD_EVERY
    """After how many events a fold is kept at the latest: a large one less often, or keeping it would cost most."""
    ends: tuple[str, ...] = ()
    """Events after which nothing more is expected, unless another one follows."""
    example: Callable[[], F] | None = None
    """A fold whose JSON has the names of all fields: what is compressed is compared with it."""
    plain: tuple[str, ...] = ()
    """Fields that SQL views read, so they are never compressed."""

    def stream(self, id: str) -> str:
        """The stream of the thing of that name."""
        return f"{self.name}/{id}"

    async def ids(
        self, journal: Journal, prefix: str = "", *, unless: StreamEnding | None = None, newest: bool = False
    ) -> AsyncIterator[str]:
        """The ids that begin with a prefix, without those that have ended as `unless` says; with `newest`, those made
        last first."""
        begin = self.stream("")
        async for name in journal.streams(begin + prefix, unless=unless, newest=newest):
            yield name.removeprefix(begin)

    def open_ids(self, journal: Journal, since_us: int | None = None) -> AsyncIterator[str]:
        """The ids of those whose last event is not one of `ends`, or was recorded since a time."""
        return self.ids(journal, unless=StreamEnding(self.ends, NEVER_US if since_us is None else since_us))

    def keep(self, fold: F, *, packed: bool = False) -> Document:
        """The fold, as a document; `packed` if nothing more is expected: it takes a third of the room."""
        body = msgspec.json.encode(_Kept(self.format, fold))
        if packed and self.example is not None:
            frame = self._compressor.compress(body)
            if self.plain:
                fields = {name: getattr(fold, name) for name in self.plain}
                frame = msgspec.json.encode(_Packed(b85encode(frame).decode(), fields))
            body = min(body, frame, key=len)
        return Document(self.name, fold.id, fold.version, body)

    def kept(self, document: Document | None) -> F | None:
        """The fold in a document; None when it is of no use, which costs only time."""
        if document is None or document.body is None:
            return None
        try:
            kept: _Kept[F] = _decoder(self.fold).decode(self._unpacked(document.body))
        except (ValueError, zstandard.ZstdError):  # msgspec's errors are ValueErrors
            return None
        fold = kept.fold
        return fold if kept.format == self.format and fold.version == document.version else None

    def _unpacked(self, body: bytes) -> bytes:
        if body.startswith(_PACKED):
            body = b85decode(msgspec.json.decode(body, type=_Packed).packed)
        if body[:4] != zstandard.FRAME_HEADER:
            return body
        if zstandard.get_frame_parameters(body).content_size > FOLD_BYTES_MAX:
            raise ValueError("a fold that no event can have led to")
        return self._decompressor.decompress(body)

    @property
    def _compressor(self) -> zstandard.ZstdCompressor:
        return _compressors(self)[0]

    @property
    def _decompressor(self) -> zstandard.ZstdDecompressor:
        return _compressors(self)[1]

    def nothing(self, id: str, version: int) -> Document:
        """In the place of a kept fold up to a version, which counts no more."""
        return Document(self.name, id, version, None)

    async def load(self, journal: Journal, id: str) -> F | None:
        """The fold as of now; None when there is no such thing, or it was erased."""
        fold = self.kept(await journal.store.load(self.name, id)) or msgspec.convert({"id": id}, self.fold)
        try:
            async for record in journal.read(self.stream(id), after=fold.version):
                _apply(fold, record)
        except Erased:
            return None
        return fold if fold.version else None

    async def view(self, journal: Journal, id: str) -> F | None:
        """The fold as of now, for a reader: it is shared with other readers, and must not be changed."""
        stream, shared = self.stream(id), _shared.setdefault(journal.store, SharedFolds())
        if journal.is_erased(stream):
            shared.put(stream, None, 0)
            return None
        version = await journal.version(stream)
        known: F | None = shared.get(stream)
        if known is None or known.version != version:
            known = await self.load(journal, id)
            shared.put(stream, known, self.every(known) if known is not None else 0)
        return known

    async def at(
        self, journal: Journal, id: str, *, version: int | None = None, position: int | None = None
    ) -> F | None:
        """The fold as it was at a version, or at a position of the journal; None when there was no such thing yet."""
        fold = msgspec.convert({"id": id}, self.fold)
        try:
            async for record in journal.read(self.stream(id), until=version):
                if position is not None and record.position > position:
                    break
                _apply(fold, record)
        except Erased:
            return None
        return fold if fold.version else None

    async def until(self, journal: Journal, fold: F, condition: Callable[[F], bool]) -> None:
        """Apply new events to a fold until a condition holds, or for a second: then the caller can check its owner."""
        if condition(fold):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY_S):
                async for record in journal.follow_stream(self.stream(fold.id), after=fold.version):
                    _apply(fold, record)
                    if condition(fold):
                        return


class _Kept(msgspec.Struct, Generic[F]):
    """A fold in a document."""

    format: int
    fold: F


class _Packed(msgspec.Struct):
    """A compressed fold in a document, with the fields that SQL views read."""

    packed: str
    fold: dict[str, Any]


_PACKED = b'{"packed":'


@cache
def _decoder(fold: type[F]) -> msgspec.json.Decoder[_Kept[F]]:
    return msgspec.json.Decoder(_Kept[fold])  # type: ignore[valid-type]


@cache
def _compressors(kind: Kind[Any]) -> tuple[zstandard.ZstdCompressor, zstandard.ZstdDecompressor]:
    """What compresses the folds of a kind, and decompresses them: the names of fields are known to both.

    A fold that was compressed with other names cannot be read, and is computed again.
    """
    assert kind.example is not None
    known = msgspec.json.encode(_Kept(kind.format, kind.example()))
    names = zstandard.ZstdCompressionDict(known, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, dict_data=names, write_checksum=True)
    return compressor, zstandard.ZstdDecompressor(dict_data=names)


def _apply(fold: Fold, record: Record) -> None:
    if record.version - record.spans != fold.version:
        raise Corrupt(f"{record.id} does not follow version {fold.version}", stream=record.stream)
    fold.apply(record.event)
    fold.version = record.version  # one event may stand for many


class Recorder(Generic[F]):
    """Writes the events of one stream and keeps its fold."""

    def __init__(self, journal: Journal, kind: Kind[F], fold: F, lease: Lease, *, lease_s: float = LEASE_S) -> None:
        self.fold = fold
        """Everything recorded so far, folded."""
        self.lease = lease
        self.journal = journal
        self._kind = kind
        self._stream = kind.stream(fold.id)
        self._lease_s = lease_s
        self._turn = asyncio.Lock()
        self._regaining = asyncio.Lock()
        self._kept = fold.version
        self.renewal: asyncio.Task[None] | None = None
        """What renews the lease, while it is held."""

    def hold(self) -> None:
        """Renew the lease from now on, until it is released."""
        self.renewal = asyncio.create_task(self.keep_lease())

    async def release(self) -> None:
        """Give the lease back; if the store is unavailable, the lease is left to run out."""
        if self.renewal is not None:
            self.renewal.cancel()
            await asyncio.gather(self.renewal, return_exceptions=True)
        away = self.journal.store.patience.is_away
        with contextlib.suppress(TimeoutError, StoreUnavailable):
            async with asyncio.timeout(0 if away else RELEASE_S_MAX):
                await self.journal.release(self.lease)

    def fold_in(self, event: E) -> EncodedEvent[E]:
        """Fold an event in, as it will be read, before it is written: for a caller that decides several things at once.

        It is written with the next `append`, which is given what this returns. No other task may append meanwhile, and
        the caller gives up the stream when that fails.
        """
        encoded = self.journal.codec.prepare(event)
        self.fold.apply(encoded.event)
        return encoded

    async def append(self, *events: Event | EventBase | EncodedEvent[Any], also: Sequence[Append] = ()) -> None:
        """Write events, and others with them; on disk when this returns. LeaseLost when the stream is no longer ours.

        Those that `fold_in` returned are in the fold already, and all others are folded in here.

        While the store cannot write, this waits and tries again: that the caller waits is the back-pressure which makes
        an agent wait, so nothing is lost. Only the owner writes to the stream, so the stream's version tells whether
        an append of unknown outcome was written.
        """
        async with self._turn:
            # All of them before the first is folded in: one that cannot be encoded leaves the fold as it was.
            encoded = [self._prepared(each) for each in events]
            also = [each._replace(events=[self._prepared(one) for one in each.events]) for each in also]
            for event in (each for each, given in zip(encoded, events, strict=True) if each is not given):
                self.fold.apply(event.event)
            await self._write_patiently(encoded, self.fold.version - len(encoded), also)
            log.recorded(self._kind.name, self.fold.id, [each.event for each in encoded])

    def _prepared(self, event: Event | EventBase | EncodedEvent[Any]) -> EncodedEvent[Any]:
        return event if isinstance(event, EncodedEvent) else self.journal.codec.prepare(event)

    async def _write_patiently(self, events: Sequence[EncodedEvent[Any]], before: int, also: Sequence[Append]) -> None:
        """Write events, and try again for as long as the store is unavailable."""
        pause_s = 0.1
        while True:
            try:
                await self._write(events, before, also)
                break
            except StoreUnavailable as error:
                if pause_s == 0.1:
                    log.write(log.ENGINE, log.UNAVAILABLE, stream=self._stream, reason=str(error))
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, PAUSE_S_MAX)
                if await self._was_written(events, before):
                    break
            except Conflict as error:
                if await self._was_written(events, before):
                    break
                raise self._lost(self.lease, "another engine has written to it") from error
        if pause_s > 0.1:
            log.write(log.ENGINE, log.AVAILABLE, stream=self._stream)

    def _lost(self, lease: Lease, why: str) -> LeaseLost:
        log.write(log.ENGINE, _LEASE_LOST, stream=self._stream, reason=why)
        return LeaseLost(lease.name, token=lease.token, why=why)

    async def keep_lease(self) -> None:
        """Renew the lease for as long as this runs; LeaseLost when another engine has it.

        Meanwhile all calls of the store wait without limit while it is unavailable: it is so for all engines, and the
        lease may still hold when it is back.
        """
        patience = self.journal.store.patience
        patience.add_engine()
        try:
            while True:
                with contextlib.suppress(StoreUnavailable):
                    held = self.lease
                    renewed = await self.journal.renew(held, ttl_s=self._lease_s)
                    if renewed is None:
                        await self._reacquire(held)
                    elif self.lease is held:
                        self.lease = renewed
                await asyncio.sleep(self._lease_s / 3)
        finally:
            patience.remove_engine()

    async def _write(self, events: Sequence[EncodedEvent[Any]], before: int, also: Sequence[Append]) -> None:
        after = before + len(events)
        due = after - self._kept >= self._kind.every(self.fold) or events[-1].type not in self._kind.quiet
        documents = [self._kind.keep(self.fold, packed=events[-1].type in self._kind.ends)] if due else []
        appends = [Append(self._stream, events, expected=before), *also]
        crash_point(f"{self._kind.name}:before {events[-1].type}")
        held = self.lease
        try:
            await self.journal.append_all(appends, under=held, documents=documents)
        except LeaseLost:
            await self._reacquire(held)
            await self.journal.append_all(appends, under=self.lease, documents=documents)
        crash_point(f"{self._kind.name}:after {events[-1].type}")
        if due:
            self._kept = after

    async def _reacquire(self, lost: Lease) -> None:
        """A lease that only ran out (we were stopped, the store was away) may be had again; a taken one may not."""
        # Cancelled in between, we would have a lease that we do not know of, and refuse ourselves from then on.
        acquiring = asyncio.create_task(self._acquire_again(lost))
        acquiring.add_done_callback(lambda done: done.cancelled() or done.exception())  # if the caller is cancelled
        await asyncio.shield(acquiring)

    async def _acquire_again(self, lost: Lease) -> None:
        async with self._regaining:
            if self.lease.token != lost.token:
                return  # the task that noticed first has it again
            lease = await self.journal.acquire(lost.name, ttl_s=self._lease_s, owner=lost.owner)
            if lease is None:
                raise self._lost(lost, "another engine has claimed it")
            self.lease = lease

    async def _was_written(self, events: Sequence[EncodedEvent[Any]], before: int) -> bool:
        try:
            version = await self.journal.version(self._stream)
            if version != before + len(events):
                return False
            record = await self.journal.event(self._stream, version)
        except StoreUnavailable:
            return False
        kind, body = self.journal.codec.plain(events[-1].event)
        return record is not None and record.type == kind.name and record.data == msgspec.json.decode(body)
