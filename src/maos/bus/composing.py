"""From what somebody wants to say to a message that may be sent: within limits, and without secrets."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import msgspec

from maos.bus.limits import MessageLimits, Rate, TooMuch
from maos.bus.topics import Subscriptions
from maos.clock import MICROSECONDS, Clock
from maos.errors import InvalidInput
from maos.ids import check_name
from maos.journal.codec import Event, check_plain
from maos.journal.journal import Append
from maos.model.message import TYPES, Message, history, inbox, indexed
from maos.redact import Redactor
from maos.store.contract import Key

NAMES_KNOWN_MAX = 10_000


class MessageDraft(NamedTuple):
    """What somebody wants to say."""

    sender: str
    text: str
    type: str
    metadata: Mapping[str, Any] | None
    run: str
    ttl_s: float | None
    cause: Message | None
    key: str | None
    to: tuple[str, ...] = ()
    topic: str = ""
    heard: Message | None = None


class MessageComposer:
    """Makes messages of drafts."""

    def __init__(self, clock: Clock, limits: MessageLimits, *, is_redacted: bool = False) -> None:
        self._clock = clock
        self._limits = limits
        self._rate = Rate(clock, limits.per_minute)
        self._redact = _unchanged if is_redacted else Redactor({}).text
        self._names: set[str] = set()
        self._origin = secrets.token_hex(5)
        self._count = count(1)

    def compose(self, draft: MessageDraft) -> Message:
        """The message, if it may be sent; without what has the shape of a secret (A16)."""
        self.check_name(draft.sender)
        if draft.type not in TYPES:
            raise InvalidInput(f"{draft.type!r} is not a type of message", hint=f"use one of {', '.join(TYPES)}")
        if draft.ttl_s is not None and draft.ttl_s <= 0:
            raise InvalidInput(f"a message cannot live for {draft.ttl_s} s", hint="give it some time, or none for ever")
        text = self._text(draft.text)
        metadata = self._metadata(draft.metadata) if draft.metadata else {}
        hops = self._hops(draft)
        self._rate.check(draft.sender)
        return Message(
            id=self._id(draft),
            sender=draft.sender,
            text=text,
            type=draft.type,
            to=draft.to,
            run=draft.run,
            topic=draft.topic,
            metadata=metadata,
            hops=hops,
            reply_to="" if draft.cause is None else draft.cause.id,
            at_us=self._clock.now_us(),
            ttl_us=int(draft.ttl_s * MICROSECONDS) if draft.ttl_s is not None else 0,
        )

    def _id(self, draft: MessageDraft) -> str:
        """A name for the message: the same for the same key, else one that nobody has given."""
        if draft.key is not None:
            return f"m-{_digest(draft.sender, draft.key).hex()[:12]}"
        return f"m-{self._origin}-{next(self._count):x}"  # chance for each would cost a call into the system

    def check_name(self, name: str) -> None:
        """InvalidInput for what cannot be anybody's name."""
        if name not in self._names:
            check_name(name, "name")
            if len(self._names) >= NAMES_KNOWN_MAX:
                self._names.clear()
            self._names.add(name)

    def check_recipients(self, count: int, topic: str) -> None:
        """TooMuch for a message that would go to too many."""
        if count > self._limits.recipients_max:
            hint = f"at most {self._limits.recipients_max} are allowed"
            raise TooMuch(f"a message on {topic} would go to {count}", hint=hint)

    def _text(self, text: str) -> str:
        text = _whole(text)
        size = len(text) if text.isascii() else len(text.encode())
        if size > self._limits.text_bytes_max:
            hint = f"at most {self._limits.text_bytes_max} are allowed; put it into a file and say where that is"
            raise TooMuch(f"the message has {size} bytes", hint=hint)
        return self._redact(text)

    def _metadata(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        given = dict(metadata)
        check_plain(given)
        size = len(repr(given))  # of about the same length as JSON, which could not say every text
        if size > self._limits.metadata_bytes_max:
            hint = f"at most {self._limits.metadata_bytes_max} are allowed"
            raise TooMuch(f"the metadata have {size} bytes", hint=hint)
        cleaned: dict[str, Any] = self._cleaned(given)
        return cleaned

    def _cleaned(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._redact(_whole(value))
        if isinstance(value, dict):
            return {self._cleaned(key): self._cleaned(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._cleaned(item) for item in value]
        return value

    def _hops(self, draft: MessageDraft) -> int:
        hops = max((each.hops + 1 for each in (draft.cause, draft.heard) if each is not None), default=0)
        if hops > self._limits.hops_max:
            hint = (
                f"at most {self._limits.hops_max} may, so that agents do not answer each other for ever; "
                "get on with your work, or ask a person, before you say more"
            )
            raise TooMuch(f"{hops} messages led to this one", hint=hint)
        return hops


class Outgoing:
    """A message that is composed, and whose appends are still to be written."""

    def __init__(
        self, composed: Message, members: Sequence[str], subscriptions: Subscriptions, composer: MessageComposer
    ) -> None:
        self.composed = composed
        self.message = composed
        """With everybody it goes to, once the appends are known."""
        self._members = members
        self._subscriptions = subscriptions
        self._composer = composer

    async def appends(self) -> list[Append]:
        """What sends it; called again after a Conflict, because agents may have joined or left its topic."""
        said = self.composed
        if said.to:
            return appends_of(said, said.to)
        topics = await self._subscriptions.refresh()
        names = dict.fromkeys((*self._members, *topics.members.get(said.topic, ())))
        names.pop(said.sender, None)
        self._composer.check_recipients(len(names), said.topic)
        self.message = said._replace(to=tuple(names))
        return [*appends_of(said, tuple(names)), self._subscriptions.unchanged()]


def appends_of(said: Message, names: Sequence[str]) -> list[Append]:
    """The appends that put a message into inboxes and into the history of its run."""
    event = Event("message_sent", said.data())
    index = Append(history(said.run), [Event(*indexed(said, names))])
    return [*(Append(inbox(name), (event,)) for name in names), index]


def key_of(said: Message, key: str) -> Key:
    """The key of an append of a message: the same words under the same key are the same message."""
    body = msgspec.json.encode(said.data() | {"at_us": 0})
    return Key(f"message/{check_name(said.sender, 'name')}/{check_name(key, 'key')}", hashlib.sha256(body).digest())


def _unchanged(text: str) -> str:
    return text


def _whole(text: str) -> str:
    """Text that can be stored: half a character, which JSON can spell, is spelled out."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _digest(*words: str) -> bytes:
    return hashlib.sha256("\0".join(words).encode("utf-8", "backslashreplace")).digest()
