"""Receives the messages of an inbox: hands them out in order, and again if they are not acknowledged.

A receiver holds the lease of its inbox; the lease's token is the delivery token, and everything is recorded under it. A
receiver that died, or was suspended too long, loses the lease, and with it the right to acknowledge (I20). That a
message is handed out is recorded first, so one that kills its receivers is noticed and becomes a dead letter (I21).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

import msgspec

from maos.bus.acknowledgements import Waiting, acknowledge, dead_letter, hand_out, keep, load
from maos.bus.mailbox import Inbox, Mailbox
from maos.clock import MICROSECONDS, Clock
from maos.errors import LeaseLost, MaosError, StoreUnavailable
from maos.faults import crash_point
from maos.ids import check_name
from maos.journal.journal import Append, Journal, Record
from maos.model.events.core import EventBase
from maos.model.events.messages import MessageSent
from maos.model.message import Acknowledgements, Message, acks, message
from maos.store.contract import Document, Lease

VISIBILITY_S = 30.0
TRIES_MAX = 5
WINDOW = 64
"""How many messages may be handed out and not acknowledged."""
CLAIM_POLL_S = 0.2
KEEP_EVERY = 256
"""After how many events the fold of acknowledgements is kept."""


class MessageExpired(LeaseLost):
    """The time of a delivery is over: the message is, or will be, delivered again. Nothing was recorded."""

    hint = "do not act on it any more; it is delivered again"


class Delivery(msgspec.Struct, eq=False):
    """A message that is handed out, until it is acknowledged or its time is over."""

    _receiver: Receiver
    lease: Lease
    message: Message
    tries: int
    """How often it has been handed out, this time included."""
    deadline_us: int = 0

    @property
    def version(self) -> int:
        """The version of the message in the inbox."""
        return self.message.version

    @property
    def token(self) -> int:
        """The delivery token: larger each time another receiver takes over the inbox."""
        return self.lease.token

    async def ack(self) -> None:
        """Acknowledge the message: it is not delivered again. MessageExpired when its time was over before."""
        name, floor = self._receiver.name, self._receiver.floor(self.version)
        await self._receiver.resolve(self, acknowledge(name, [self.version], floor=floor), "ack")

    async def reject(self, reason: str) -> None:
        """Make the message a dead letter: it is not delivered again unless it is requeued."""
        name, floor = self._receiver.name, self._receiver.floor(self.version)
        letter = Waiting(self.message, self.tries, reason)
        await self._receiver.resolve(self, dead_letter(name, [letter], floor=floor), "dead letter")

    async def release(self, reason: str) -> None:
        """Return the message to be delivered again; after too many tries it becomes a dead letter, with the reason."""
        if self.tries >= self._receiver.tries_max:
            await self.reject(reason)
        else:
            self._receiver.take_back(self)

    def extend(self) -> None:
        """Begin the time of the delivery again, for work that takes long."""
        self._receiver.set_deadline(self)


class Receiver:
    """Hands out the messages of an inbox: `async for delivery in receiver`."""

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
        self.name = check_name(name, "name")
        self._journal = journal
        self._clock = clock
        self._mailbox = mailbox
        self._visibility_s = visibility_s
        self.tries_max = tries_max
        self._window = window
        self._restore_s = restore_s
        self._oldest_us = 0
        """Messages that were sent before are too old to be restored."""
        self._inbox: Inbox | None = None
        self._fold = Acknowledgements(id=name)
        self._lease: Lease | None = None
        self._leased_us = 0
        self._keeper: asyncio.Task[None] | None = None
        self._kept = 0
        self._is_exact = True
        """Whether the fold has exactly the recorded events, so that it may be kept."""
        self._buffer: deque[Record] = deque()
        """Records that are read, and not handed out."""
        self._ready: deque[Delivery] = deque()
        """Deliveries that are recorded as handed out, and not yet returned to the caller."""
        self._out: dict[int, Delivery] = {}
        """Deliveries that are handed out and not resolved, those that are ready included."""
        self._released: deque[Delivery] = deque()

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

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop receiving; the next receiver gets unacknowledged messages at once."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None
        if self._lease is not None:
            lease, self._lease = self._lease, None
            await self._journal.release(lease)
        if self._inbox is not None:
            self._inbox.close()

    # --- the lease -------------------------------------------------------------------------------------------

    async def _begin(self) -> Inbox:
        """Wait for the lease of the inbox, unless this receiver has it, and read on from what is resolved."""
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
        self._is_exact = True
        for each in (self._buffer, self._ready, self._out, self._released):
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
        """Renew the lease, unless the time of a delivery is over: then let the lease run out."""
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
                continue  # for every receiver; the lease may still hold when the store is back
            except MaosError as error:
                inbox.fail(error)

    def set_deadline(self, delivery: Delivery) -> None:
        """Begin the time of a delivery."""
        delivery.deadline_us = self._clock.steady_us() + int(self._visibility_s * MICROSECONDS)

    # --- handing out -----------------------------------------------------------------------------------------

    async def _hand_out(self, inbox: Inbox) -> bool:
        """Record which messages are handed out next; returns whether there are any."""
        if not self._buffer:
            self._buffer.extend(await inbox.page())
        lease = self._lease
        if lease is None:
            raise LeaseLost(inbox.stream, token=0, why="it was released")
        released = len(self._released)
        again = [each for each in self._released if not self._fold.is_resolved(each.version)]
        deliveries = [Delivery(self, lease, each.message, each.tries + 1) for each in again]
        dead: list[Waiting] = []
        passed = self._choose(lease, deliveries, dead)
        if deliveries or dead:
            crash_point("bus:before handing out")
            given = hand_out(self.name, [each.version for each in deliveries])
            resolved = [each.message.version for each in dead]
            await self._record(lease, [*given, *dead_letter(self.name, dead, floor=self.floor())], resolved)
            crash_point("bus:after handing out")
        for _ in range(released):
            self._released.popleft()
        for _ in range(passed):
            self._buffer.popleft()
        self._out |= {each.version: each for each in deliveries}
        self._ready.extend(deliveries)
        return bool(self._ready)

    def _choose(self, lease: Lease, deliveries: list[Delivery], dead: list[Waiting]) -> int:
        """Add buffered messages to deliveries, up to the window, or to dead; returns how many records that covers.

        A message that a receiver had when it died is handed out alone: if it killed the receiver, no other message is
        counted as tried once more.
        """
        now_us = self._clock.now_us()
        for passed, record in enumerate(self._buffer):
            if len(self._out) + len(deliveries) >= self._window:
                return passed
            if not isinstance(record.event, MessageSent) or self._fold.is_resolved(record.version):
                continue
            said = message(record.event, version=record.version)
            tries = self._fold.tries.get(record.version, 0)
            why = said.reason_to_give_up(now_us, self._oldest_us)
            if not why and tries >= self.tries_max:
                why = f"it was delivered {tries} times and never acknowledged"
            if why:
                dead.append(Waiting(said, tries + 1, why))
            elif not tries:
                deliveries.append(Delivery(self, lease, said, 1))
            elif self._out or deliveries:
                return passed
            else:
                deliveries.append(Delivery(self, lease, said, tries + 1))
                return passed + 1
        return len(self._buffer)

    # --- resolving -------------------------------------------------------------------------------------------

    async def resolve(self, delivery: Delivery, appends: Sequence[Append], what: str) -> None:
        """Write what resolves a delivery, unless it is resolved."""
        if self._holds(delivery.lease) and self._fold.is_resolved(delivery.version):
            return
        crash_point(f"bus:before {what}")
        await self._record(delivery.lease, appends, [delivery.version])
        crash_point(f"bus:after {what}")

    def take_back(self, delivery: Delivery) -> None:
        """Deliver a message again."""
        if self._holds(delivery.lease):
            self._released.append(delivery)
            delivery.deadline_us = 0
            self._wake()

    def _holds(self, lease: Lease) -> bool:
        return self._lease is not None and self._lease.token == lease.token

    def floor(self, resolved: int = 0) -> int:
        """The version up to which every message is resolved, once one more is."""
        read = self._inbox.cursor if self._inbox is not None else 0
        left = [version for version in self._out if version != resolved]
        buffered = [self._buffer[0].version] if self._buffer else []
        return min([read + 1, *left, *buffered]) - 1

    async def _record(self, lease: Lease, appends: Sequence[Append], resolved: Sequence[int]) -> None:
        """Write appends under the token of a delivery; MessageExpired when another receiver has taken over."""
        try:
            reply = await self._journal.append_all(appends, under=lease, documents=self._due())
        except LeaseLost as error:
            if self._holds(lease):
                self._lose()
            why = "another receiver has taken over, or the delivery has expired"
            raise MessageExpired(error.name, token=error.token, why=why) from error
        newest = 0
        for append, version in zip(appends, reply.versions, strict=True):
            if append.stream == acks(self.name):
                newest = version
                for event in append.events:
                    assert isinstance(event, EventBase)
                    self._fold.apply(event)
        if self._fold.version != newest:  # an append was written whose caller was cancelled before it returned
            self._is_exact = False
        for version in resolved:
            self._out.pop(version, None)
        self._wake()

    def _due(self) -> tuple[Document, ...]:
        """The document of the fold without what is being written, every KEEP_EVERY events."""
        if not self._is_exact or self._fold.version - self._kept < KEEP_EVERY:
            return ()
        self._kept = self._fold.version
        return (keep(self._fold),)
