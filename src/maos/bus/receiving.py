"""Receiving: messages are handed out in order, kept until they are acknowledged, and handed out again if they are not.

Whoever receives for a name holds its lease; the lease's token is the delivery token, and every receipt is written under
it. A receiver that died, or was asleep too long, loses the lease, and with it the right to acknowledge (I20). That
a message is handed out is recorded first, so a message that kills its receivers is noticed and parked (I21).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple

import msgspec

from maos.bus.reader import Reader
from maos.clock import MICROSECONDS, Clock
from maos.errors import LeaseLost, MaosError, StoreUnavailable
from maos.faults import crash_point
from maos.ids import check_name
from maos.journal.codec import Event
from maos.journal.journal import PAGE_EVENTS, Append, Journal, Record
from maos.model.message import (
    EXPIRED,
    FORMAT,
    OUTDATED,
    Acknowledgements,
    Message,
    acks,
    dead,
    dead_letter,
    inbox,
    message,
)
from maos.store.contract import Document, Lease

VISIBILITY_S = 30.0
TRIES_MAX = 5
WINDOW = 64
"""How many messages may be in somebody's hands at once."""
BUFFER_MAX = 512
CLAIM_POLL_S = 0.2
KEEP_EVERY = 256
"""After how many receipts the fold of them is kept."""
KIND = "acks"


class MessageExpired(LeaseLost):
    """A delivery whose time is up: the message is, or will be, delivered again. Nothing was recorded."""

    hint = "do not act on it any more; it is delivered again"


class Delivery:
    """A message in somebody's hands, until it is acknowledged or the time is up."""

    __slots__ = ("_receiver", "deadline_us", "lease", "message", "tries", "version")

    def __init__(self, receiver: Receiver, lease: Lease, said: Message, version: int, tries: int) -> None:
        self._receiver = receiver
        self.lease = lease
        self.message = said
        self.version = version
        """Its place in the inbox."""
        self.tries = tries
        """How often it has been handed out, this time included."""
        self.deadline_us = 0

    @property
    def token(self) -> int:
        """The delivery token: larger at every take-over of the inbox."""
        return self.lease.token

    async def ack(self) -> None:
        """Be done with it: it is never delivered here again. Expired when it was taken away meanwhile."""
        await self._receiver.acknowledge(self)

    async def reject(self, reason: str) -> None:
        """Put it among the dead letters: it is not delivered again unless somebody sends it again."""
        await self._receiver.park([(self, reason)])

    async def release(self, reason: str) -> None:
        """Give it back to be delivered again; after too many tries it becomes a dead letter, with this reason."""
        await self._receiver.give_back(self, reason)

    def extend(self) -> None:
        """Begin its time anew, for work that takes long."""
        self._receiver.set_deadline(self)


class _Batch(NamedTuple):
    """What is handed out next, and what cannot be any more."""

    deliveries: list[Delivery]
    parked: list[tuple[Delivery, str]]
    again: list[Delivery]
    records: list[Record]
    """Where they come from, to be put back if they cannot be recorded."""


def _nothing() -> _Batch:
    return _Batch([], [], [], [])


class KeptAcks(msgspec.Struct):
    """A fold of receipts, as a document."""

    format: int
    fold: Acknowledgements


async def load(journal: Journal, name: str) -> Acknowledgements:
    """What became of the messages of an inbox, as of now."""
    document = await journal.store.load(KIND, name)
    fold = Acknowledgements(id=name)
    if document is not None and document.body is not None:
        try:
            kept = msgspec.json.decode(document.body, type=KeptAcks)
        except msgspec.MsgspecError:
            kept = None  # of no use, which costs only time
        if kept is not None and kept.format == FORMAT and kept.fold.version == document.version:
            fold = kept.fold
    async for record in journal.read(acks(name), after=fold.version):
        fold.apply(record.type, record.data)
    return fold


