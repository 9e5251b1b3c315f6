"""Messages between agents with what came of each at its receivers."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from maos.bus.bus import Bus
from maos.bus.history import SentMessage
from maos.model.message import Message


class Delivery(StrEnum):
    """What came of a message at one of its receivers."""

    WAITING = "waiting"
    """In the inbox, and not acknowledged yet. Handed out again until it is acknowledged, or dead after some tries."""
    DONE = "acknowledged"
    """The receiver has got it and said so. For good."""
    DEAD = "dead"
    """Put aside with a reason: it expired, or could not be handled. `maos message dead --again` sends it once more."""


class MessageInfo(NamedTuple):
    """A message, and what came of it."""

    message: Message
    receivers: dict[str, Delivery]

    @property
    def pending(self) -> list[Delivery]:
        """What keeps it from being acknowledged by all; empty when it is."""
        return sorted({each for each in self.receivers.values() if each is not Delivery.DONE})


class MessagePage(NamedTuple):
    """The newest messages that were asked for."""

    messages: list[MessageInfo]
    earlier: int
    """How many more there are before them."""
    position: int
    """The position of the last one in the journal: `Messages.follow` continues after it."""


class Messages:
    """Reads messages of all runs, and follows new ones."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def newest(
        self,
        *,
        run: str | None = None,
        agent: str = "",
        types: Sequence[str] = (),
        since_us: int = 0,
        before_us: int = 0,
        last: int = 50,
    ) -> MessagePage:
        """The last messages that pass all filters, in the order in which they were sent.

        Example::

            page = await m.messages.newest(agent="reviewer", last=10)
            print([(each.message.text, each.receivers) for each in page.messages])
        """
        newest: deque[SentMessage] = deque(maxlen=last)
        total = 0
        async for each in self._bus.history(run=run, agent=agent, types=types, since_us=since_us, before_us=before_us):
            newest.append(each)
            total += 1
        found = await self._with_receivers([each.message for each in newest])
        return MessagePage(found, total - len(newest), newest[-1].position if newest else 0)

    async def follow(
        self, *, run: str | None = None, agent: str = "", types: Sequence[str] = (), since_us: int = 0, after: int = 0
    ) -> AsyncIterator[MessageInfo]:
        """Messages after a position of the journal as they are sent; never ends by itself."""
        async for _position, message in self._bus.follow(run=run, agent=agent, types=types, after=after):
            if message.at_us >= since_us:
                yield MessageInfo(message, dict.fromkeys(message.to, Delivery.WAITING))

    async def _with_receivers(self, messages: Sequence[Message]) -> list[MessageInfo]:
        found = {each.id: MessageInfo(each, dict.fromkeys(each.to, Delivery.DONE)) for each in messages}
        for name in dict.fromkeys(name for each in messages for name in each.to):
            async for letter in self._bus.dead(name):
                _mark(found, letter.message.id, name, Delivery.DEAD)
            async for waiting in self._bus.waiting(name):
                _mark(found, waiting.message.id, name, Delivery.WAITING)
        return [found[each.id] for each in messages]


def _mark(found: dict[str, MessageInfo], id: str, name: str, delivery: Delivery) -> None:
    if id in found and name in found[id].receivers:
        found[id].receivers[name] = delivery
