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

from maos.bus.mailbox import KIND, Inbox, KeptAcks, Mailbox, Undeliverable, acknowledge, dead_letter, hand_out, load
from maos.clock import MICROSECONDS, Clock
from maos.errors import LeaseLost, MaosError, StoreUnavailable
from maos.faults import crash_point
from maos.ids import check_name
from maos.journal.journal import Append, Journal, Record
from maos.model.message import FORMAT, Acknowledgements, Message, acks, message
from maos.store.contract import Document, Lease

VISIBILITY_S = 30.0
TRIES_MAX = 5
WINDOW = 64
"""How many messages may be in somebody's hands at once."""
CLAIM_POLL_S = 0.2
KEEP_EVERY = 256
"""After how many receipts the fold of them is kept."""


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
        await self._receiver.give_up(self, reason)

    async def release(self, reason: str) -> None:
        """Give it back to be delivered again; after too many tries it becomes a dead letter, with this reason."""
        await self._receiver.give_back(self, reason)

    def extend(self) -> None:
        """Begin its time anew, for work that takes long."""
        self._receiver.set_deadline(self)


class _Batch(NamedTuple):
    """What is handed out next, and what cannot be any more."""

    deliveries: list[Delivery]
    dead: list[tuple[Delivery, str]]
    again: list[Delivery]
    records: list[Record]
    """Where they come from, to be put back if they cannot be recorded."""


def _nothing() -> _Batch:
    return _Batch([], [], [], [])


