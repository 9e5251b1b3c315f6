"""The history of messages: every message of a run once, with all its recipients.

The index of a run has the sender and the recipients of each message; its text is read from the inbox of a recipient.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Sequence

from maos.errors import Corrupt
from maos.journal.journal import Journal, Record
from maos.model.events.messages import MessageRouted, MessageSent
from maos.model.message import Message, belongs, history, inbox, message
from maos.tuples import NamedTuple

GONE = "[the text of this message is not in this journal]"


class SentMessage(NamedTuple):
    """A message, and where in the journal it was sent."""

    position: int
    message: Message


class Talk(NamedTuple):
    """How many messages one sender has sent to one recipient."""

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
    """Selects messages; a field that is empty selects all."""

    agent: str = ""
    """The sender or a recipient."""
    types: Sequence[str] = ()
    since_us: int = 0
    before_us: int = 0

    def matches(self, said: Message) -> bool:
        """Whether a message is selected."""
        return (
            (not self.agent or self.agent == said.sender or self.agent in said.to)
            and (not self.types or said.type in self.types)
            and said.at_us >= self.since_us
            and (not self.before_us or said.at_us < self.before_us)
        )


class Bodies:
    """Reads the texts of messages in an index from inboxes; each inbox is read once, from one end to the other."""

    def __init__(self, journal: Journal, *, newest_first: bool = False) -> None:
        self._journal = journal
        self._newest_first = newest_first
        self._cursors: dict[str, int] = {}
        self._read: dict[str, dict[str, Message]] = {}

    async def message(self, record: Record) -> Message:
        """Return the whole message of an index entry, with all its recipients."""
        listed = indexed(record)
        if isinstance(record.event, MessageSent):
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
                if isinstance(each.event, MessageSent):
                    said = message(each.event, version=each.version)
                    found[said.id] = said
        return found[id]

    async def _page(self, name: str) -> list[Record]:
        stream = inbox(name)
        if not self._newest_first:
            page = await self._journal.page(stream, after=self._cursors.get(name, 0))
        else:
            page = await self._journal.page_back(stream, before=self._cursors.get(name))
        if page:
            self._cursors[name] = page[-1].version
        return page


async def newest(journal: Journal, run: str, count: int) -> list[SentMessage]:
    """Return the newest messages of a run, the newest last."""
    bodies = Bodies(journal, newest_first=True)
    page = await journal.page_back(history(run), limit=count)
    return [SentMessage(each.position, await bodies.message(each)) for each in reversed(page)]


async def read(journal: Journal, run: str | None, wanted: Filter) -> AsyncIterator[SentMessage]:
    """Yield the messages of a run, or of all runs, in the order in which they were sent."""
    bodies = Bodies(journal)
    async for record, _listed in index(journal, run, wanted):
        yield SentMessage(record.position, await bodies.message(record))


async def index(journal: Journal, run: str | None, wanted: Filter) -> AsyncIterator[tuple[Record, Message]]:
    """Yield the index entries of a run, or of all runs, in the order in which the messages were sent."""
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
        listed = indexed(record)
        if wanted.matches(listed):
            yield record, listed
        await advance(number)


def indexed(record: Record) -> Message:
    """Return a message as far as an index has it."""
    match record.event:
        case MessageRouted(id=id, sender=sender, kind=kind, to=to, topic=topic, at_us=at_us):
            return Message(id or "@0", sender, GONE, kind, tuple(to), topic=topic, at_us=at_us)
        case MessageSent() as sent:
            return message(sent)
    raise Corrupt(f"{record.id} is not a message", stream=record.stream)
