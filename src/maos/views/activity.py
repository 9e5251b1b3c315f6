"""Everything that happens, in the order of the journal: for readers that follow it from a position on.

One follower for each process decodes each event once and keeps the newest in memory, as JSON. Readers take them from
there at their own pace; a reader that is further behind reads the journal. So a reader that is slow, or comes back
after a day, gets every event once, and costs no memory.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress
from typing import Any

import msgspec

from maos.errors import StoreUnavailable
from maos.journal.journal import Journal, Record
from maos.model.attempt import agent_of
from maos.tuples import NamedTuple

KINDS = (
    "agent", "attempt", "chat", "inbox", "messages", "notices", "permanent", "run", "schedules", "tools", "workflow",
)  # fmt: skip
"""The streams that are shown, by what their names begin with: not those of credentials."""
RECENT_EVENTS = 4_096
RECENT_BYTES = 16 << 20
"""How many of the newest events are kept in memory, and how much they may take up."""
BATCH_BYTES = 64 << 10
"""About how much a reader gets at once: what one holds that is slow."""
IDLE_S = 15.0
"""How often a reader is told that there is nothing new."""
PAGE_EVENTS = 200
SCANNED_EVENTS_MAX = 2_000
"""How many events are read for one page at most, whichever a filter accepts."""
NO_OUTPUT = "none"
NOTABLE = frozenset({"permission_requested", "permission_denied", "discovery", "trouble", "turn_ended", "exit"})
"""Facts that a reader wants to know of who does not read what an agent prints."""
RETRY_S = 1.0
REST_S = 0.02


class ActivityFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which events a reader wants; everything by default."""

    run: str = ""
    """Only of a run or a workflow run, with its agents, messages and commands."""
    agent: str = ""
    """Only of an agent."""
    types: tuple[str, ...] = ()
    """Only of these types; `task_*` stands for all that begin so."""

    output: str = ""
    """Of which agent what it prints is wanted: all by default; NO_OUTPUT for none. What needs a person is always."""

    def accepts(self, event: ActivityEvent) -> bool:
        """Whether the reader wants an event."""
        if self.output and event.is_output and event.agent != self.output:
            return False
        if self.run and event.subject != self.run and not event.subject.startswith(f"{self.run}."):
            return False
        if self.agent and event.agent != self.agent:
            return False
        return not self.types or any(
            event.type == each or (each.endswith("*") and event.type.startswith(each[:-1])) for each in self.types
        )


class ActivityEvent(NamedTuple):
    """One event of the journal."""

    position: int
    stream: str
    version: int
    type: str
    time_us: int
    subject: str
    """What it happened to: the name of the stream without its kind."""
    agent: str
    """The agent that it is about, if it is about one."""
    json: bytes
    """The event as one JSON document."""
    is_output: bool = False
    """Whether it is only what an agent printed or said."""