def reason_to_park(said: Message, now_us: int, oldest_us: int) -> str:
    """Why a message is not delivered any more; empty when it is."""
    return EXPIRED if said.is_expired(now_us) else OUTDATED if said.at_us < oldest_us else ""


class Receiver:
    """Hands out what comes into an inbox: `async for delivery in receiver`."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        reader: Reader,
        name: str,
        *,
        visibility_s: float = VISIBILITY_S,
        tries_max: int = TRIES_MAX,
        window: int = WINDOW,
        restore_s: float = 0.0,
    ) -> None:
        self._restore_s = restore_s
        self._oldest_us = 0
        """What was sent before is too old to be restored."""
        self.name = check_name(name, "name")
        self._journal = journal
        self._clock = clock
        self._reader = reader
        self._visibility_s = visibility_s
        self._tries_max = tries_max
        self._window = window
        self._inbox = inbox(name)
        self._receipts = acks(name)
        self._fold = Acknowledgements(id=name)
        self._lease: Lease | None = None
        self._leased_us = 0
        self._keeper: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._error: MaosError | None = None
        self._kept = 0
        self._sure = True
        """Whether the fold is exactly what is recorded, so that it may be kept."""
        self._buffer: deque[Record] = deque()
        """Read, and not handed out."""
        self._read = 0
        """Up to where the inbox was read."""
        self._seen = 0
        """Up to where it is known to go."""
        self._paging = False
        self._unlooked = True
        self._ready: deque[Delivery] = deque()
        """Recorded as handed out, and not yet asked for."""
        self._out: dict[int, Delivery] = {}
        """Everything that is handed out and not settled, those that are ready included."""
        self._in_order = True
        """Whether those stand there in the order of the inbox."""
        self._again: deque[Delivery] = deque()

    # --- for those who receive -------------------------------------------------------------------------------

    def __aiter__(self) -> Receiver:
        return self

    async def __anext__(self) -> Delivery:
        while True:
            try:
                if self._lease is None:
                    await self._begin()
                if self._ready or await self._hand_out():
                    delivery = self._ready.popleft()
                    self.set_deadline(delivery)
                    return delivery
                await self._wait()
            except LeaseLost:
                self._lose()

    async def __aenter__(self) -> Receiver:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Receive no more; what is not acknowledged goes to the next receiver at once."""
        self._reader.remove(self.name, self)
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None
        if self._lease is not None:
            lease, self._lease = self._lease, None
            await self._journal.release(lease)

    # --- what comes in ---------------------------------------------------------------------------------------

    def offer(self, record: Record) -> None:
        """Something new in the inbox; what finds no room is read again later."""
        self._seen = max(self._seen, record.version)
        if record.version == self._read + 1 and not self._paging and len(self._buffer) < BUFFER_MAX:
            self._read = record.version
            self._buffer.append(record)
        self._news.set()

    def fail(self, error: MaosError) -> None:
        """Nothing more can be read, and why."""
        self._error = error
        self._news.set()

    async def _fill(self) -> None:
        self._paging = True
        self._unlooked = False
        try:
            page = await self._journal.page(self._inbox, after=self._read)
        except BaseException:
            self._unlooked = True
            raise
        finally:
            self._paging = False
        self._buffer.extend(page)
        if page:
            self._read = page[-1].version
            self._unlooked = len(page) == PAGE_EVENTS

    async def _wait(self) -> None:
        """Until there may be something to hand out, or room for it in somebody's hands."""
        if self._error is not None:
            raise self._error
        if self._buffer or not self._is_behind:
            await self._news.wait()
        self._news.clear()

    @property
    def _is_behind(self) -> bool:
        return self._unlooked or self._seen > self._read

    # --- the right to receive --------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Wait for the right to receive, and find the place to go on from."""
        if self._keeper is None:
            await self._reader.add(self.name, self)
            self._keeper = asyncio.create_task(self._keep_lease())
        while True:
            self._leased_us = self._clock.steady_us()
            lease = await self._journal.acquire(self._inbox, ttl_s=self._visibility_s)
            if lease is not None:
                break
            await asyncio.sleep(min(CLAIM_POLL_S, self._visibility_s / 4))
        if self._restore_s and not self._oldest_us:
            self._oldest_us = self._clock.now_us() - int(self._restore_s * MICROSECONDS)
        self._fold = await load(self._journal, self.name)
        self._kept = self._fold.version
        self._read = self._fold.floor
        self._unlooked = self._sure = self._in_order = True
        for each in (self._buffer, self._ready, self._out, self._again):
            each.clear()
        self._lease = lease

    def _lose(self) -> None:
        self._lease = None
        self._news.set()

    async def _keep_lease(self) -> None:
        """Renew the lease, unless something in somebody's hands is overdue: then let it run out."""
        while True:
            await asyncio.sleep(self._visibility_s / 4)
            lease, now_us = self._lease, self._clock.steady_us()
            if lease is None:
                continue
            try:
                if any(0 < each.deadline_us < now_us for each in self._out.values()):
                    if now_us - self._leased_us > self._visibility_s * MICROSECONDS:
                        self._lose()
                elif await self._journal.renew(lease, ttl_s=self._visibility_s) is None:
                    self._lose()
                else:
                    self._leased_us = now_us
            except StoreUnavailable:
                continue  # it is away for everybody, and the lease may still hold when it is back
            except MaosError as error:
                self.fail(error)

    def set_deadline(self, delivery: Delivery) -> None:
        """Begin the time that a delivery has."""
        delivery.deadline_us = self._clock.steady_us() + int(self._visibility_s * MICROSECONDS)

    # --- handing out -----------------------------------------------------------------------------------------

    async def _hand_out(self) -> bool:
        """Record what is handed out next; whether there is anything."""
        if not self._buffer and self._is_behind:
            await self._fill()
        batch = self._next_batch()
        if batch.deliveries or batch.parked:
            lease = self._lease
            if lease is None:
                raise LeaseLost(self._inbox, token=0, why="it was let go")
            crash_point("bus:before handing out")
            await self._record(lease, (), batch)
            crash_point("bus:after handing out")
        return bool(self._ready)

    def _next_batch(self) -> _Batch:
        """As much as may be in somebody's hands; but what was in the hands of one who died is handed out alone.

        So if it killed them, it is the only one that is counted as tried once more.
        """
        batch = _nothing()
        lease = self._lease
        if lease is None:
            return batch
        now_us = self._clock.now_us()
        while self._again:
            delivery = self._again.popleft()
            batch.again.append(delivery)
            batch.deliveries.append(Delivery(self, lease, delivery.message, delivery.version, delivery.tries + 1))
        while self._buffer and len(self._out) + len(batch.deliveries) < self._window:
            record = self._buffer[0]
            if record.type == "message_sent" and not self._fold.is_settled(record.version):
                said = message(record.data, version=record.version)
                tries = self._fold.tries.get(record.version, 0)
                delivery = Delivery(self, lease, said, record.version, tries + 1)
                if why := reason_to_park(said, now_us, self._oldest_us):
                    batch.parked.append((delivery, why))
                elif tries >= self._tries_max:
                    batch.parked.append((delivery, f"it was handed out {tries} times and never acknowledged"))
                elif tries and (self._out or batch.deliveries):
                    break
                else:
                    batch.deliveries.append(delivery)
            batch.records.append(self._buffer.popleft())
            if batch.deliveries and batch.deliveries[-1].tries > 1:
                break
        return batch

    # --- receipts --------------------------------------------------------------------------------------------

    async def acknowledge(self, delivery: Delivery) -> None:
        """See Delivery.ack. What is handed out next is recorded with it: under load, one append for each message."""
        batch = _nothing()
        if self._holds(delivery):
            if self._fold.is_settled(delivery.version):
                return
            if not self._ready:
                batch = self._next_batch()
        crash_point("bus:before ack")
        await self._record(delivery.lease, [delivery], batch)
        crash_point("bus:after ack")

    async def park(self, parked: Sequence[tuple[Delivery, str]]) -> None:
        """See Delivery.reject."""
        if self._holds(parked[0][0]) and self._fold.is_settled(parked[0][0].version):
            return
        crash_point("bus:before parking")
        await self._record(parked[0][0].lease, (), _nothing()._replace(parked=list(parked)))
        crash_point("bus:after parking")

    async def give_back(self, delivery: Delivery, reason: str) -> None:
        """See Delivery.release."""
        if delivery.tries >= self._tries_max:
            await self.park([(delivery, reason)])
        elif self._holds(delivery):
            self._again.append(delivery)
            delivery.deadline_us = 0
            self._news.set()

    def _holds(self, delivery: Delivery) -> bool:
        return self._lease is not None and self._lease.token == delivery.lease.token

    async def _record(self, lease: Lease, done: Sequence[Delivery], batch: _Batch) -> None:
        """Write receipts under a delivery's token; Expired when it is not, or no longer, the inbox's."""
        acknowledged = [each.version for each in done]
        parked = [each.version for each, _why in batch.parked]
        for each in batch.deliveries:
            self._out[each.version] = each
        floor = self._floor({*acknowledged, *parked})
        events = []
        if batch.deliveries:
            events.append(Event("message_delivered", {"versions": [each.version for each in batch.deliveries]}))
        if acknowledged:
            events.append(Event("message_acknowledged", {"versions": acknowledged, "floor": floor}))
        if parked:
            events.append(Event("message_dead_lettered", {"versions": parked, "floor": floor}))
        appends = [Append(self._receipts, events)]
        if parked:
            letters = [dead_letter(each.message, why, each.tries) for each, why in batch.parked]
            appends.append(Append(dead(self.name), [Event("dead_letter_added", data) for data in letters]))
        try:
            reply = await self._journal.append_all(appends, under=lease, documents=self._due())
        except LeaseLost as error:
            self._put_back(batch)
            if self._lease is not None and self._lease.token == lease.token:
                self._lose()
            why = "another receiver has taken over, or its time was up"
            raise MessageExpired(error.name, token=error.token, why=why) from error
        except BaseException:
            self._put_back(batch)
            raise
        self._note(events, reply.versions[0])
        for version in (*acknowledged, *parked):
            self._out.pop(version, None)
        self._ready.extend(batch.deliveries)
        self._news.set()

    def _floor(self, settled: set[int]) -> int:
        """Up to where nothing is left to deliver."""
        left = (version for version in self._out if version not in settled)
        first = next(left, self._read + 1) if self._in_order else min(left, default=self._read + 1)
        return min(first, self._buffer[0].version if self._buffer else first) - 1

    def _due(self) -> tuple[Document, ...]:
        """The fold as it is before what is being written, now and then."""
        if not self._sure or self._fold.version - self._kept < KEEP_EVERY:
            return ()
        self._kept = self._fold.version
        body = msgspec.json.encode(KeptAcks(FORMAT, self._fold))
        return (Document(KIND, self.name, self._fold.version, body),)

    def _note(self, events: Sequence[Event], version: int) -> None:
        for event in events:
            self._fold.apply(event.type, event.data)
        if self._fold.version != version:  # somebody gave up waiting for an append that was written all the same
            self._sure = False

    def _put_back(self, batch: _Batch) -> None:
        """Hand it out later: nobody knows whether it was recorded as handed out now."""
        self._in_order = False
        for each in batch.deliveries:
            self._out.pop(each.version, None)
        for each in batch.again:
            self._out[each.version] = each
        self._again.extend(batch.again)
        self._buffer.extendleft(reversed(batch.records))