class Receiver:
    """Hands out what comes into an inbox: `async for delivery in receiver`."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        mailbox: Mailbox,
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
        self._mailbox = mailbox
        self._visibility_s = visibility_s
        self._tries_max = tries_max
        self._window = window
        self._inbox: Inbox | None = None
        self._fold = Acknowledgements(id=name)
        self._lease: Lease | None = None
        self._leased_us = 0
        self._keeper: asyncio.Task[None] | None = None
        self._kept = 0
        self._sure = True
        """Whether the fold is exactly what is recorded, so that it may be kept."""
        self._buffer: deque[Record] = deque()
        """Read, and not handed out."""
        self._ready: deque[Delivery] = deque()
        """Recorded as handed out, and not yet asked for."""
        self._out: dict[int, Delivery] = {}
        """Everything that is handed out and not settled, those that are ready included."""
        self._again: deque[Delivery] = deque()

    # --- for those who receive -------------------------------------------------------------------------------

    def __aiter__(self) -> Receiver:
        return self

    async def __anext__(self) -> Delivery:
        while True:
            try:
                inbox = await self._begin()
                if self._ready or await self._hand_out(inbox):
                    delivery = self._ready.popleft()
                    self.set_deadline(delivery)
                    return delivery
                if self._buffer or not inbox.is_behind:  # else there is more to read, and room for it
                    await inbox.wait()
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
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None
        if self._lease is not None:
            lease, self._lease = self._lease, None
            await self._journal.release(lease)
        if self._inbox is not None:
            self._inbox.close()

    # --- the right to receive --------------------------------------------------------------------------------

    async def _begin(self) -> Inbox:
        """Wait for the right to receive unless this receiver has it, and find the version to read on from."""
        if self._inbox is None:
            self._inbox = await self._mailbox.open(self.name, after=0)
            self._keeper = asyncio.create_task(self._keep_lease(self._inbox))
        if self._lease is not None:
            return self._inbox
        while True:
            self._leased_us = self._clock.steady_us()
            lease = await self._journal.acquire(self._inbox.stream, ttl_s=self._visibility_s)
            if lease is not None:
                break
            await asyncio.sleep(min(CLAIM_POLL_S, self._visibility_s / 4))
        if self._restore_s and not self._oldest_us:
            self._oldest_us = self._clock.now_us() - int(self._restore_s * MICROSECONDS)
        self._fold = await load(self._journal, self.name)
        self._kept = self._fold.version
        self._sure = True
        for each in (self._buffer, self._ready, self._out, self._again):
            each.clear()
        self._inbox.rewind(self._fold.floor)
        self._lease = lease
        return self._inbox

    def _lose(self) -> None:
        self._lease = None
        self._wake()

    def _wake(self) -> None:
        """Have `__anext__` look whether there is something to hand out, or room for it."""
        if self._inbox is not None:
            self._inbox.news.set()

    async def _keep_lease(self, inbox: Inbox) -> None:
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
                inbox.fail(error)

    def set_deadline(self, delivery: Delivery) -> None:
        """Begin the time that a delivery has."""
        delivery.deadline_us = self._clock.steady_us() + int(self._visibility_s * MICROSECONDS)

    # --- handing out -----------------------------------------------------------------------------------------

    async def _hand_out(self, inbox: Inbox) -> bool:
        """Record what is handed out next; whether there is anything."""
        if not self._buffer:
            self._buffer.extend(await inbox.page())
        batch = self._next_batch()
        if batch.deliveries or batch.dead:
            lease = self._lease
            if lease is None:
                raise LeaseLost(inbox.stream, token=0, why="it was let go")
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
                if why := said.reason_to_give_up(now_us, self._oldest_us):
                    batch.dead.append((delivery, why))
                elif tries >= self._tries_max:
                    batch.dead.append((delivery, f"it was handed out {tries} times and never acknowledged"))
                elif tries and (self._out or batch.deliveries):
                    break
                else:
                    batch.deliveries.append(delivery)
            batch.records.append(self._buffer.popleft())
            if batch.deliveries and batch.deliveries[-1].tries > 1:
                break
        return batch

    # --- acknowledging ---------------------------------------------------------------------------------------

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

    async def give_up(self, delivery: Delivery, reason: str) -> None:
        """See Delivery.reject."""
        if self._holds(delivery) and self._fold.is_settled(delivery.version):
            return
        crash_point("bus:before parking")
        await self._record(delivery.lease, (), _nothing()._replace(dead=[(delivery, reason)]))
        crash_point("bus:after parking")

    async def give_back(self, delivery: Delivery, reason: str) -> None:
        """See Delivery.release."""
        if delivery.tries >= self._tries_max:
            await self.give_up(delivery, reason)
        elif self._holds(delivery):
            self._again.append(delivery)
            delivery.deadline_us = 0
            self._wake()

    def _holds(self, delivery: Delivery) -> bool:
        return self._lease is not None and self._lease.token == delivery.lease.token

    async def _record(self, lease: Lease, done: Sequence[Delivery], batch: _Batch) -> None:
        """Write what became of messages under a delivery's token; Expired when it no longer is the inbox's."""
        for each in batch.deliveries:
            self._out[each.version] = each
        settled = {each.version for each in (*done, *(each for each, _why in batch.dead))}
        floor = self._floor(settled)
        given_up = [Undeliverable(each.message, why, each.tries) for each, why in batch.dead]
        appends = [
            *hand_out(self.name, [each.version for each in batch.deliveries]),
            *acknowledge(self.name, [each.version for each in done], floor=floor),
            *dead_letter(self.name, given_up, floor=floor),
        ]
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
        self._note(appends, reply.versions)
        for version in settled:
            self._out.pop(version, None)
        self._ready.extend(batch.deliveries)
        self._wake()

    def _floor(self, settled: set[int]) -> int:
        """The version up to which nothing is left to deliver."""
        read = self._inbox.cursor if self._inbox is not None else 0
        left = [version for version in self._out if version not in settled]
        buffered = [self._buffer[0].version] if self._buffer else []
        return min([read + 1, *left, *buffered]) - 1

    def _due(self) -> tuple[Document, ...]:
        """The fold as it is before what is being written, now and then."""
        if not self._sure or self._fold.version - self._kept < KEEP_EVERY:
            return ()
        self._kept = self._fold.version
        body = msgspec.json.encode(KeptAcks(FORMAT, self._fold))
        return (Document(KIND, self.name, self._fold.version, body),)

    def _note(self, appends: Sequence[Append], versions: Sequence[int]) -> None:
        """Fold in what was written."""
        version = 0
        for append, newest in zip(appends, versions, strict=True):
            if append.stream == acks(self.name):
                version = newest
                for event in append.events:
                    self._fold.apply(event.type, event.data)
        if self._fold.version != version:  # a caller gave up waiting for an append that was written all the same
            self._sure = False

    def _put_back(self, batch: _Batch) -> None:
        """Hand it out later: it is unknown whether it was recorded as handed out now."""
        for each in batch.deliveries:
            self._out.pop(each.version, None)
        for each in batch.again:
            self._out[each.version] = each
        self._again.extend(batch.again)
        self._buffer.extendleft(reversed(batch.records))
