"""The message bus: sends messages between agents, hands them out, and reads which were sent."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypedDict, Unpack

from maos.bus import acknowledgements, history
from maos.bus.acknowledgements import DeadLetter, Waiting
from maos.bus.history import Filter, Received, SentMessage, Talk
from maos.bus.mailbox import Mailbox
from maos.bus.outbox import MessageDraft, MessageLimits, Outbox, Outgoing, Subscriptions, appends_of
from maos.bus.receiver import TRIES_MAX, VISIBILITY_S, WINDOW, Delivery, Receiver
from maos.clock import Clock
from maos.errors import Conflict, NotFound
from maos.faults import crash_point
from maos.ids import check_name
from maos.journal.journal import Append, Journal
from maos.model.events.messages import MessageAcknowledged, MessageSent
from maos.model.message import PERSON, Message, acks, inbox, message
from maos.model.run import stream as run_stream

Members = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the agents of a run."""
Cause: TypeAlias = Message | Delivery | str | None
"""What a message replies to: a message, or the id of one that the sender received."""

LOOK_BACK_EVENTS = 1_000


class DraftOptions(TypedDict, total=False):
    """How a message is sent, beside its sender, its recipients, its text and what it replies to."""

    type: str
    metadata: Mapping[str, Any] | None
    ttl_s: float | None
    """How long it may wait for its recipient."""
    received: Message | None
    """The last message that the sender received, replied to or not: it counts towards the hop limit, which ends a
    conversation of agents that only react to each other."""
    key: str | None
    """Makes repeating the call harmless."""


class Options(DraftOptions, total=False):
    """How a message is sent, beside its sender, its recipients and its text."""

    reply_to: Cause
    """What it replies to."""


async def _no_members(_run: str) -> Sequence[str]:
    return ()


