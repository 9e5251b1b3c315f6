"""From a draft to the appends that send it: within limits, without secrets, to all subscribers of its topic."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, TypedDict, Unpack

import msgspec

from maos.clock import MICROSECONDS, Clock
from maos.errors import Conflict, InvalidInput, MaosError
from maos.ids import check_name
from maos.journal.codec import check_plain
from maos.journal.journal import Append, Journal
from maos.model.events.messages import TopicJoined, TopicLeft
from maos.model.message import TOPICS, TYPES, Message, Topics, history, inbox, index_event, of_run
from maos.redact import clean
from maos.store.contract import Key
from maos.tuples import NamedTuple

SENDERS_REMEMBERED_MAX = 10_000
_MINUTE_US = 60 * MICROSECONDS


class TooMuch(InvalidInput):
    """A message is too large, has too many recipients, or is too far down a chain of replies."""


class TooFast(MaosError):
    """A sender has sent too many messages within a minute; this one was not sent."""

    def __init__(self, sender: str, *, per_minute: int, wait_s: float) -> None:
        super().__init__(f"{sender} has sent {per_minute} messages within a minute", hint=f"wait {wait_s:.0f} s")
        self.wait_s = wait_s


class MessageLimits(NamedTuple):
    """What a sender may send, so that one that sends without end does not harm the others (A9, A20)."""

    text_bytes_max: int = 1 << 20
    metadata_bytes_max: int = 64 << 10
    recipients_max: int = 1_000
    hops_max: int = 16
    """How many messages may lead to one: this ends a loop of agents that answer each other."""
    per_minute: int = 0
    """How many messages one sender may send within a minute; 0 for any number."""


OF_AGENTS = MessageLimits(text_bytes_max=64 << 10, metadata_bytes_max=16 << 10, recipients_max=100, per_minute=120)
"""For messages that agents send themselves, which no person has read before."""


class DraftOptions(TypedDict, total=False):
    """How a message is sent, beside its sender, its recipients, its text and what it replies to."""

    type: str
    """By default info, and broadcast for a message to all agents of a run."""
    metadata: Mapping[str, Any] | None
    ttl_s: float | None
    """How long it may wait for its recipient."""
    received: Message | None
    """The last message that the sender received, replied to or not: it counts towards the hop limit, which ends a
    conversation of agents that only react to each other."""
    key: str | None
    """Makes repeating the call harmless."""


class Outbox:
    """Makes messages that may be sent."""

    def __init__(self, clock: Clock, limits: MessageLimits) -> None:
        self._clock = clock
        self._limits = limits
        self._paid_until_us: dict[str, int] = {}
        self._origin = secrets.token_hex(5)
        self._count = count(1)

    def compose(
        self,
        sender: str,
        text: str,
        *,
        to: str = "",
        topic: str = "",
        run: str = "",
        cause: Message | None = None,
        **options: Unpack[DraftOptions],
    ) -> Message:
        """Return a message to one agent, to a topic, or with neither to all agents of its run, if it may be sent.

        `cause` is the message that it replies to.
        """
        type = options.get("type") or ("info" if to or topic else "broadcast")
        metadata, ttl_s = options.get("metadata"), options.get("ttl_s")
        check_name(sender, "name")
        if type not in TYPES:
            raise InvalidInput(f"{type!r} is not a type of message", hint=f"use one of {', '.join(TYPES)}")
        if ttl_s is not None and ttl_s <= 0:
            raise InvalidInput(f"a message cannot live for {ttl_s} s", hint="give a time above 0, or none")
        text = self._check_text(text)
        checked = self._check_metadata(metadata) if metadata else {}
        hops = self._count_hops(cause, options.get("received"))
        self._check_rate(sender)
        return Message(
            id=self._id(sender, options.get("key")),
            sender=sender,
            text=text,
            type=type,
            to=(to,) if to else (),
            run=run,
            topic="" if to else topic or of_run(run),
            metadata=checked,
            hops=hops,
            reply_to="" if cause is None else cause.id,
            at_us=self._clock.now_us(),
            ttl_us=int(ttl_s * MICROSECONDS) if ttl_s is not None else 0,
        )

    def check_recipients(self, count: int, topic: str) -> None:
        """Raise TooMuch for a message with too many recipients."""
        if count > self._limits.recipients_max:
            hint = f"at most {self._limits.recipients_max} are allowed"
            raise TooMuch(f"a message on {topic} would have {count} recipients", hint=hint)

    def _check_rate(self, sender: str) -> None:
        """Count a message, which takes its share of a minute; raise TooFast when its sender has used up the minute."""
        per_minute = self._limits.per_minute
        if not per_minute:
            return
        now_us = self._clock.steady_us()
        until_us = max(now_us, self._paid_until_us.get(sender, 0)) + _MINUTE_US // per_minute
        if until_us > now_us + _MINUTE_US:
            wait_s = (until_us - now_us - _MINUTE_US) / MICROSECONDS
            raise TooFast(sender, per_minute=per_minute, wait_s=max(1.0, wait_s))
        if len(self._paid_until_us) >= SENDERS_REMEMBERED_MAX:
            self._paid_until_us = {name: paid for name, paid in self._paid_until_us.items() if paid > now_us}
        self._paid_until_us[sender] = until_us

    def _id(self, sender: str, key: str | None) -> str:
        """An id for the message: the same for the same key, else a new one."""
        if key is not None:
            words = f"{sender}\0{key}".encode("utf-8", "backslashreplace")
            return f"m-{hashlib.sha256(words).hexdigest()[:12]}"
        return f"m-{self._origin}-{next(self._count):x}"  # a random id for each would cost a system call

    def _check_text(self, text: str) -> str:
        text = clean(text, str)
        size = len(text) if text.isascii() else len(text.encode())
        if size > self._limits.text_bytes_max:
            hint = f"at most {self._limits.text_bytes_max} are allowed; write it to a file and send its path"
            raise TooMuch(f"the message has {size} bytes", hint=hint)
        return text

    def _check_metadata(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        given = dict(metadata)
        check_plain(given)
        size = len(repr(given))  # about as long as JSON, which cannot encode every text
        if size > self._limits.metadata_bytes_max:
            hint = f"at most {self._limits.metadata_bytes_max} are allowed"
            raise TooMuch(f"the metadata has {size} bytes", hint=hint)
        cleaned: dict[str, Any] = clean(given, str)
        return cleaned

    def _count_hops(self, *causes: Message | None) -> int:
        hops = max((each.hops + 1 for each in causes if each is not None), default=0)
        if hops > self._limits.hops_max:
            hint = (
                f"at most {self._limits.hops_max} are allowed, so that agents do not answer each other endlessly; "
                "continue your task, or ask a person, before you send more"
            )
            raise TooMuch(f"{hops} messages led to this one", hint=hint)
        return hops


class Subscriptions:
    """The subscribers of topics, who stay subscribed over restarts (R-302); cached, and refreshed from the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._topics = Topics()

    async def refresh(self) -> Topics:
        """Return the subscriptions that are recorded now."""
        async for record in self._journal.read(TOPICS, after=self._topics.version):
            if record.version == self._topics.version + 1:  # else another call has read it meanwhile
                self._topics.apply(record.event)
        return self._topics

    def unchanged(self) -> Append:
        """Return a part of an append that fails when subscriptions have changed since the last refresh.

        So a message to a topic reaches everyone who had joined it by then, through whatever process (I18).
        """
        return Append(TOPICS, (), self._topics.version)

    async def change(self, event: TopicJoined | TopicLeft) -> None:
        """Record that an agent joins or leaves a topic, unless it has."""
        while True:
            topics = await self.refresh()
            if (event.name in topics.members.get(event.topic, {})) is isinstance(event, TopicJoined):
                return
            try:
                await self._journal.append(TOPICS, event, expected=topics.version)
            except Conflict:
                continue  # another subscription has changed meanwhile


