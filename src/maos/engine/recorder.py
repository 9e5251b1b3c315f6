"""The one way into an attempt's stream: under its lease, in order, and not given up while the store is away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from maos.engine.owner import is_here
from maos.errors import Conflict, Corrupt, LeaseLost, StoreUnavailable
from maos.faults import crash_point
from maos.journal.codec import Event
from maos.journal.journal import Append, Journal
from maos.model.attempt import FORMAT, Attempt, stream
from maos.store.contract import Document, Lease

FOLD_KIND = "attempt"
FOLD_EVERY = 64
LEASE_S = 30.0
PAUSE_S_MAX = 5.0


class Recorder:
    """Writes the events of one attempt and keeps its fold."""

    def __init__(self, journal: Journal, lease: Lease, attempt: Attempt, *, lease_s: float = LEASE_S) -> None:
        self.attempt = attempt
        """Everything recorded so far, folded."""
        self.lease = lease
        self._journal = journal
        self._lease_s = lease_s
        self._turn = asyncio.Lock()
        self._kept = attempt.version

    async def append(self, *events: Event) -> None:
        """Write events; on disk when this returns. LeaseLost when the attempt is no longer ours.

        While the store cannot write, this waits and tries again: that the caller waits is the back-pressure which makes
        the agent wait, so nothing is lost. Only the owner writes to the stream, so the stream's version tells whether
        an append of unknown outcome was written.
        """
        async with self._turn:
            before = self.attempt.version
            for event in events:
                self.attempt.apply(event.type, event.data)
            pause_s = 0.1
            while True:
                try:
                    await self._write(events, before)
                    return
                except StoreUnavailable:
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, PAUSE_S_MAX)
                    if await self._was_written(events, before):
                        return
                except Conflict as error:
                    if await self._was_written(events, before):
                        return
                    why = "another engine has written to it"
                    raise LeaseLost(self.lease.name, token=self.lease.token, why=why) from error

    async def keep_lease(self) -> None:
        """Renew the lease for as long as this runs; LeaseLost when it went to somebody else."""
        while True:
            try:
                self.lease = await self._journal.renew(self.lease, ttl_s=self._lease_s) or await self._reacquire()
            except StoreUnavailable:
                pass  # it is away for everybody, and the lease may still hold when it is back
            await asyncio.sleep(self._lease_s / 3)

    async def is_taken_elsewhere(self) -> bool:
        """Whether the attempt now belongs to an engine on another machine."""
        found = await load(self._journal, self.attempt.id)
        return found is not None and not is_here(found.owner)

    async def _write(self, events: Sequence[Event], before: int) -> None:
        after = before + len(events)
        due = after - self._kept >= FOLD_EVERY or events[-1].type != "attempt_heard"
        documents = [self._fold()] if due else []
        crash_point(f"attempt:before {events[-1].type}")
        try:
            await self._append(events, before, documents)
        except LeaseLost:
            self.lease = await self._reacquire()
            await self._append(events, before, documents)
        crash_point(f"attempt:after {events[-1].type}")
        if due:
            self._kept = after

    async def _append(self, events: Sequence[Event], before: int, documents: Sequence[Document]) -> None:
        appends = [Append(stream(self.attempt.id), events, expected=before)]
        await self._journal.append_all(appends, under=self.lease, documents=documents)

    async def _reacquire(self) -> Lease:
        """A lease that only ran out (we were stopped, the store was away) may be had again; a taken one may not."""
        lease = await self._journal.acquire(self.lease.name, ttl_s=self._lease_s, owner=self.lease.owner)
        if lease is None:
            raise LeaseLost(self.lease.name, token=self.lease.token, why="another engine has taken it")
        return lease

    async def _was_written(self, events: Sequence[Event], before: int) -> bool:
        try:
            version = await self._journal.version(stream(self.attempt.id))
            if version != before + len(events):
                return False
            record = await self._journal.event(stream(self.attempt.id), version)
        except StoreUnavailable:
            return False
        return record is not None and record.type == events[-1].type and record.data == events[-1].data

    def _fold(self) -> Document:
        body = msgspec.json.encode({"format": FORMAT, "attempt": self.attempt})
        return Document(FOLD_KIND, self.attempt.id, self.attempt.version, body)


class _Kept(msgspec.Struct):
    format: int
    attempt: Attempt


async def load(journal: Journal, attempt: str) -> Attempt | None:
    """The fold of an attempt's events as of now; None when there is no such attempt."""
    document = await journal.store.load(FOLD_KIND, attempt)
    fold = from_document(document) or Attempt(id=attempt)
    async for record in journal.read(stream(attempt), after=fold.version):
        if record.version != fold.version + 1:
            raise Corrupt(f"{record.id} does not follow version {fold.version}", stream=record.stream)
        fold.apply(record.type, record.data)
    return fold if fold.version else None


def from_document(document: Document | None) -> Attempt | None:
    """The fold kept in a document; None when it is of no use, which costs only time."""
    if document is None or document.body is None:
        return None
    try:
        kept = msgspec.json.decode(document.body, type=_Kept)
    except msgspec.DecodeError:
        return None
    return kept.attempt if kept.format == FORMAT and kept.attempt.version == document.version else None
