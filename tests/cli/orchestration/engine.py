"""An engine in a process of its own, for tests of the commands that look at it: `engine.py DATABASE PLAN [RUN]`.

A plan of commands is done by agents. The tasks of others are done as the test says: a task `api` waits for the file
`api.end` in the current folder, whose content is its result, or the failure it has after `!`. The run's id is printed
first.
"""

import asyncio
import json
import sys
from pathlib import Path

import maos
from maos.clock import SystemClock
from maos.model.run import Run, TaskState
from maos.runs.budgets import Purse
from maos.runs.decisions import Outcome
from maos.runs.service import Runs


class Hands:
    """Does tasks when the test lets it."""

    def __init__(self) -> None:
        self._stopped: set[str] = set()

    async def work(self, run: Run, task: TaskState) -> Outcome:
        file = Path(f"{task.name}.end")
        while not file.exists():
            if task.name in self._stopped:
                return Outcome(failure="stopped")
            await asyncio.sleep(0.02)
        said = file.read_text()
        if said.startswith("!"):
            return Outcome(failure=said[1:].partition(":")[0], message=said[1:].partition(":")[2])
        return Outcome(result=said, cost_usd=0.5, tokens=1200)

    async def check(self, run: Run, task: TaskState) -> Outcome:
        return Outcome()

    async def complete(self, run: Run, task: TaskState) -> Outcome:
        return Outcome()

    def watch(self, purse: Purse) -> None:
        """Nothing here costs money."""

    async def stop(self, run: Run, task: TaskState) -> None:
        self._stopped.add(task.name)


async def main(database: str, plan: str, id: str = "") -> None:
    async with maos.open(database) as m:
        runs = Runs(m.journal, SystemClock(), m.agents, worker=Hands)
        if "command" in plan:
            runs = m.runs
        if not id:
            id = (await runs.create(json.loads(plan), request="Build the shop", folder=Path.cwd())).id
        print(id, flush=True)
        run = await runs.execute(id, source="manual" if not sys.argv[3:] else "daemon_restart")
        print(run.status, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
