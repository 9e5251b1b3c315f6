"""Graphs of trivial tasks in this process: what the scheduler adds to each, and how that grows.

Every task is recorded as begun and as finished, on disk, before another one builds on it. So it is with DBOS; prefect
sends what happened to its server in the background.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import ours
from benchmarks.measure import Figures, Missing, Report, Rounds, Row, Subject, Timer, interleave, steady
from benchmarks.peers import dbos_queue, prefect_flow
from benchmarks.scratch import Scratch

if TYPE_CHECKING:
    from maos.model.run import Run, TaskState
    from maos.runs.budgets import Purse
    from maos.runs.decisions import Outcome

AT_ONCE = 32
SHAPES = ("wide", "deep", "diamond")
COST = "{} us/task"
RATE = "{} tasks/s"


def needs(shape: str, count: int) -> list[list[int]]:
    """Which tasks each task of a graph needs, by number: none, the one before it, or one in the middle of all."""
    if shape == "wide":
        return [[] for _ in range(count)]
    if shape == "deep":
        return [[number - 1] if number else [] for number in range(count)]
    return [[], *([0] for _ in range(count - 2)), list(range(1, count - 1))]


class Functions:
    """A worker in this process: a task is a call."""

    def __init__(self) -> None:
        self.calls = 0

    async def work(self, run: Run, task: TaskState) -> Outcome:
        """Call the task."""
        from maos.runs.decisions import Outcome

        self.calls += 1
        return Outcome(result=task.name)

    async def check(self, run: Run, task: TaskState) -> Outcome:
        """No task has gates."""
        raise NotImplementedError

    complete = check

    def watch(self, purse: Purse) -> None:
        """Calls cost no money."""

    async def stop(self, run: Run, task: TaskState) -> None:
        """A call cannot be stopped, and need not be."""


async def execute(directory: Path, shape: str, count: int) -> float:
    """Seconds from the plan to the end of its run, in a new store."""
    import maos

    tasks: list[dict[str, Any]] = [
        {"name": f"t{number}", "task": "x", "needs": [f"t{need}" for need in wanted]}
        for number, wanted in enumerate(needs(shape, count))
    ]
    worker = Functions()
    async with maos.open(directory / f"{shape}.db") as m:
        with steady(collect=True), Timer() as timer:
            run = await m.runs.create({"tasks": tasks})
            run = await m.runs.execute(run.id, worker=worker, concurrency=AT_ONCE)
    assert (run.status, worker.calls) == ("completed", count)
    return timer.seconds


def of_ours(scratch: Scratch, count: int) -> Subject | Missing:
    """maos, with all shapes at one size."""

    async def run() -> Figures:
        with scratch.directory() as directory:
            taken = {shape: await execute(directory, shape, count) for shape in SHAPES}
        return _figures(taken, count)

    return ours.subject(run, _named(count))


def _figures(taken_s: dict[str, float], count: int) -> Figures:
    rates = {RATE.format(shape): count / seconds for shape, seconds in taken_s.items()}
    return rates | {COST.format(shape): seconds / count * 1e6 for shape, seconds in taken_s.items()}


def _named(count: int) -> str:
    return f"{ours.NAME}, {count:,} tasks"


def of_peer(scratch: Scratch, peer: Any, count: int) -> Subject | Missing:
    """A peer with all shapes, in a process of its own."""
    why = peer.absent()
    if why:
        return Missing(peer.NAME, why)

    async def run() -> Figures:
        with scratch.directory() as directory:
            taken = peer.execute(directory, {shape: needs(shape, count) for shape in SHAPES}, at_once=AT_ONCE)
        return _figures(taken, count)

    return Subject(peer.NAME, run)


def growth(rounds: Rounds, shape: str, sizes: list[int]) -> Row:
    """How much more a task costs in the largest graph than in the smallest."""
    id = f"scheduler.growth.{shape}"
    return rounds.row(id, _named(sizes[-1]), _named(sizes[0]), COST.format(shape), "<= 1.3")


async def measure(scratch: Scratch, quick: bool) -> Report:
    """Against the peers at one size, and alone at growing sizes."""
    count, sizes = (100, [10**3, 10**4]) if quick else (1_000, [10**3, 10**4, 10**5])
    peers = [dbos_queue, prefect_flow]
    beside = [of_ours(scratch, count), *(of_peer(scratch, peer, count) for peer in peers)]
    title = f"scheduler, {count:,} tasks, {AT_ONCE} at once"
    against = await interleave(title, beside, 3 if quick else 5, seconds=40.0 if quick else math.inf)
    alone = [of_ours(scratch, size) for size in sizes]
    grown = await interleave("scheduler, growing graphs", alone, 3 if quick else 5, seconds=30.0 if quick else math.inf)
    rows = [
        against.row(f"scheduler.{shape}.vs_{name}", _named(count), peer.NAME, RATE.format(shape), ">= 10")
        for shape in SHAPES
        for name, peer in (("dbos", dbos_queue), ("prefect", prefect_flow))
    ]
    return Report([against, grown], [*rows, *(growth(grown, shape, sizes) for shape in SHAPES)])
