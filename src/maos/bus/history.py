"""What was said: every message of a run once, with everybody it was sent to."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from maos.journal.journal import Journal, Record
from maos.model.message import Message, history, message


class SentMessage(NamedTuple):
    """A message as it stands in the history."""

    position: int
    """Its place in the journal: ask for what came after it."""
    message: Message


class Talk(NamedTuple):
    """How much one has told another."""

    sender: str
    recipient: str
    messages: int
    last_us: int
    types: tuple[str, ...]


class Filter(NamedTuple):
    """Which messages are meant; what is empty leaves nothing out."""

    agent: str = ""
    """Who sent it or was sent it."""
    types: Sequence[str] = ()
    since_us: int = 0
    before_us: int = 0

    def takes(self, said: Message) -> bool:
        """Whether a message is one of them."""
        return (
            (not self.agent or self.agent == said.sender or self.agent in said.to)
            and (not self.types or said.type in self.types)
            and said.at_us >= self.since_us
            and (not self.before_us or said.at_us < self.before_us)
        )


async def read(journal: Journal, run: str | None, wanted: Filter) -> AsyncIterator[SentMessage]:
    """The messages of a run, or of all of them, in the order in which they were sent."""
    streams = [history(run)] if run is not None else [name async for name in journal.streams("messages/")]
    readers = [journal.read(name) for name in streams]
    heads: list[tuple[int, int, Record]] = []

    async def advance(number: int) -> None:
        record = await anext(readers[number], None)
        if record is not None:
            heapq.heappush(heads, (record.position, number, record))

    for number in range(len(readers)):
        await advance(number)
    while heads:
        position, number, record = heapq.heappop(heads)
        said = message(record.data)
        if wanted.takes(said):
            yield SentMessage(position, said)
        await advance(number)


async def follow(journal: Journal, run: str | None, wanted: Filter, *, after: int) -> AsyncIterator[SentMessage]:
    """The messages after a position of the journal, then new ones as they come."""
    prefix = "messages/" if run is None else history(run)
    async for record in journal.follow(after=after, prefix=prefix):
        said = message(record.data)
        if (run is None or record.stream == prefix) and wanted.takes(said):
            yield SentMessage(record.position, said)


async def talks(journal: Journal, run: str | None, wanted: Filter) -> list[Talk]:
    """Who talks to whom, those who talk most first."""
    found: dict[tuple[str, str], Talk] = {}
    async for _position, said in read(journal, run, wanted):
        for recipient in said.to:
            pair = (said.sender, recipient)
            before = found.get(pair) or Talk(*pair, 0, 0, ())
            types = before.types if said.type in before.types else (*before.types, said.type)
            found[pair] = Talk(*pair, before.messages + 1, said.at_us, types)
    return sorted(found.values(), key=lambda talk: (-talk.messages, talk.sender, talk.recipient))
