"""Events of messages between agents.

Streams: `inbox/<name>` has the messages to an agent, `acks/<name>` the acknowledgements, `dead-letters/<name>` the
dead letters, `messages/<run>` the index of the messages of a run, and `topics` the subscriptions.
"""

from __future__ import annotations

from typing import Any

import msgspec

from maos.model.events.core import EventBase, event


@event("message_sent", plain=True)
class MessageSent(EventBase, frozen=True, kw_only=True):
    """A message was sent."""

    id: str = ""
    sender: str = "person"
    text: str
    kind: str = msgspec.field(default="info", name="type")
    to: list[str] = []
    """All its recipients; empty in the inbox of one of many."""
    run: str = ""
    topic: str = ""
    metadata: dict[str, Any] = {}
    hops: int = 0
    """How many messages led to this one."""
    reply_to: str = ""
    at_us: int = 0
    ttl_us: int = 0
    """How long after `at_us` it is still delivered; 0 for ever."""
    by: str = ""
    """The principal that sent it; `sender` is the name that it goes under."""


@event("message_routed", plain=True)
class MessageRouted(EventBase, frozen=True, kw_only=True):
    """A message was sent whose text is in the inboxes of its recipients."""

    id: str = ""
    sender: str = "person"
    kind: str = msgspec.field(default="info", name="type")
    to: list[str] = []
    topic: str = ""
    at_us: int = 0


@event("message_delivered", plain=True)
class MessageDelivered(EventBase, frozen=True, kw_only=True):
    """Messages were handed out, and may be handed out again."""

    versions: list[int]
    """Their versions in the inbox."""


class MessageResolved(EventBase, frozen=True, kw_only=True):
    """What the events have after which a message is not delivered again."""

    versions: list[int]
    floor: int = 0
    """Nothing up to this version of the inbox is to be delivered any more."""


@event("message_acknowledged", plain=True)
class MessageAcknowledged(MessageResolved, frozen=True, kw_only=True):
    """Messages have reached their receiver."""

    by: str = ""
    """The attempt that received them."""


@event("message_dead_lettered", plain=True)
class MessageDeadLettered(MessageResolved, frozen=True, kw_only=True):
    """Messages have become dead letters."""


@event("dead_letter_added", plain=True)
class DeadLetterAdded(EventBase, frozen=True, kw_only=True):
    """A message could not be delivered."""

    version: int
    """Its version in the inbox."""
    why: str
    tries: int
    message: str
    """Its id."""


@event("dead_letter_requeued", plain=True)
class DeadLetterRequeued(EventBase, frozen=True, kw_only=True):
    """A dead letter was sent again."""

    version: int
    by: str = ""
    """The principal that requested it."""


class Subscription(EventBase, frozen=True, kw_only=True):
    """What the events of subscriptions have."""

    topic: str
    name: str


@event("topic_joined", plain=True)
class TopicJoined(Subscription, frozen=True, kw_only=True):
    """An agent has subscribed to a topic."""


@event("topic_left", plain=True)
class TopicLeft(Subscription, frozen=True, kw_only=True):
    """An agent has ended its subscription to a topic."""