class Outgoing:
    """A message that is composed, and whose appends are not written yet."""

    def __init__(self, composed: Message, members: Sequence[str], subscriptions: Subscriptions, outbox: Outbox) -> None:
        self.composed = composed
        self.message = composed
        """The message with all its recipients, once the appends are known."""
        self._members = members
        self._subscriptions = subscriptions
        self._outbox = outbox

    async def appends(self) -> list[Append]:
        """Return the appends that send it; to be called again after a Conflict, when subscriptions have changed."""
        said = self.composed
        if said.to:
            return appends_of(said, said.to)
        topics = await self._subscriptions.refresh()
        names = dict.fromkeys((*self._members, *topics.members.get(said.topic, ())))
        names.pop(said.sender, None)
        self._outbox.check_recipients(len(names), said.topic)
        self.message = said._replace(to=tuple(names))
        return [*appends_of(said, tuple(names)), self._subscriptions.unchanged()]

    def key(self, key: str) -> Key:
        """Return the key of its append: the same message under the same key is sent once."""
        event = msgspec.structs.replace(self.composed.event, at_us=0, by="")
        name = f"message/{check_name(event.sender, 'name')}/{check_name(key, 'key')}"
        return Key(name, hashlib.sha256(msgspec.json.encode(event)).digest())


def appends_of(said: Message, names: Sequence[str]) -> list[Append]:
    """Return the appends that put a message into inboxes and into the index of its run.

    Every inbox has the whole message, also when there are many recipients. An inbox could refer to one copy, but only
    by the message's id, because the version of the copy is known only after the append. Each receiver would then search
    another stream for each message, and an inbox would not be complete in an export or after a rollback.
    """
    event = said.event
    return [*(Append(inbox(name), (event,)) for name in names), Append(history(said.run), [index_event(said, names)])]
