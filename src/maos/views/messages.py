"""Messages between agents, with the status of each at its recipients."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from enum import StrEnum

from maos.bus.bus import Bus
from maos.bus.history import SentMessage
from maos.model.access import VisibleParts
from maos.model.message import Message
from maos.tuples import NamedTuple


class DeliveryStatus(StrEnum):
    """The status of a message at one of its recipients."""

    WAITING = "waiting"
    """In the inbox, and not acknowledged yet. Delivered again until acknowledged, or dead after some tries."""
    DONE = "acknowledged"
    """The recipient has acknowledged it. Final."""
    DEAD = "dead"
    """A dead letter: it expired, or could not be handled. `maos message dead --again` sends it once more."""


class MessageInfo(NamedTuple):
    """A message, and its status at each recipient."""

    message: Message
    receivers: dict[str, DeliveryStatus]

    @property
    def pending(self) -> list[DeliveryStatus]:
        """The other statuses than acknowledged, each once; empty when all recipients have acknowledged it."""
        return sorted({each for each in self.receivers.values() if each is not DeliveryStatus.DONE})


class MessagePage(NamedTuple):
    """The newest messages that pass the filters."""

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
        seen: VisibleParts | None = None,
    ) -> MessagePage:
        """The last messages that pass all filters, in the order in which they were sent. With `seen`, those of the runs
        and agents that a reader sees.

        Example::

            page = await m.messages.newest(agent="reviewer", last=10)
            print([(each.message.text, each.receivers) for each in page.messages])
        """
        newest: deque[SentMessage] = deque(maxlen=last)
        total = 0
        async for each in self._bus.history(run=run, agent=agent, types=types, since_us=since_us, before_us=before_us):
            if seen is not None and not await _is_seen(each.message, seen):
                continue
            newest.append(each)
            total += 1
        found = await self._with_receivers([each.message for each in newest])
        return MessagePage(found, total - len(newest), newest[-1].position if newest else 0)

    async def follow(
        self, *, run: str | None = None, agent: str = "", types: Sequence[str] = (), since_us: int = 0, after: int = 0
    ) -> AsyncIterator[MessageInfo]:
        """Messages after a position of the journal as they are sent; never ends by itself.

        Example::

            async for each in m.messages.follow(agent="reviewer"):
                print(each.message.text)
                break
        """
        async for _position, message in self._bus.follow(run=run, agent=agent, types=types, after=after):
            if message.at_us >= since_us:
                yield MessageInfo(message, dict.fromkeys(message.to, DeliveryStatus.WAITING))

    async def _with_receivers(self, messages: Sequence[Message]) -> list[MessageInfo]:
        found = {each.id: MessageInfo(each, dict.fromkeys(each.to, DeliveryStatus.DONE)) for each in messages}
        for name in dict.fromkeys(name for each in messages for name in each.to):
            statuses = {each.message.id: DeliveryStatus.DEAD async for each in self._bus.dead_letters(name)}
            statuses |= {each.message.id: DeliveryStatus.WAITING async for each in self._bus.waiting(name)}
            for id in statuses.keys() & found.keys():
                if name in found[id].receivers:
                    found[id].receivers[name] = statuses[id]
        return [found[each.id] for each in messages]


async def _is_seen(message: Message, seen: VisibleParts) -> bool:
    if message.run and await seen.has_run(message.run):
        return True
    return any([await seen.has_agent(each) for each in (message.sender, *message.to)])
