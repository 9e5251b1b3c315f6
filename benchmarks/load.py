"""Opening a store and reading the newest state after 1,000 and 10,000 updates, whole and lazily."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import ours
from benchmarks.measure import (
    Figures,
    Missing,
    Report,
    Rounds,
    Row,
    Subject,
    Timer,
    interleave,
    progress,
    steady,
)
from benchmarks.peers.langgraph_delta import Loop, plain
from benchmarks.peers.langgraph_savers import Thread, newest, open_sqlite
from benchmarks.scratch import Scratch
from benchmarks.workload import Message, messages, state

COUNTS = (1_000, 10_000)
TAIL = 50
TIME = "ms"


def characters(entries: Sequence[Any]) -> int:
    """The length of all contents: touches every message, so that nothing stays undecoded."""
    return sum(len(entry["content"]) for entry in entries)


def characters_of_objects(entries: Sequence[Any]) -> int:
    """The same for langgraph's message objects."""
    return sum(len(entry.content) for entry in entries)


class Stores:
    """One closed store of each kind with the same history of `count` updates."""

    def __init__(self, root: Path, count: int) -> None:
        self.count = count
        self.root = root
        initial = state(10)
        self.initial = initial
        self.script = messages(count)
        self.wanted = characters(initial["messages"]) + characters(self.script)
        self.tail: list[Message] = self.script[-TAIL:]
        self._graph = Loop()

    def directory(self, name: str) -> Path:
        """Where the store of a system is."""
        path = self.root / f"{name}-{self.count}"
        path.mkdir(exist_ok=True)
        return path

    async def build(self) -> None:
        """Write the histories. Nothing here is timed, so langgraph may skip its fsyncs."""
        progress(f"load: {self.count:,} updates, langgraph SqliteSaver")
        # Only the newest: all of them would be 50 GB at 10,000 updates, and it reads just the last.
        before = [*self.initial["messages"], *self.script[:-3]]
        thread = Thread(open_sqlite(self.directory("saver")), {**self.initial, "messages": before})
        thread.grow(self.script[-3:])
        thread.close()
        for name, dress in (("delta", list), ("plain", plain)):
            progress(f"load: {self.count:,} updates, langgraph DeltaChannel ({name})")
            saver = open_sqlite(self.directory(name))
            saver.conn.execute("PRAGMA synchronous=OFF")
            loop = Loop(saver)
            loop.start({**self.initial, "messages": dress(self.initial["messages"])})
            loop.grow(dress(self.script))
            loop.close()
        if not ours.absent():
            progress(f"load: {self.count:,} updates, maos")
            async with ours.agents(ours.in_directory(self.directory("maos"))) as agents:
                created = await agents.create(ours.AGENT, self.initial)
                await ours.grow(agents, created.version, self.script)

    def subjects(self) -> list[Subject | Missing]:
        """The loads to be timed."""
        return [
            ours.subject(self.maos_whole, named("maos, whole", self.count)),
            Subject(named("SqliteSaver", self.count), self.sqlite_saver),
            Subject(named("DeltaChannel", self.count), self.delta("delta", characters_of_objects)),
            Subject(named("DeltaChannel, plain data", self.count), self.delta("plain", characters)),
            ours.subject(self.maos_lazy, named("maos, lazy", self.count)),
        ]

    async def sqlite_saver(self) -> Figures:
        """Connect, read the newest checkpoint."""
        with steady(collect=False):
            with Timer() as timer:
                saver = open_sqlite(self.directory("saver"))
                found = characters(newest(saver)["messages"])
            saver.conn.close()
        return self.checked(found, timer)

    def delta(self, name: str, count: Callable[[Sequence[Any]], int]) -> Callable[[], Awaitable[Figures]]:
        """Connect, let the graph (compiled before) rebuild the newest state."""

        async def run() -> Figures:
            with steady(collect=False):
                with Timer() as timer:
                    saver = open_sqlite(self.directory(name))
                    found = count(self._graph.newest(saver)["messages"])
                saver.conn.close()
            return self.checked(found, timer)

        return run

    async def maos_whole(self) -> Figures:
        """Open, read the newest state, touch every message of it."""
        store = ours.agents(ours.in_directory(self.directory("maos")))
        with steady(collect=False):
            with Timer() as timer:
                agents = await store.__aenter__()
                found = characters((await agents.get(ours.AGENT)).data["messages"])
            await store.__aexit__(None, None, None)
        return self.checked(found, timer)

    async def maos_lazy(self) -> Figures:
        """Open, read the head of the state and the last 50 messages."""
        store = ours.agents(ours.in_directory(self.directory("maos")))
        with steady(collect=False):
            with Timer() as timer:
                agents = await store.__aenter__()
                seen = await agents.peek(ours.AGENT, "messages", last=TAIL)
                found, step = seen.entries, seen.head["step"]
            await store.__aexit__(None, None, None)
        if found != self.tail or step != self.count:
            raise AssertionError("the lazy read is not the end of the whole state")
        return {TIME: timer.seconds * 1e3}

    def checked(self, found: int, timer: Timer) -> Figures:
        """The time of a load that found everything."""
        if found != self.wanted:
            raise AssertionError(f"{found} characters loaded, {self.wanted} written")
        return {TIME: timer.seconds * 1e3}


def named(system: str, count: int) -> str:
    """The name of a load in the table."""
    return f"{system}, {count:,}"


async def measure(scratch: Scratch, quick: bool) -> Report:
    """Both histories in one interleaved run, and the six goals."""
    stores = [Stores(scratch.root, count) for count in COUNTS]
    for store in stores:
        await store.build()
    subjects = [subject for store in stores for subject in store.subjects()]
    count, seconds = (15, 30.0) if quick else (41, math.inf)
    rounds = await interleave("load, open and read the newest state", subjects, count, seconds=seconds)
    return Report([rounds], rows(rounds))


def rows(rounds: Rounds) -> list[Row]:
    """Whole: how many times as fast as the peer. Lazy: its share of the peer's time."""
    found = []
    for n in COUNTS:
        whole, saver, delta = (named(name, n) for name in ("maos, whole", "SqliteSaver", "DeltaChannel"))
        found.append(rounds.row(f"load.{n}.whole_vs_sqlitesaver", saver, whole, TIME, ">= 1"))
        found.append(rounds.row(f"load.{n}.whole_vs_deltachannel", delta, whole, TIME, ">= 3"))
    few, many = (named("maos, lazy", n) for n in COUNTS)
    found.append(rounds.row("load.1000.lazy_vs_sqlitesaver", few, named("SqliteSaver", 1_000), TIME, "<= 0.3333"))
    found.append(rounds.row("load.lazy.flat_1000_to_10000", many, few, TIME, "<= 1.3"))
    return found
