"""What was said: every message of a run once, with everybody it was sent to.

The index of a run says who sent which message to whom; the text is looked up in an inbox that it went to.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from maos.journal.journal import Journal, Record
from maos.model.events.messages import MessageAcknowledged
from maos.model.message import Message, acks, belongs, history, inbox, message

GONE = "[the text of this message is not in this journal]"


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


class Received(NamedTuple):
    """An entry of an inbox that is a message, or was acknowledged."""

    text: str
    is_message: bool
    acks: int
    """How often it was acknowledged: once, if everything is right and it was read."""


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


class Bodies:
    """Finds the messages that entries of an index stand for; reads each inbox once, from one end to the other."""

    def __init__(self, journal: Journal, *, newest_first: bool = False) -> None:
        self._journal = journal
        self._newest_first = newest_first
        self._cursors: dict[str, int] = {}
        self._read: dict[str, dict[str, Message]] = {}

    async def message(self, record: Record) -> Message:
        """The whole message, with everybody it was sent to."""
        listed = _listed(record)
        if record.type == "message_sent":
            return listed
        run = record.stream.removeprefix(history("-").removesuffix("-"))
        for name in (each for each in listed.to if belongs(each, run)):
            found = await self._find(name, listed.id)
            if found is not None:
                return found._replace(to=listed.to, at_us=listed.at_us, version=0)
        return listed

    async def _find(self, name: str, id: str) -> Message | None:
        found = self._read.setdefault(name, {})
        while id not in found:
            page = await self._page(name)
            if not page:
                return None
            for each in page:
                if each.type == "message_sent":
                    said = message(each.data, version=each.version)
                    found[said.id] = said
        return found[id]

    async def _page(self, name: str) -> list[Record]:
        stream = inbox(name)
        if not self._newest_first:
            page = await self._journal.page(stream, after=self._cursors.get(name, 0))
        else:
            before = self._cursors.get(name) or await self._journal.version(stream) + 1
            page = await self._journal.page_back(stream, before=before) if before > 1 else []
        if page:
            self._cursors[name] = page[-1].version
        return page


async def newest(journal: Journal, run: str, count: int) -> list[SentMessage]:
    """The newest messages of a run, the newest last."""
    end = await journal.version(history(run))
    bodies = Bodies(journal, newest_first=True)
    page = await journal.page_back(history(run), before=end + 1, limit=count)
    return [SentMessage(each.position, await bodies.message(each)) for each in reversed(page)]


async def read(journal: Journal, run: str | None, wanted: Filter) -> AsyncIterator[SentMessage]:
    """The messages of a run, or of all of them, in the order in which they were sent."""
    bodies = Bodies(journal)
    async for record, _listed in _index(journal, run, wanted):
        yield SentMessage(record.position, await bodies.message(record))


async def _index(journal: Journal, run: str | None, wanted: Filter) -> AsyncIterator[tuple[Record, Message]]:
    """What the indexes of a run, or of all of them, have of messages, in the order in which they were sent."""
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
        _position, number, record = heapq.heappop(heads)
        listed = _listed(record)
        if wanted.takes(listed):
            yield record, listed
        await advance(number)


async def follow(journal: Journal, run: str | None, wanted: Filter, *, after: int) -> AsyncIterator[SentMessage]:
    """The messages after a position of the journal, then new ones as they come."""
    prefix = "messages/" if run is None else history(run)
    bodies = Bodies(journal)
    async for record in journal.follow(after=after, prefix=prefix):
        if wanted.takes(_listed(record)) and (run is None or record.stream == prefix):
            yield SentMessage(record.position, await bodies.message(record))


async def talks(journal: Journal, run: str | None, wanted: Filter) -> list[Talk]:
    """Who talks to whom, those who talk most first."""
    found: dict[tuple[str, str], Talk] = {}
    async for _record, said in _index(journal, run, wanted):
        for recipient in said.to:
            pair = (said.sender, recipient)
            before = found.get(pair) or Talk(*pair, 0, 0, ())
            types = before.types if said.type in before.types else (*before.types, said.type)
            found[pair] = Talk(*pair, before.messages + 1, said.at_us, types)
    return sorted(found.values(), key=lambda talk: (-talk.messages, talk.sender, talk.recipient))


async def received(journal: Journal, name: str) -> list[Received]:
    """Every message in an inbox with its acknowledgements, in the order of the inbox."""
    events = [record.event async for record in journal.read(acks(name))]
    counts = Counter(n for event in events if isinstance(event, MessageAcknowledged) for n in event.versions)
    texts = {
        record.version: message(record.data).text
        async for record in journal.read(inbox(name))
        if record.type == "message_sent"
    }
    return [Received(texts.get(n, ""), n in texts, counts[n]) for n in sorted(texts.keys() | counts.keys())]


def _listed(record: Record) -> Message:
    """A message as far as an index has it."""
    return message({"text": GONE, **record.data})