class Bus:
    """Sends and hands out messages.

    The caller names the sender: a program knows for which agent or person it sends, and no text decides it.
    """

    def __init__(
        self, journal: Journal, clock: Clock, *, members: Members = _no_members, restore_s: float = 0.0
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._members = members
        self._restore_s = restore_s
        self._outbox = Outbox(clock, MessageLimits())
        self._subscriptions = Subscriptions(journal)
        self.mailbox = Mailbox(journal)
        """The reader of inboxes that everything in this process shares."""
        self._receivers: list[Receiver] = []
        self._runs: set[str] = set()

    def limited(self, limits: MessageLimits, *, is_redacted: bool = False) -> Bus:
        """Return this bus with other limits; with `is_redacted`, for texts that have no secrets any more."""
        other = copy.copy(self)
        other._outbox = Outbox(self._clock, limits, is_redacted=is_redacted)
        return other

    # --- sending ---------------------------------------------------------------------------------------------

    async def send(
        self, sender: str, to: str, text: str, *, run: str | None = None, **options: Unpack[Options]
    ) -> Message:
        """Send a message to one agent; it is on disk when this returns."""
        check_name(to, "name")
        return await self._send(await self.compose(sender, text, to=to, run=run, **options), options.get("key"))

    async def broadcast(self, sender: str, run: str, text: str, **options: Unpack[Options]) -> Message:
        """Send a message to all other agents of a run, and to all subscribers of the run's topic."""
        return await self._send(await self.compose(sender, text, run=run, **options), options.get("key"))

    async def publish(
        self, sender: str, topic: str, text: str, *, run: str | None = None, **options: Unpack[Options]
    ) -> Message:
        """Send a message to all other subscribers of a topic."""
        check_name(topic, "topic")
        return await self._send(await self.compose(sender, text, topic=topic, run=run, **options), options.get("key"))

    async def compose(
        self,
        sender: str,
        text: str,
        *,
        to: str = "",
        topic: str = "",
        run: str | None = None,
        reply_to: Cause = None,
        **options: Unpack[DraftOptions],
    ) -> Outgoing:
        """Return a message that is not sent yet: to one agent, to a topic, or with neither to all agents of a run.

        Its appends can be written as part of a larger append, so that one is not there without the other.
        """
        if run is None:
            run = (await self._run_of(to) if to else "") or await self._run_of(sender)
        cause = await self._cause(sender, reply_to)
        said = self._outbox.compose(MessageDraft(sender, text, to, topic, run, cause=cause, **options))
        members = () if to or topic else await self._members(run)
        return Outgoing(said, members, self._subscriptions, self._outbox)

    def enclosed(
        self, sender: str, to: str, text: str, *, run: str, type: str, metadata: Mapping[str, Any] | None = None
    ) -> list[Append]:
        """Return the appends that send a message to one agent, for a caller that cannot await `compose`."""
        check_name(to, "name")
        said = self._outbox.compose(MessageDraft(sender, text, to, run=run, type=type, metadata=metadata))
        return appends_of(said, said.to)

    async def _send(self, outgoing: Outgoing, key: str | None) -> Message:
        """Write one append over all inboxes and the index: all of it is there, or nothing (I18)."""
        once = None if key is None else outgoing.key(key)
        while True:
            appends = await outgoing.appends()
            crash_point("bus:before send")
            try:
                sent = await self._journal.append_all(appends, key=once)
            except Conflict:
                continue  # an agent has joined or left the topic meanwhile
            crash_point("bus:after send")
            version = sent.versions[0] if outgoing.composed.to else 0
            return outgoing.message._replace(version=version)

    async def _cause(self, sender: str, reply_to: Cause) -> Message | None:
        if isinstance(reply_to, str):
            return await self.find(sender, reply_to)
        return reply_to.message if isinstance(reply_to, Delivery) else reply_to

    async def find(self, name: str, id: str) -> Message:
        """Return a message in an inbox by its id, if it is one of the newest."""
        version = await self._journal.version(inbox(name))
        for record in await self._journal.page_back(inbox(name), before=version + 1, limit=LOOK_BACK_EVENTS):
            match record.event:
                case MessageSent(id=found) if found == id:
                    return message(record.event, version=record.version)
        raise NotFound(f"{name!r} was sent no message {id!r} lately", hint="`maos message list` shows what was sent")

    async def last_received(self, name: str) -> SentMessage | None:
        """Return the newest message that an agent has acknowledged, which its next message probably reacts to.

        Of several that were acknowledged together, one from a person counts as the newest.
        """
        version = await self._journal.version(acks(name))
        for record in await self._journal.page_back(acks(name), before=version + 1, limit=LOOK_BACK_EVENTS):
            match record.event:
                case MessageAcknowledged(versions=versions):
                    sent = [await self._journal.event(inbox(name), each) for each in sorted(versions)]
                    found = [
                        SentMessage(each.position, message(each.event, version=each.version)) for each in sent if each
                    ]
                    of_a_person = [each for each in found if each.message.sender == PERSON]
                    return next(reversed(of_a_person or found), None)
        return None

    async def _run_of(self, agent: str) -> str:
        """The run of an agent, by its name; empty when it has none."""
        run, dot, _task = agent.partition(".")
        if not dot:
            return ""
        if run not in self._runs:
            if not await self._journal.version(run_stream(run)):
                return ""
            self._runs.add(run)
        return run

    # --- receiving -------------------------------------------------------------------------------------------

    def receive(
        self,
        name: str,
        *,
        visibility_s: float = VISIBILITY_S,
        tries_max: int = TRIES_MAX,
        window: int = WINDOW,
        restore_s: float | None = None,
    ) -> Receiver:
        """Receive all messages to an agent that are not acknowledged, then new ones as they come.

        There is one receiver of an inbox at a time; others wait until it ends, or has not renewed its lease for
        `visibility_s`. A message that is not acknowledged within that time is delivered again, `tries_max` times at
        most. Messages older than `restore_s` when this begins become dead letters; none when that is 0.
        """
        receiver = Receiver(
            self._journal,
            self._clock,
            self.mailbox,
            name,
            visibility_s=visibility_s,
            tries_max=tries_max,
            window=window,
            restore_s=self._restore_s if restore_s is None else restore_s,
        )
        self._receivers.append(receiver)
        return receiver

    async def subscribe(self, name: str, topic: str) -> None:
        """Subscribe an agent to a topic; the subscription survives restarts."""
        await self._subscriptions.join(name, topic)

    async def unsubscribe(self, name: str, topic: str) -> None:
        """End the subscription of an agent to a topic."""
        await self._subscriptions.leave(name, topic)

    async def subscriptions(self, name: str) -> list[str]:
        """Return the topics that an agent has subscribed to."""
        return (await self._subscriptions.refresh()).of(name)

    def waiting(self, name: str) -> AsyncIterator[Waiting]:
        """Yield the messages to an agent that are not acknowledged, the oldest first."""
        return acknowledgements.waiting(self._journal, name)

    async def expire(self, name: str) -> None:
        """Make messages to an agent dead letters that are expired or too old to restore; a receiver does it itself."""
        await acknowledgements.expire(self._journal, self._clock, name, restore_s=self._restore_s)

    def dead_letters(self, name: str | None = None) -> AsyncIterator[DeadLetter]:
        """Yield the messages that could not be delivered to one agent, or to any, with the reasons."""
        return acknowledgements.dead_letters(self._journal, name)

    async def requeue(self, name: str, version: int) -> None:
        """Send a dead letter again, to the agent that it could not be delivered to."""
        await acknowledgements.requeue(self._journal, self._clock, name, version)

    async def received(self, name: str) -> list[Received]:
        """Every message that was put into an inbox, with the number of its acknowledgements."""
        return await history.received(self._journal, name)

    # --- history ---------------------------------------------------------------------------------------------

    def history(
        self,
        *,
        run: str | None = None,
        agent: str = "",
        types: Sequence[str] = (),
        since_us: int = 0,
        before_us: int = 0,
    ) -> AsyncIterator[SentMessage]:
        """Yield the messages that were sent, in order: of a run, to or from an agent, of some types, within a time."""
        return history.read(self._journal, run, Filter(agent, types, since_us, before_us))

    def follow(
        self, *, run: str | None = None, agent: str = "", types: Sequence[str] = (), after: int = 0
    ) -> AsyncIterator[SentMessage]:
        """Yield the messages after a position of the journal, then new ones as they are sent."""
        return history.follow(self._journal, run, Filter(agent, types), after=after)

    async def talks(self, *, run: str | None = None, since_us: int = 0) -> list[Talk]:
        """Return how many messages each sender has sent to each recipient, the most first."""
        return await history.talks(self._journal, run, Filter(since_us=since_us))

    async def close(self) -> None:
        """Stop receiving."""
        await asyncio.gather(*(receiver.close() for receiver in self._receivers))
        self._receivers.clear()
        await self.mailbox.close()
