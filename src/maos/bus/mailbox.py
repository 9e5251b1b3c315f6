"""The one reader of inboxes in a process.

The reader follows the journal, and hands new events to the listeners of their inbox. Each listener has a cursor of its
own: it takes the events that follow its cursor, and reads its inbox when it has missed some. So it gets each record
once and in order, the backlog before new ones, also after an outage of the store.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from maos.errors import StoreUnavailable
from maos.journal.journal import PAGE_EVENTS, Journal, Record
from maos.model.message import inbox
from maos.store.contract import Recorded

PAUSE_S, PAUSE_S_MAX = 0.1, 2.0
"""How long to wait before an unavailable store is tried again: twice as long each time, up to the maximum."""
WAIT_S = 60.0

T = TypeVar("T")


async def patiently(read: Callable[[], Awaitable[T]]) -> T:
    """Read from the store; retry while it is unavailable."""
    pause_s = PAUSE_S
    while True:
        try:
            return await read()
        except StoreUnavailable:
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_S_MAX)


class Mailbox:
    """The reader of inboxes that everything in a process shares. It runs while at least one inbox is open."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._inboxes: dict[str, list[Inbox]] = {}
        self._reader: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()

    async def open(self, name: str, *, after: int, rest_s: float = 0.0) -> Inbox:
        """Listen to an inbox from a version on; waits while the store is unavailable.

        `rest_s` lets new records gather before they are read, which is cheaper where others write a lot.
        """
        opened = Inbox(self, self._journal, name, after, rest_s)
        self._inboxes.setdefault(opened.stream, []).append(opened)
        try:
            await self.begin()
        except BaseException:
            opened.close()
            raise
        return opened

    async def begin(self) -> None:
        """Start the reader unless it runs, and return when it notices everything that is written from now on."""
        if self._reader is None or self._reader.done():
            self._begun = asyncio.Event()
            self._reader = asyncio.create_task(self._read(self._begun))
            self._reader.add_done_callback(self._report_death)
        await self._begun.wait()

    def remove(self, closed: Inbox) -> None:
        """Stop notifying a listener; the reader ends with the last one."""
        listeners = self._inboxes.get(closed.stream, [])
        if closed in listeners:
            listeners.remove(closed)
        if not listeners:
            self._inboxes.pop(closed.stream, None)
        if not self._inboxes and self._reader is not None:
            self._reader.cancel()
            self._reader = None

    async def close(self) -> None:
        """Stop reading."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _read(self, begun: asyncio.Event) -> None:
        position = await patiently(self._journal.head)
        for each in self._all():
            each.look()
        begun.set()
        while True:
            position = await patiently(partial(self._notice, position))

    async def _notice(self, position: int) -> int:
        """Notify the listeners of inboxes that have grown after a position, or wait for the journal to grow."""
        store = self._journal.store
        events = await store.read_log(after=position, limit=PAGE_EVENTS)
        for event in events:
            for listener in self._inboxes.get(event.stream, ()):
                listener.notice(event)
            position = event.position
        if len(events) < PAGE_EVENTS:
            await store.wait(after=position, timeout_s=WAIT_S)
            await asyncio.sleep(min((each.rest_s for each in self._all()), default=0.0))
        return position

    def _all(self) -> list[Inbox]:
        return [each for listeners in self._inboxes.values() for each in listeners]

    def _report_death(self, reader: asyncio.Task[None]) -> None:
        """Hand the error that ended the reader to every listener; the first one that reads on starts another reader."""
        error = None if reader.cancelled() else reader.exception()
        if reader is self._reader:
            for each in self._all():
                each.fail(error)
            self._begun.set()


class Inbox:
    """One listener's cursor in an inbox: `async for record in inbox` gives every record after it, once and in order."""

    def __init__(self, mailbox: Mailbox, journal: Journal, name: str, after: int, rest_s: float) -> None:
        self.stream = inbox(name)
        self.cursor = after
        """The version up to which this listener has read."""
        self.rest_s = rest_s
        self.news = asyncio.Event()
        """Set when there may be something to read."""
        self._mailbox = mailbox
        self._journal = journal
        self._newest = 0
        self._unlooked = True
        self._last: Record | None = None
        """The record at the cursor, if it was read."""
        self._noticed: deque[Recorded] = deque()
        """Events that the reader has seen, one after the other."""
        self._records: deque[Record] = deque()
        self._error: BaseException | None = None

    @property
    def is_behind(self) -> bool:
        """Whether there is, or may be, something after the cursor."""
        return self._unlooked or self._newest > self.cursor

    async def page(self) -> list[Record]:
        """The next records after the cursor, without waiting for new ones; none when there are none."""
        if not self.is_behind:
            return []
        page = await self._page_noticed()
        if not page:
            self._unlooked = False
            try:
                page = await patiently(lambda: self._journal.page(self.stream, after=self.cursor, limit=PAGE_EVENTS))
            except BaseException:
                self._unlooked = True
                raise
            if not page:
                return []
            self._unlooked = len(page) == PAGE_EVENTS
        if page[0].version - page[0].spans != self.cursor:  # another call has moved the cursor meanwhile
            self._unlooked = True
            return []
        self.cursor, self._last = page[-1].version, page[-1]
        return page

    async def _page_noticed(self) -> list[Record]:
        """What the reader has seen after the cursor, without reading it again; none when the inbox has to be read."""
        while self._noticed and self._noticed[0].version <= self.cursor:
            self._noticed.popleft()
        is_next = self._noticed and self._noticed[0].version == self.cursor + 1
        if not is_next or self._unlooked or (self._last is None and self.cursor):
            return []
        events, self._noticed = [*self._noticed], deque()
        return await patiently(lambda: self._journal.continued(events, self._last))

    async def wait(self) -> None:
        """Return when `news` is set; raises the error that ended the reader."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        await self._mailbox.begin()  # it may have ended with an error that another listener got
        await self.news.wait()
        self.news.clear()

    async def backlog(self) -> list[Record]:
        """Everything that is in the inbox by now after the cursor."""
        found: list[Record] = []
        while self.is_behind:
            found += await self.page()
        return found

    async def deliver(self, to: Callable[[Record], None]) -> None:
        """Call a function with each record, until this is cancelled."""
        async for record in self:
            to(record)

    def __aiter__(self) -> Inbox:
        return self

    async def __anext__(self) -> Record:
        while not self._records:
            self._records.extend(await self.page())
            if not self._records:
                await self.wait()
        return self._records.popleft()

    async def __aenter__(self) -> Inbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def rewind(self, version: int) -> None:
        """Read again what comes after a version."""
        self.cursor, self._last = version, None
        self._records.clear()
        self._noticed.clear()
        self.look()

    def close(self) -> None:
        """Stop listening."""
        self._mailbox.remove(self)

    # --- for the reader --------------------------------------------------------------------------------------

    def notice(self, event: Recorded) -> None:
        """The inbox has grown by an event."""
        self._newest = max(self._newest, event.version)
        before = self._noticed[-1].version if self._noticed else self.cursor
        if event.version == before + 1 and len(self._noticed) < PAGE_EVENTS:
            self._noticed.append(event)
        self.news.set()

    def look(self) -> None:
        """The inbox may have grown."""
        self._unlooked = True
        self.news.set()

    def fail(self, error: BaseException | None) -> None:
        """The reader has ended, with an error or because its task was cancelled."""
        self._error = error
        self.news.set()