class ActivityDocument(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An event as readers get it."""

    position: int
    """Its position in the journal."""
    kind: str
    """What it happened to: a run, an attempt, an inbox, the state of an agent, …"""
    subject: str
    """The id of that."""
    agent: str = ""
    version: int
    type: str
    time_us: int
    data: dict[str, Any] = {}


_DROPPED = ActivityEvent(0, "", 0, "", 0, "", "", b"")


class ActivityBatch(NamedTuple):
    """What a reader gets at once."""

    events: Sequence[ActivityEvent]
    position: int
    """Everything up to here was read."""
    is_skipped: bool = False
    """Whether events up to there were left out, because the reader was too far behind."""


class ActivityLog:
    """Reads and follows everything that happens."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._recent: list[ActivityEvent] = []
        self._first = 0
        """Where in `_recent` those begin that are kept; those before it are removed in groups."""
        self._bytes = 0
        self._oldest = 0
        """Everything after this position that is shown, up to `_newest`, is in memory."""
        self._newest = 0
        self._grown = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._readers = 0
        self._turn = asyncio.Lock()

    async def head(self) -> int:
        """The position of the newest event.

        Example::

            print(await m.activity.head())
        """
        return await self._journal.head()

    async def page(
        self, *, after: int = 0, limit: int = PAGE_EVENTS, wanted: ActivityFilter | None = None, bytes_max: int = 0
    ) -> tuple[list[ActivityEvent], int]:
        """The next events after a position that pass a filter, and the position up to which the journal was read.

        With `bytes_max`, about so many bytes of them at most: at least one, however large it is.

        Example::

            events, position = await m.activity.page(after=0, limit=10)
            print([each.type for each in events])
        """
        wanted, found, seen, size = wanted or ActivityFilter(), [], 0, 0
        head = await self._journal.head()
        if after >= head:
            return [], after
        async for record in self._journal.follow(after=after):
            after, seen = record.position, seen + 1
            if is_shown(record.stream) and wanted.accepts(event := _event_of(record)):
                found.append(event)
                size += len(event.json)
            is_full = len(found) >= limit or (bytes_max and size >= bytes_max)
            if is_full or seen >= SCANNED_EVENTS_MAX or after >= head:
                break
        return found, after

    async def follow(
        self, *, after: int, wanted: ActivityFilter | None = None, lag_max: int = 0
    ) -> AsyncIterator[ActivityEvent | int]:
        """Every event after a position that passes a filter, as it is recorded, each once; never ends by itself.

        Now and then a position comes alone: everything up to it was read. With `lag_max`, a reader that is so many
        events behind skips them: it gets minus the position that it continues from, and reads the state anew.

        Example::

            async for each in m.activity.follow(after=await m.activity.head() - 1):
                print(each)
                break
        """
        async with aclosing(self.batches(after=after, wanted=wanted, lag_max=lag_max)) as batches:
            async for batch in batches:
                for each in batch.events:
                    yield each
                yield -batch.position if batch.is_skipped else batch.position

    async def batches(
        self, *, after: int, wanted: ActivityFilter | None = None, lag_max: int = 0
    ) -> AsyncGenerator[ActivityBatch, None]:
        """What `follow` yields, in batches of bounded size; an empty one now and then when there is nothing new.

        Example::

            async for batch in m.activity.batches(after=0):
                print(len(batch.events), batch.position)
                break
        """
        wanted = None if wanted == ActivityFilter() else wanted
        await self._begin()
        try:
            while True:
                if lag_max and self._newest - after > lag_max:
                    after = self._newest
                    yield ActivityBatch((), after, is_skipped=True)
                if after >= self._newest:
                    self._check_tasks()
                    await self._grown.wait()
                    self._check_tasks()
                    if after >= self._newest:
                        yield ActivityBatch((), after)
                elif after < self._oldest:
                    found, after = await self.page(after=after, wanted=wanted, bytes_max=BATCH_BYTES)
                    yield ActivityBatch(found, after)
                else:
                    found, after = self._from_memory(after, wanted)
                    yield ActivityBatch(found, after)
        finally:
            await self._end()

    def _from_memory(self, after: int, wanted: ActivityFilter | None) -> tuple[list[ActivityEvent], int]:
        """The next events after a position, all of which are in memory."""
        recent, size = self._recent, 0
        found: list[ActivityEvent] = []
        first = bisect_right(recent, after, lo=self._first, key=lambda each: each.position)
        for number in range(first, len(recent)):
            each = recent[number]
            if wanted is None or wanted.accepts(each):
                found.append(each)
                size += len(each.json)
                if size >= BATCH_BYTES and number + 1 < len(recent):
                    return found, each.position
        return found, self._newest

    def wake(self) -> None:
        """Let all readers get a batch, an empty one if there is nothing new."""
        self._grown.set()
        self._grown = asyncio.Event()

    async def close(self) -> None:
        """Stop following."""
        tasks, self._tasks = self._tasks, []
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- inside ----------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Add a reader, and start following for the first one. Readers come and go one at a time."""
        async with self._turn:
            if not self._tasks or any(each.done() for each in self._tasks):
                await self.close()
                self._recent.clear()
                self._first = self._bytes = 0
                self._oldest = self._newest = await self._journal.head()
                self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._tell_idle())]
            self._readers += 1

    async def _end(self) -> None:
        async with self._turn:
            self._readers -= 1
            if not self._readers:
                await self.close()

    async def _follow(self) -> None:
        try:
            while True:
                with suppress(StoreUnavailable):
                    async for record in self._journal.follow(after=self._newest, rest_s=REST_S):
                        self._add(record)
                await asyncio.sleep(RETRY_S)
        finally:
            self.wake()  # when it fails, its readers raise the error

    def _check_tasks(self) -> None:
        """Raise the error with which a task has ended that all readers depend on."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def _tell_idle(self) -> None:
        while True:
            await asyncio.sleep(IDLE_S)
            self.wake()

    def _add(self, record: Record) -> None:
        if is_shown(record.stream):
            event = _event_of(record)
            self._recent.append(event)
            self._bytes += len(event.json)
            while len(self._recent) - self._first > RECENT_EVENTS or self._bytes > RECENT_BYTES:
                self._oldest = self._recent[self._first].position
                self._bytes -= len(self._recent[self._first].json)
                self._recent[self._first] = _DROPPED
                self._first += 1
            if self._first >= RECENT_EVENTS:
                del self._recent[: self._first]
                self._first = 0
        self._newest = record.position
        self.wake()


def is_shown(stream: str) -> bool:
    """Whether the events of a stream are shown."""
    return stream.partition("/")[0] in KINDS


def _event_of(record: Record) -> ActivityEvent:
    kind, _, subject = record.stream.partition("/")
    agent = ""
    if kind == "attempt":
        agent = agent_of(subject)
    elif kind in ("agent", "tools"):
        agent = subject
    elif kind == "inbox":
        agent = subject  # or a run: a filter by agent does not meet the name of one
    document = ActivityDocument(
        position=record.position,
        kind=kind,
        subject=subject,
        agent=agent if kind != "inbox" else "",
        version=record.version,
        type=record.type,
        time_us=record.time_us,
        data=record.data,
    )
    encoded = msgspec.json.encode(document)
    return ActivityEvent(
        record.position,
        record.stream,
        record.version,
        record.type,
        record.time_us,
        subject,
        agent,
        encoded,
        is_output=_is_output(record),
    )


def _is_output(record: Record) -> bool:
    if record.type == "attempt_transcript":
        return True
    return record.type == "attempt_output" and all(each["kind"] not in NOTABLE for each in record.data["facts"])
