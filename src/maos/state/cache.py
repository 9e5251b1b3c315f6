"""Recently used states in memory.

A cached state is used only after its version was compared with the journal's, so it is never stale, whoever wrote in
the meantime and on whatever machine; what others wrote since is applied to it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable

from maos.state.folds import Tally
from maos.state.records import CacheStatistics, State

BYTES_MAX = 64 << 20
ENTRY_BYTES_MIN = 1024


class Entry:
    """A state in the cache."""

    __slots__ = ("bytes", "state", "tally")

    def __init__(self, state: State, tally: Tally, size: int) -> None:
        self.state = state
        self.tally = tally
        self.bytes = max(size, ENTRY_BYTES_MIN)


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
        """Keep a state, and let go of those unused for longest when there are too many."""
        self.invalidate(agent)
        self._entries[agent] = entry
        self._bytes += entry.bytes
        while self._bytes > self._bytes_max and len(self._entries) > 1:
            _agent, oldest = self._entries.popitem(last=False)
            self._bytes -= oldest.bytes
            self._evictions += 1

    def grow(self, entry: Entry, size: int) -> None:
        """Count what an update added."""
        entry.bytes += size
        self._bytes += size

    def invalidate(self, agent: str) -> None:
        """Forget an agent's state; the next read loads it again."""
        entry = self._entries.pop(agent, None)
        if entry is not None:
            self._bytes -= entry.bytes

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._bytes = 0

    async def warm(self, agents: Iterable[str]) -> None:
        """Load states before they are asked for."""
        assert self._warm is not None
        for agent in agents:
            await self._warm(agent)

    def statistics(self) -> CacheStatistics:
        """How the cache has been doing since it was opened."""
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
