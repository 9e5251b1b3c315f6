"""The one way into a stream that an engine owns: under its lease, in order, waiting while the store is away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from maos.engine import log
from maos.engine.log import Action
from maos.errors import Conflict, Corrupt, LeaseLost, StoreUnavailable
from maos.faults import crash_point
from maos.journal.codec import Event
from maos.journal.journal import Append, Journal, Record
from maos.model.events.core import EventBase
from maos.model.events.parts import Owner
from maos.settings import LEASE_S as LEASE_S
from maos.store.contract import Document, Lease

FOLD_EVERY = 64
LOOK_EVERY_S = 1.0
PAUSE_S_MAX = 5.0
_UNAVAILABLE = Action("store.unavailable", "store unavailable; waiting until it is back", logging.WARNING)
_AVAILABLE = Action("store.available", "store available again")
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


class Kind(NamedTuple, Generic[F]):
    """A kind of stream whose fold is kept beside it."""

    name: str
    fold: type[F]
    format: int
    quiet: Collection[str] = ()
    """Events so frequent that the fold is not kept with each, only now and then."""
    every: Callable[[F], int] = lambda _fold: FOLD_EVERY
    """After how many events a fold is kept at the latest: a large one less often, or keeping it would cost most."""

    def stream(self, id: str) -> str:
        """The stream of the thing of that name."""
        return f"{self.name}/{id}"

    def keep(self, fold: F) -> Document:
        """The fold, as a document."""
        body = msgspec.json.encode({"format": self.format, "fold": fold})
        return Document(self.name, fold.id, fold.version, body)

    def kept(self, document: Document | None) -> F | None:
        """The fold in a document; None when it is of no use, which costs only time."""
        if document is None or document.body is None:
            return None
        try:
            data = msgspec.json.decode(document.body)
            if data["format"] != self.format:
                return None
            fold = msgspec.convert(data["fold"], self.fold)
        except (msgspec.MsgspecError, TypeError, KeyError):
            return None
        return fold if fold.version == document.version else None

    def nothing(self, id: str, version: int) -> Document:
        """In the place of a kept fold up to a version, which counts no more."""
        return Document(self.name, id, version, None)

    async def load(self, journal: Journal, id: str) -> F | None:
        """The fold as of now; None when there is no such thing."""
        fold = self.kept(await journal.store.load(self.name, id)) or msgspec.convert({"id": id}, self.fold)
        async for record in journal.read(self.stream(id), after=fold.version):
            _apply(fold, record)
        return fold if fold.version else None

    async def at(
        self, journal: Journal, id: str, *, version: int | None = None, position: int | None = None
    ) -> F | None:
        """The fold as it was at a version, or at a position of the journal; None when there was no such thing yet."""
        fold = msgspec.convert({"id": id}, self.fold)
        async for record in journal.read(self.stream(id), until=version):
            if position is not None and record.position > position:
                break
            _apply(fold, record)
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
        """Give the lease back."""
        if self.renewal is not None:
            self.renewal.cancel()
            await asyncio.gather(self.renewal, return_exceptions=True)
        await self.journal.release(self.lease)

    async def append(self, *events: Event | EventBase, also: Sequence[Append] = (), folded: bool = False) -> None:
        """Write events, and others with them; on disk when this returns. LeaseLost when the stream is no longer ours.

        `folded` says that they are in the fold already: a caller that decides several things at once folds each in
        before the next. No other task may append meanwhile, and the caller gives up the stream when this fails.

        While the store cannot write, this waits and tries again: that the caller waits is the back-pressure which makes
        an agent wait, so nothing is lost. Only the owner writes to the stream, so the stream's version tells whether
        an append of unknown outcome was written.
        """
        async with self._turn:
            before = self.fold.version - (len(events) if folded else 0)
            for event in () if folded else events:
                self.fold.apply(event)
            await self._write_patiently(events, before, also)
            log.recorded(self._kind.name, self.fold.id, events)

    async def _write_patiently(self, events: Sequence[Event | EventBase], before: int, also: Sequence[Append]) -> None:
        """Write events, and try again for as long as the store is unavailable."""
        pause_s = 0.1
        while True:
            try:
                await self._write(events, before, also)
                break
            except StoreUnavailable as error:
                if pause_s == 0.1:
                    log.write(log.ENGINE, _UNAVAILABLE, stream=self._stream, reason=str(error))
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, PAUSE_S_MAX)
                if await self._was_written(events, before):
                    break
            except Conflict as error:
                if await self._was_written(events, before):
                    break
                raise self._lost(self.lease, "another engine has written to it") from error
        if pause_s > 0.1:
            log.write(log.ENGINE, _AVAILABLE, stream=self._stream)

    def _lost(self, lease: Lease, why: str) -> LeaseLost:
        log.write(log.ENGINE, _LEASE_LOST, stream=self._stream, reason=why)
        return LeaseLost(lease.name, token=lease.token, why=why)

    async def keep_lease(self) -> None:
        """Renew the lease for as long as this runs; LeaseLost when another engine has it."""
        while True:
            try:
                held = self.lease
                renewed = await self.journal.renew(held, ttl_s=self._lease_s)
                if renewed is None:
                    await self._reacquire(held)
                elif self.lease is held:
                    self.lease = renewed
            except StoreUnavailable:
                pass  # it is away for all engines, and the lease may still hold when it is back
            await asyncio.sleep(self._lease_s / 3)

    async def _write(self, events: Sequence[Event | EventBase], before: int, also: Sequence[Append]) -> None:
        after = before + len(events)
        due = after - self._kept >= self._kind.every(self.fold) or events[-1].type not in self._kind.quiet
        documents = [self._kind.keep(self.fold)] if due else []
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
        await asyncio.shield(self._acquire_again(lost))

    async def _acquire_again(self, lost: Lease) -> None:
        async with self._regaining:
            if self.lease.token != lost.token:
                return  # the task that noticed first has it again
            lease = await self.journal.acquire(lost.name, ttl_s=self._lease_s, owner=lost.owner)
            if lease is None:
                raise self._lost(lost, "another engine has claimed it")
            self.lease = lease

    async def _was_written(self, events: Sequence[Event | EventBase], before: int) -> bool:
        try:
            version = await self.journal.version(self._stream)
            if version != before + len(events):
                return False
            record = await self.journal.event(self._stream, version)
        except StoreUnavailable:
            return False
        kind, body = self.journal.codec.plain(events[-1])
        return record is not None and record.type == kind.name and record.data == msgspec.json.decode(body)
