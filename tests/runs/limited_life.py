"""A run whose first agent comes to a rate limit, to be killed: makes it, or goes on until it has ended.

python limited_life.py DATABASE FOLDER
"""

import asyncio
import sys
from pathlib import Path

import maos
from maos.clock import SystemClock
from maos.model.plan import Plan, Task
from maos.model.run import Run, TaskState
from maos.runs import scheduler
from maos.runs.budgets import Purse
from maos.runs.decisions import Outcome
from maos_testing.crash import ack

RESET_S = 0.5
STAGGER_S = 0.05
PLAN = Plan(
    tasks=[
        *(Task(name=name, task="x") for name in "abc"),
        Task(name="s1", command=["true"]),
        Task(name="s2", command=["true"], needs=["s1"]),
    ]
)


class Limited:
    """A worker in this process: the first agent that works reaches the limit of its kind, once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def work(self, run: Run, task: TaskState) -> Outcome:
        limit = self._folder / "limit"
        if task.name == "a" and not limit.exists():
            limit.write_text(str(SystemClock().now_us() + int(RESET_S * 1e6)))
        if task.name == "a" and task.attempts == 1:
            reset_us = int(limit.read_text())
            return Outcome(failure="rate_limited", reset_us=reset_us, at_us=reset_us - int(RESET_S * 1e6))
        return Outcome(result=task.name)

    async def check(self, run: Run, task: TaskState) -> Outcome:
        raise NotImplementedError

    complete = check

    def watch(self, purse: Purse) -> None:
        """Nothing here costs money."""

    async def stop(self, run: Run, task: TaskState) -> None:
        """Nothing of it lasts."""


async def live(database: str, folder: Path) -> Run:
    scheduler.STAGGER_S = STAGGER_S
    async with maos.open(database, home=folder / "home") as m:
        known = [run async for run in m.runs.all()]
        run = known[0] if known else await m.runs.create(PLAN, folder=folder, options={"kind": "claude"})
        if run.status != "completed":
            run = await m.runs.execute(run.id, worker=Limited(folder), concurrency=2)
        ack(run.status)
        return run


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], Path(sys.argv[2])))
