"""A store that grows from 10^3 to 10^6 events: append and load should stay flat, disk linear."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from itertools import cycle, islice, pairwise
from pathlib import Path
from shutil import rmtree

from benchmarks import ours
from benchmarks.append import GROUP, RATE, Append, append_all
from benchmarks.measure import Figures, Missing, Report, Row, Subject, Timer, interleave, progress, steady
from benchmarks.peers import apsw_group
from benchmarks.scratch import Scratch, size
from benchmarks.workload import Note, notes, state

WRITERS = 64
BURST = 6_000
COST = "append us/event"
LOAD = "load ms"
Opener = Callable[[Path], AbstractAsyncContextManager[Callable[[str], Append]]]


@dataclass
class Grown:
    """A store filled to a number of events; it is built anew once the measurements have doubled it."""

    directory: Path
    events: int
    open: Opener
    pool: list[Note]
    prepare: Callable[[Path], Awaitable[None]] | None = None
    load: Callable[[Path], Awaitable[float]] | None = None
    now: int = 0
    bytes: int = 0
    burst: list[Note] = field(init=False)

    def __post_init__(self) -> None:
        self.burst = list(islice(cycle(self.pool), BURST))

    async def build(self) -> None:
        """Fill the store through the same path that is measured, and weigh its files once it is closed."""
        rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir()
        if self.prepare is not None:
            await self.prepare(self.directory)
        events = list(islice(cycle(self.pool), self.events))
        await append_all(self.open(self.directory), WRITERS, events)
        self.now = self.events
        self.bytes = size(self.directory)

    async def run(self) -> Figures:
        """One burst of appends at this size and, where the store holds a state, one load of it."""
        if self.now > 2 * self.events:
            await self.build()
        figures = {}
        if self.load is not None:
            figures[LOAD] = await self.load(self.directory)
        done = await append_all(self.open(self.directory), WRITERS, self.burst)
        self.now += BURST
        return {COST: 1e6 / done[RATE], **figures}


async def create_state(directory: Path) -> None:
    """Give a store an agent with a state of 10 KB."""
    async with ours.agents(ours.in_directory(directory)) as agents:
        await agents.create(ours.AGENT, state(10))


async def load_state(directory: Path) -> float:
    """Milliseconds to open the store and read that state."""
    store = ours.agents(ours.in_directory(directory))
    with steady(collect=False):
        with Timer() as timer:
            agents = await store.__aenter__()
            found = len((await agents.get(ours.AGENT)).data["messages"])
        await store.__aexit__(None, None, None)
    assert found == 10
    return timer.seconds * 1e3


def named(system: str, events: int) -> str:
    """The name of a store in the table."""
    return f"{system}, {events:,} events"


def bytes_per_event(stores: list[Grown]) -> list[float]:
    """What an event adds to the files, decade by decade; fixed parts such as a dictionary drop out."""
    return [(b.bytes - a.bytes) / (b.events - a.events) for a, b in pairwise(stores)]


async def measure(scratch: Scratch, quick: bool) -> Report:
    """Stores of every size, measured in turn, and the three goals."""
    sizes = [10**power for power in range(3, 6 if quick else 7)]
    pool = notes(20_000)
    maos = [Grown(scratch.root / f"maos-{n}", n, ours.journal_in, pool, create_state, load_state) for n in sizes]
    bare = [Grown(scratch.root / f"bare-{n}", n, apsw_group.group, pool) for n in sizes]
    for store in bare if ours.absent() else [*bare, *maos]:
        progress(f"growth: filling {store.directory.name}")
        await store.build()
    subjects: list[Subject | Missing] = []
    for ours_of_size, bare_of_size in zip(maos, bare, strict=True):
        subjects.append(Subject(named(GROUP, bare_of_size.events), bare_of_size.run))
        subjects.append(ours.subject(ours_of_size.run, named(ours.NAME, ours_of_size.events)))
    count, seconds = (9, 50.0) if quick else (25, math.inf)
    rounds = await interleave("growth, stores of growing size", subjects, count, seconds=seconds)
    first, last = named(ours.NAME, sizes[0]), named(ours.NAME, sizes[-1])
    disk = Row("growth.disk.linear", None, "<= 1.2", note=f"not measured: {ours.absent()}")
    if not ours.absent():
        per_event = bytes_per_event(maos)
        disk = Row(disk.id, max(per_event) / min(per_event), disk.goal)
    rows = [
        rounds.row("growth.append.flat", last, first, COST, "<= 1.3"),
        rounds.row("growth.load.flat", last, first, LOAD, "<= 1.3"),
        disk,
    ]
    return Report([rounds], rows)
