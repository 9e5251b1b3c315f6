"""The message bus: what agents tell each other, saved before anything is delivered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypedDict, Unpack

from maos.bus import history as past
from maos.bus import letters
from maos.bus.composing import MessageComposer, MessageDraft, Outgoing, appends_of, key_of
from maos.bus.history import Filter, Received, SentMessage, Talk
from maos.bus.letters import Letter
from maos.bus.limits import MessageLimits
from maos.bus.mailbox import Mailbox, Waiting, waiting
from maos.bus.receiving import TRIES_MAX, VISIBILITY_S, WINDOW, Delivery, Receiver
from maos.bus.topics import Subscriptions
from maos.clock import Clock
from maos.errors import Conflict, NotFound
from maos.faults import crash_point
from maos.ids import check_name
from maos.journal.journal import Append, Journal
from maos.model.message import PERSON, Message, acks, inbox, message, of_run
from maos.model.run import stream as run_stream

Members = Callable[[str], Awaitable[Sequence[str]]]
"""Who the agents of a run are."""
Cause: TypeAlias = Message | Delivery | str | None
"""What a message answers: a message, or the id of one that the sender got."""

LOOK_BACK_EVENTS = 1_000


class LastReceived(NamedTuple):
    """A message that somebody has acknowledged."""

    position: int
    """Where in the journal it was sent."""
    message: Message


class Options(TypedDict, total=False):
    """How a message is sent, beside its sender, its recipients and its text."""

    type: str
    metadata: Mapping[str, Any] | None
    ttl_s: float | None
    """How long it may wait for its recipient."""
    reply_to: Cause
    """What it answers."""
    heard: Message | None
    """What the sender heard last, answer or not: it counts towards the hop limit, so that agents which only react to
    each other come to an end."""
    key: str | None
    """Makes repeating the call harmless."""


async def _nobody(_run: str) -> Sequence[str]:
    return ()


class Bus:
    """Sends, hands out and remembers messages.

    Whoever calls says who the sender is: a front door knows whom it speaks for, and no text decides it.
    """

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        *,
        members: Members = _nobody,
        limits: MessageLimits | None = None,
        restore_s: float = 0.0,
        mailbox: Mailbox | None = None,
        is_redacted: bool = False,
    ) -> None:
        self._restore_s = restore_s
        self._journal = journal
        self._clock = clock
        self._members = members
        self._composer = MessageComposer(clock, limits or MessageLimits(), is_redacted=is_redacted)
        self._subscriptions = Subscriptions(journal)
        self.mailbox = Mailbox(journal) if mailbox is None else mailbox
        """The reader of inboxes, shared by everything that listens in this process."""
        self._receivers: list[Receiver] = []
        self._runs: set[str] = set()

    def limited(self, limits: MessageLimits, *, is_redacted: bool = False) -> Bus:
        """This bus with other limits for what is sent through it, and perhaps for texts without secrets already."""
        return Bus(
            self._journal,
            self._clock,
            members=self._members,
            limits=limits,
            restore_s=self._restore_s,
            mailbox=self.mailbox,
            is_redacted=is_redacted,
        )

    # --- sending ---------------------------------------------------------------------------------------------

    async def send(
        self, sender: str, to: str, text: str, *, run: str | None = None, **options: Unpack[Options]
    ) -> Message:
        """Tell one agent something; on disk when this returns."""
        self._composer.check_name(to)
        return await self._send(await self.compose(sender, text, to=to, run=run, **options), options.get("key"))

    async def broadcast(self, sender: str, run: str, text: str, **options: Unpack[Options]) -> Message:
        """Tell all agents of a run something, and everything that has joined the run's topic; not the sender."""
        return await self._send(await self.compose(sender, text, run=run, **options), options.get("key"))

    async def publish(
        self, sender: str, topic: str, text: str, *, run: str | None = None, **options: Unpack[Options]
    ) -> Message:
        """Tell everything that has joined a topic something; not the sender."""
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
        **options: Unpack[Options],
    ) -> Outgoing:
        """A message that is not sent yet: to one agent, to a topic, or with neither to all agents of a run.

        Its appends can be written as part of a larger append, so that one is not there without the other.
        """
        if run is None:
            run = (await self._run_of(to) if to else "") or await self._run_of(sender)
        draft = MessageDraft(
            sender,
            text,
            options.get("type", "info" if to or topic else "broadcast"),
            options.get("metadata"),
            run,
            options.get("ttl_s"),
            await self._cause(sender, options.get("reply_to")),
            options.get("key"),
            to=(to,) if to else (),
            topic="" if to else topic or of_run(run),
            heard=options.get("heard"),
        )
        said = self._composer.compose(draft)
        members = () if to or topic else await self._members(run)
        return Outgoing(said, members, self._subscriptions, self._composer)

    def enclosed(
        self,
        sender: str,
        to: str,
        text: str,
        *,
        run: str,
        type: str = "info",
        metadata: Mapping[str, Any] | None = None,
    ) -> list[Append]:
        """The appends that send one agent a message, for a caller that cannot wait for what `compose` looks up."""
        self._composer.check_name(to)
        said = self._composer.compose(MessageDraft(sender, text, type, metadata, run, None, None, None, to=(to,)))
        return appends_of(said, said.to)

    async def _send(self, outgoing: Outgoing, key: str | None) -> Message:
        """Write one append over all inboxes and the history: all of it is there, or nothing (I18)."""
        once = None if key is None else key_of(outgoing.composed, key)
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
        """A message that somebody was sent not long ago."""
        version = await self._journal.version(inbox(name))
        for record in await self._journal.page_back(inbox(name), before=version + 1, limit=LOOK_BACK_EVENTS):
            if record.type == "message_sent" and record.data.get("id") == id:
                return message(record.data, version=record.version)
        raise NotFound(f"{name!r} was sent no message {id!r} lately", hint="`maos message list` shows what was sent")

    async def last_heard(self, name: str) -> LastReceived | None:
        """The newest message that somebody has acknowledged: what they say next may well be an answer to it.

        Of several that were acknowledged together, one from a person counts as the newest.
        """
        version = await self._journal.version(acks(name))
        for record in await self._journal.page_back(acks(name), before=version + 1, limit=LOOK_BACK_EVENTS):
            if record.type == "message_acknowledged":
                sent = [await self._journal.event(inbox(name), each) for each in sorted(record.data["versions"])]
                heard = [LastReceived(each.position, message(each.data, version=each.version)) for each in sent if each]
                of_a_person = [each for each in heard if each.message.sender == PERSON]
                return next(reversed(of_a_person or heard), None)
        return None

    async def _run_of(self, agent: str) -> str:
        """The run that an agent belongs to, by its name; empty when it belongs to none."""
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
        """Everything that was sent to somebody and is not acknowledged, then new messages as they come.

        Only one receives for a name at a time; others wait until it ends, or is silent for `visibility_s`. A delivery
        that is not acknowledged within that time is made again, `tries_max` times at most. What is older than
        `restore_s` when this begins becomes a dead letter; nothing is too old when that is 0.
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
        """Have somebody get what is published on a topic from now on, whatever is restarted."""
        await self._subscriptions.join(name, topic)

    async def unsubscribe(self, name: str, topic: str) -> None:
        """Have somebody get it no more."""
        await self._subscriptions.leave(name, topic)

    async def subscriptions(self, name: str) -> list[str]:
        """The topics that somebody gets."""
        return (await self._subscriptions.refresh()).of(name)

    def waiting(self, name: str) -> AsyncIterator[Waiting]:
        """What somebody was sent and has not acknowledged, the oldest first."""
        return waiting(self._journal, name)

    async def expire(self, name: str) -> None:
        """Make dead letters of what waits for somebody beyond its time, or is too old to be restored.

        One who receives does that by itself.
        """
        await letters.expire(self._journal, self._clock, name, restore_s=self._restore_s)

    def dead(self, name: str | None = None) -> AsyncIterator[Letter]:
        """What could not be delivered to somebody, or to anybody, with the reason."""
        return letters.letters(self._journal, name)

    async def received(self, name: str) -> list[Received]:
        """Every message that was put into an inbox, with the number of its acknowledgements."""
        return await past.received(self._journal, name)

    async def revive(self, name: str, version: int) -> None:
        """Send a dead letter again, to the one who did not get it."""
        await letters.revive(self._journal, self._clock, name, version)

    # --- what was said ---------------------------------------------------------------------------------------

    def history(
        self,
        *,
        run: str | None = None,
        agent: str = "",
        types: Sequence[str] = (),
        since_us: int = 0,
        before_us: int = 0,
    ) -> AsyncIterator[SentMessage]:
        """The messages that were sent, in order: of a run, to or from an agent, of some types, within a time."""
        return past.read(self._journal, run, Filter(agent, types, since_us, before_us))

    def follow(
        self, *, run: str | None = None, agent: str = "", types: Sequence[str] = (), after: int = 0
    ) -> AsyncIterator[SentMessage]:
        """The messages after a position of the journal, then new ones as they are sent."""
        return past.follow(self._journal, run, Filter(agent, types), after=after)

    async def talks(self, *, run: str | None = None, since_us: int = 0) -> list[Talk]:
        """Who talks to whom, those who talk most first."""
        return await past.talks(self._journal, run, Filter(since_us=since_us))

    async def close(self) -> None:
        """Receive no more."""
        await asyncio.gather(*(receiver.close() for receiver in self._receivers))
        self._receivers.clear()
        await self.mailbox.close()
