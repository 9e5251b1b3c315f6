"""Recently used states in memory.

A cached state is used only after its version was compared with the journal's, so it is never stale, whichever process
on whichever machine wrote in the meantime; what others wrote since is applied to it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from maos.state.records import CacheStatistics, State

if TYPE_CHECKING:
    from maos.state.folds import Tally

BYTES_MAX = 64 << 20
ENTRY_BYTES_MIN = 1024
ENTRY_BYTES_SLACK = 64 << 10


class Entry:
    """A state in the cache."""

    __slots__ = ("_measured", "bytes", "state", "tally")

    def __init__(self, state: State, tally: Tally, size: int) -> None:
        self.state = state
        self.tally = tally
        self.bytes = self._measured = max(size, ENTRY_BYTES_MIN)

    def grow(self, size: int) -> None:
        """Count what was added. What it took the place of is not known, so now and then all of it is measured."""
        self.bytes += size
        if self.bytes > 2 * self._measured + ENTRY_BYTES_SLACK:
            self.bytes = self._measured = max(size_of(self.state.raw()), ENTRY_BYTES_MIN)


class Cache:
    """The states used last, up to a limit of memory."""

    def __init__(self, *, bytes_max: int = BYTES_MAX) -> None:
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._bytes = 0
        self._bytes_max = bytes_max
        self._warm: Callable[[str], Awaitable[object]] | None = None
        self.hits = 0
        self.misses = 0
        self.refreshes = 0
        self._evictions = 0
        self.access_ns = 0

    def look(self, agent: str) -> Entry | None:
        """What is cached for an agent, however old."""
        entry = self._entries.get(agent)
        if entry is not None:
            self._entries.move_to_end(agent)
        return entry

    def put(self, agent: str, entry: Entry) -> None:
        """Keep a state, and evict those unused for longest when there are too many."""
        self.invalidate(agent)
        self._entries[agent] = entry
        self._bytes += entry.bytes
        self._shrink()

    def grow(self, entry: Entry, size: int) -> None:
        """Count what an update added."""
        before = entry.bytes
        entry.grow(size)
        if self._entries.get(entry.state.agent) is entry:  # it may have been evicted meanwhile
            self._bytes += entry.bytes - before
            self._shrink()

    def invalidate(self, agent: str) -> None:
        """Forget an agent's state; the next read loads it again.

        Example::

            m.state.cache.invalidate("reviewer")
        """
        entry = self._entries.pop(agent, None)
        if entry is not None:
            self._bytes -= entry.bytes

    def clear(self) -> None:
        """Forget everything.

        Example::

            m.state.cache.clear()
        """
        self._entries.clear()
        self._bytes = 0

    def _shrink(self) -> None:
        while self._bytes > self._bytes_max and len(self._entries) > 1:
            _agent, oldest = self._entries.popitem(last=False)
            self._bytes -= oldest.bytes
            self._evictions += 1

    async def warm(self, agents: Iterable[str]) -> None:
        """Load states before they are asked for.

        Example::

            await m.state.cache.warm(["reviewer"])
        """
        assert self._warm is not None
        for agent in agents:
            await self._warm(agent)

    def statistics(self) -> CacheStatistics:
        """How the cache has been doing since it was opened.

        Example::

            statistics = m.state.cache.statistics()
            print(statistics.hit_rate, statistics.bytes)
        """
        reads = self.hits + self.refreshes + self.misses
        mean_us = self.access_ns / 1000 / reads if reads else 0.0
        return CacheStatistics(
            self.hits, self.misses, self.refreshes, self._evictions, len(self._entries), self._bytes, mean_us
        )

    def warm_with(self, load: Callable[[str], Awaitable[object]]) -> None:
        """How to load a state."""
        self._warm = load

    @staticmethod
    def clock_ns() -> int:
        """For measuring how long an access takes."""
        return time.perf_counter_ns()


def size_of(value: Any) -> int:
    """Roughly the memory that plain data takes."""
    size = 0
    stack = [value]
    while stack:
        value = stack.pop()
        if type(value) is dict:
            size += 64
            stack.extend(value.values())
        elif type(value) is list:
            size += 56 + 8 * len(value)
            stack.extend(value)
        else:
            size += 49 + len(value) if type(value) is str else 28
    return size
