"""The message bus: sends messages between agents, hands them out, and reads which were sent."""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, Unpack

from maos.bus import history
from maos.bus.acknowledgements import DeadLetter, Waiting, dead_letter, load
from maos.bus.history import Filter, Received, SentMessage, Talk
from maos.bus.mailbox import Mailbox
from maos.bus.outbox import DraftOptions, MessageLimits, Outbox, Outgoing, Subscriptions, appends_of
from maos.bus.receiver import TRIES_MAX, VISIBILITY_S, WINDOW, Delivery, Receiver
from maos.clock import MICROSECONDS, Clock
from maos.errors import Conflict, NotFound
from maos.faults import crash_point
from maos.ids import check_name
from maos.journal.journal import Append, Journal
from maos.model.events.messages import (
    DeadLetterAdded,
    DeadLetterRequeued,
    MessageAcknowledged,
    MessageSent,
    TopicJoined,
    TopicLeft,
)
from maos.model.events.parts import PERSON
from maos.model.message import Message, acks, dead, inbox, message
from maos.model.message import history as index_of
from maos.model.run import stream as run_stream

Members = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the agents of a run."""
Cause: TypeAlias = Message | Delivery | str | None
"""What a message replies to: a message, or the id of one that the sender received."""

LOOK_BACK_EVENTS = 1_000


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

    def limited(self, limits: MessageLimits) -> Bus:
        """Return this bus with other limits."""
        other = copy.copy(self)
        other._outbox = Outbox(self._clock, limits)
        return other

    # --- sending ---------------------------------------------------------------------------------------------

    async def send(
        self, sender: str, to: str, text: str, *, run: str | None = None, **options: Unpack[Options]
    ) -> Message:
        """Send a message to one agent; it is on disk when this returns.

        Example::

            await m.bus.send("person", "reviewer", "The schema has changed", type="info")
        """
        check_name(to, "name")
        return await self._send(await self.compose(sender, text, to=to, run=run, **options), options.get("key"))

    async def broadcast(self, sender: str, run: str, text: str, **options: Unpack[Options]) -> Message:
        """Send a message to all other agents of a run, and to all subscribers of the run's topic.

        Example::

            await m.bus.broadcast("person", "r-1", "The schema has changed")
        """
        return await self._send(await self.compose(sender, text, run=run, **options), options.get("key"))

    async def publish(
        self, sender: str, topic: str, text: str, *, run: str | None = None, **options: Unpack[Options]
    ) -> Message:
        """Send a message to all other subscribers of a topic.

        Example::

            await m.bus.publish("person", "releases", "1.2 is out")
        """
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
        if isinstance(reply_to, str):
            reply_to = await self.find(sender, reply_to)
        cause = reply_to.message if isinstance(reply_to, Delivery) else reply_to
        self._journal.principal.check_may_write_for(sender, "send a message as")
        said = self._outbox.compose(sender, text, to=to, topic=topic, run=run, cause=cause, **options)
        said = said._replace(by=self._journal.by)
        members = () if to or topic else await self._members(run)
        return Outgoing(said, members, self._subscriptions, self._outbox)

    def enclosed(
        self, sender: str, to: str, text: str, *, run: str, type: str, by: str = "", metadata: Mapping[str, Any]
    ) -> list[Append]:
        """Return the appends that send a message to one agent, for a caller that cannot await `compose`."""
        check_name(to, "name")
        said = self._outbox.compose(sender, text, to=to, run=run, type=type, metadata=metadata)._replace(by=by)
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

    async def find(self, name: str, id: str) -> Message:
        """Return a message in an inbox by its id, if it is one of the newest."""
        for record in await self._journal.page_back(inbox(name), limit=LOOK_BACK_EVENTS):
            match record.event:
                case MessageSent(id=found) if found == id:
                    return message(record.event, version=record.version)
        raise NotFound(f"{name!r} was sent no message {id!r} lately", hint="`maos message list` shows what was sent")

    async def last_received(self, name: str) -> SentMessage | None:
        """Return the newest message that an agent has acknowledged, which its next message probably reacts to.

        Of several that were acknowledged together, one from a person counts as the newest.
        """
        for record in await self._journal.page_back(acks(name), limit=LOOK_BACK_EVENTS):
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

        Example::

            async for delivery in m.bus.receive("reviewer"):
                await delivery.ack()
                break
        """
        self._journal.principal.check_may_write_for(name, "receive the messages of")
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
        """Subscribe an agent to a topic; the subscription survives restarts.

        Example::

            await m.bus.subscribe("reviewer", "releases")
        """
        self._journal.principal.check_may_write_for(name, "subscribe to a topic for")
        joined = TopicJoined(topic=check_name(topic, "topic"), name=check_name(name, "name"))
        await self._subscriptions.change(joined)

    async def unsubscribe(self, name: str, topic: str) -> None:
        """End the subscription of an agent to a topic."""
        self._journal.principal.check_may_write_for(name, "end a subscription of")
        await self._subscriptions.change(TopicLeft(topic=topic, name=name))

    async def subscriptions(self, name: str) -> list[str]:
        """Return the topics that an agent has subscribed to."""
        return (await self._subscriptions.refresh()).of(name)

    async def waiting(self, name: str) -> AsyncIterator[Waiting]:
        """Yield the messages to an agent that are neither acknowledged nor dead letters, the oldest first."""
        fold = await load(self._journal, name)
        async for record in self._journal.read(inbox(name), after=fold.floor):
            if isinstance(record.event, MessageSent) and not fold.is_resolved(record.version):
                yield Waiting(message(record.event, version=record.version), fold.tries.get(record.version, 0))

    async def expire(self, name: str) -> None:
        """Make messages to an agent dead letters that are expired or too old to restore; a receiver does it itself."""
        self._journal.principal.check_may_write_for(name, "give up messages to")
        while True:
            fold, now_us = await load(self._journal, name), self._clock.now_us()
            oldest_us = now_us - int(self._restore_s * MICROSECONDS) if self._restore_s else 0
            given_up = [
                each._replace(why=why)
                async for each in self.waiting(name)
                if (why := each.message.reason_to_give_up(now_us, oldest_us))
            ]
            if not given_up:
                return
            try:
                await self._journal.append_all(dead_letter(name, given_up, expected=fold.version))
                return
            except Conflict:
                continue  # a receiver has acknowledged a message meanwhile

    async def dead_letters(self, name: str | None = None) -> AsyncIterator[DeadLetter]:
        """Yield the messages that could not be delivered to one agent, or to any, with the reasons.

        Example::

            print([(each.name, each.why) async for each in m.bus.dead_letters()])
        """
        streams = [dead(name)] if name is not None else [each async for each in self._journal.streams(dead(""))]
        for stream in streams:
            found, _version = await self._dead_letters_of(stream.removeprefix(dead("")))
            for letter in found.values():
                yield letter

    async def requeue(self, name: str, version: int) -> None:
        """Send a dead letter again, once, to the agent that it could not be delivered to."""
        self._journal.principal.check_may_decide(f"requeue a dead letter for {name}")
        while True:
            found, read_until = await self._dead_letters_of(name)
            letter = found.get(version)
            if letter is None:
                hint = "`maos message dead` lists them; each can be sent again once"
                raise NotFound(f"{name!r} has no dead letter {version}", hint=hint)
            said = letter.message._replace(at_us=self._clock.now_us())
            again = DeadLetterRequeued(version=version, by=self._journal.by)
            requeued = Append(dead(name), [again], expected=read_until)
            try:
                await self._journal.append_all([requeued, *appends_of(said, [name])])
                return
            except Conflict:
                continue  # there is another dead letter, or this one was requeued meanwhile

    async def _dead_letters_of(self, name: str) -> tuple[dict[int, DeadLetter], int]:
        """The dead letters of an inbox by their versions in it, and the version up to which they were read."""
        found: dict[int, DeadLetter] = {}
        read_until = 0
        async for record in self._journal.read(dead(name)):
            read_until = record.version
            match record.event:
                case DeadLetterRequeued(version=version):
                    del found[version]
                case DeadLetterAdded(version=version, why=why, tries=tries):
                    sent = await self._journal.event(inbox(name), version)
                    if sent is not None:
                        said = message(sent.event, version=version)
                        found[version] = DeadLetter(name, version, why, tries, record.time_us, said)
        return found, read_until

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

    async def follow(
        self, *, run: str | None = None, agent: str = "", types: Sequence[str] = (), after: int = 0
    ) -> AsyncIterator[SentMessage]:
        """Yield the messages after a position of the journal, then new ones as they are sent."""
        prefix = "messages/" if run is None else index_of(run)
        bodies, wanted = history.Bodies(self._journal), Filter(agent, types)
        async for record in self._journal.follow(after=after, prefix=prefix):
            if wanted.matches(history.indexed(record)) and (run is None or record.stream == prefix):
                yield SentMessage(record.position, await bodies.message(record))

    async def talks(self, *, run: str | None = None, since_us: int = 0) -> list[Talk]:
        """Return how many messages each sender has sent to each recipient, the most first."""
        found: dict[tuple[str, str], Talk] = {}
        async for _record, said in history.index(self._journal, run, Filter(since_us=since_us)):
            for recipient in said.to:
                pair = (said.sender, recipient)
                before = found.get(pair) or Talk(*pair, 0, 0, ())
                types = before.types if said.type in before.types else (*before.types, said.type)
                found[pair] = Talk(*pair, before.messages + 1, said.at_us, types)
        return sorted(found.values(), key=lambda talk: (-talk.messages, talk.sender, talk.recipient))

    async def received(self, name: str) -> list[Received]:
        """Return every message in an inbox with the number of its acknowledgements, in the order of the inbox."""
        events = [record.event async for record in self._journal.read(acks(name))]
        counts = Counter(n for event in events if isinstance(event, MessageAcknowledged) for n in event.versions)
        sent = [record async for record in self._journal.read(inbox(name))]
        texts = {record.version: record.event.text for record in sent if isinstance(record.event, MessageSent)}
        return [Received(texts.get(n, ""), n in texts, counts[n]) for n in sorted(texts.keys() | counts.keys())]

    async def close(self) -> None:
        """Stop receiving."""
        await asyncio.gather(*(receiver.close() for receiver in self._receivers))
        self._receivers.clear()
        await self.mailbox.close()
