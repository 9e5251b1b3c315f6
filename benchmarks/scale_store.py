"""A database with as many runs as are wanted, as one has it after a year: one real run and one real workflow run,
repeated through the journal's own append.

    python -m benchmarks.scale_store DATABASE RUNS [FOLDER]

The runs are spread over a year by the clock that the store is given. Each has five agents that print, report what they
found and send a message; every fiftieth has failed, and the last OPEN ones are paused with a question that is open.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from maos import Maos
    from maos.engine.recorder import Kind

TIME = re.compile(rb'(_us":)(1\d{15})')
YEAR_US = 365 * 86_400 * 1_000_000
OPEN = 3
FAILED_EVERY = 50
BATCH_RUNS = 8
WORKFLOW_EVERY = 10
"""One workflow run for so many runs."""
PRINTS = (
    "i=0; while [ $i -lt 40 ]; do i=$((i + 1)); echo building module $i of 40, without warnings; sleep 0.05; done; "
    "echo found: module 7 is slow; echo {name} > {name}.txt"
)


class PastClock:
    """A clock that the maker of the database moves through the year."""

    def __init__(self) -> None:
        self.offset_us = YEAR_US

    def now_us(self) -> int:
        """The time of day, so much earlier."""
        return time.time_ns() // 1000 - self.offset_us

    def steady_us(self) -> int:
        """A time that only grows."""
        return time.monotonic_ns() // 1000


class Example:
    """Everything that was recorded of one run, its agents and their messages."""

    def __init__(self, id: str, streams: dict[str, list[tuple[str, bytes]]]) -> None:
        self.id = id
        self.streams = streams

    @classmethod
    async def read(cls, m: Maos, id: str) -> Example:
        """Read it from the journal, once it has ended."""
        found: dict[str, list[tuple[str, bytes]]] = {}
        async for stream in m.journal.streams():
            if id in stream:
                found[stream] = [(record.type, record.json) async for record in m.journal.read(stream)]
        return cls(id, found)

    @property
    def events(self) -> int:
        """How many events it has."""
        return sum(map(len, self.streams.values()))


async def fill(target: str | Path, runs: int, folder: Path) -> int:
    """Make the database; return how many events it has."""
    import maos

    clock = PastClock()
    async with maos.open(target, clock=clock, home=folder / "home") as m:
        repository = _repository(folder / "project")
        done = await Example.read(m, await _run(m, repository, "r-done00", gate=False))
        failed = await Example.read(m, await _run(m, repository, "r-fail00", gate=False, fails=True))
        asks = await Example.read(m, await _run(m, repository, "r-asks00", gate=True))
        flow = await Example.read(m, await _workflow(m))
        batch: list[tuple[Example, str]] = []
        for number in range(runs):
            clock.offset_us = min(clock.offset_us, YEAR_US * (runs - number) // (runs + 1))
            example = asks if number >= runs - OPEN else failed if number % FAILED_EVERY == 1 else done
            batch.append((example, f"r-{number:06x}"))
            if number % WORKFLOW_EVERY == 0:
                batch.append((flow, f"w-{number:06x}"))
            if len(batch) >= BATCH_RUNS or number == runs - 1:
                await _append(m, batch, clock.offset_us)
                batch = []
        return await m.journal.head()


async def _append(m: Maos, batch: Sequence[tuple[Example, str]], earlier_us: int) -> None:
    from maos.journal.journal import Append

    decode, kinds = _decoders(), _kinds()
    appends, documents = [], []

    def moved(found: re.Match[bytes]) -> bytes:
        return b"%s%d" % (found[1], int(found[2]) + YEAR_US - earlier_us)

    for example, id in batch:
        old, new = example.id.encode(), id.encode()
        for stream, recorded in example.streams.items():
            events = [decode[type](TIME.sub(moved, body.replace(old, new))) for type, body in recorded]
            name = stream.replace(example.id, id)
            appends.append(Append(name, events))
            if (kind := kinds.get(name.partition("/")[0])) is not None:
                fold = msgspec.convert({"id": name.partition("/")[2]}, kind.fold)
                for event in events:
                    fold.apply(event)
                fold.version = len(events)
                documents.append(kind.keep(fold, packed=recorded[-1][0] in kind.ends))
    await m.journal.append_all(appends, documents=documents)


@cache
def _decoders() -> dict[str, Callable[[bytes], Any]]:
    from maos.journal.codec import EventType
    from maos.model.events import EVENTS

    return {name: EventType.of(each).decode for name, each in EVENTS.items()}


@cache
def _kinds() -> dict[str, Kind[Any]]:
    from maos.engine.streams import ATTEMPT, RUN, WORKFLOW_RUN

    return {"run": RUN, "attempt": ATTEMPT, "workflow": WORKFLOW_RUN}


def _repository(path: Path) -> Path:
    path.mkdir(parents=True)
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x"]
    subprocess.run([*git, "init", "-q"], cwd=path, check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], cwd=path, check=True)
    return path


async def _run(m: Maos, folder: Path, id: str, *, gate: bool, fails: bool = False) -> str:
    tasks: list[dict[str, Any]] = [
        {"name": name, "command": ["sh", "-c", PRINTS.format(name=name)]} for name in ("api", "docs", "model", "page")
    ]
    needs = [task["name"] for task in tasks]
    tasks.append({"name": "release", "command": ["false" if fails else "true"], "needs": needs})
    if gate:
        tasks[-1]["gates"] = [{"person": "May it be released?"}]
    plan = {"tasks": tasks, "request": "Release it, with tests and a page"}
    await m.runs.start(plan, folder=folder, id=id)
    executing = asyncio.create_task(m.runs.execute(id))
    if gate:
        while not (await m.runs.get(id)).questions:
            await asyncio.sleep(0.05)
        await m.bus.send("person", f"{id}.release", "It may wait.")
        await m.runs.pause(id)
    await executing
    return id


async def _workflow(m: Maos) -> str:
    import maos

    @maos.step
    def price(item: str) -> int:
        return len(item)

    @maos.workflow(name="order")
    async def order(items: list[str]) -> int:
        return sum([await price(item) for item in items])

    await m.workflows.run(order, ["apples", "pears", "plums"], id="w-order0")
    return "w-order0"


if __name__ == "__main__":
    given = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        print(asyncio.run(fill(given[0], int(given[1]), Path(given[2]) if given[2:] else Path(scratch))))
