"""A run of six tasks that write to each other and one of which asks a person, carried out in lives that are killed.

    python -m tests.runs.talking_life DATABASE SCHEMA MARK FOLDER RUN…

Makes the runs or resumes them, until they have ended.

The tasks are done in the engine's own process, so what they do outside is what counts it: a task's effect is a line of
FOLDER/RUN.effects, named by the task and the number under which its beginning was recorded, as an agent's process is.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import maos
from maos.app import Maos
from maos.bus.receiver import MessageExpired
from maos.clock import SystemClock
from maos.engine import ownership
from maos.model.message import Message
from maos.model.plan import Plan, Task
from maos.model.run import Run, TaskState, agent_name
from maos.runs.budgets import Purse
from maos.runs.decisions import Outcome
from maos.runs.service import Runs

NEEDS = {"a": "", "b": "a", "c": "a", "d": "b c", "e": "d", "f": "d"}
ASKS = "c"
QUESTION, ANSWER = "Which colour?", "blue"
VISIBILITY_S = 0.3


def plan() -> Plan:
    return Plan(tasks=[Task(name=name, task=f"do {name}", needs=needs.split()) for name, needs in NEEDS.items()])


def expected(name: str) -> list[str]:
    """What a task is told, whoever dies: by those it needs, by the first one to all, and by the person it asked."""
    told = [f"{need} is done" for need in NEEDS[name].split()]
    told += ["a found gold"] if name != "a" else []
    return sorted(told + ([f"Answer to your question {QUESTION!r}: {ANSWER}"] if name == ASKS else []))


class Outside:
    """What the engine's death does not touch: lines of a file, each written once however often it is asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def lines(self) -> list[str]:
        return self._path.read_text().splitlines() if self._path.exists() else []

    def note(self, line: str) -> None:
        with self._path.open("a") as file:
            file.write(f"{line}\n")

    def do(self, what: str) -> None:
        if what not in self.lines():
            self.note(what)


class Hands:
    """Does a task, or goes on with one that another engine began."""

    def __init__(self, m: Maos, runs: Runs, folder: Path) -> None:
        self._m = m
        self._runs = runs
        self._folder = folder

    def _outside(self, run: Run, what: str) -> Outside:
        return Outside(self._folder / f"{run.id}.{what}")

    async def work(self, run: Run, task: TaskState) -> Outcome:
        name, agent = task.name, agent_name(run.id, task.name)
        self._outside(run, "begun").note(f"{name} {os.getpid()}")
        if name == ASKS:
            await self._runs.ask(run.id, QUESTION, key="q-colour", asked_by=agent, choices=["red", ANSWER])
        told = await self._hear(run, name, agent)
        self._outside(run, "effects").do(f"{name} {task.attempts}")
        if name == "a":
            await self._m.bus.broadcast(agent, run.id, "a found gold", type="discovery", key=f"{run.id}-gold")
        for other in (other for other, needs in NEEDS.items() if name in needs.split()):
            to = agent_name(run.id, other)
            await self._m.bus.send(agent, to, f"{name} is done", type="coordination", key=f"{run.id}-{name}-{other}")
        return Outcome(result=f"{name} was told: {'; '.join(sorted(told))}", cost_usd=0.5, tokens=10)

    async def _hear(self, run: Run, name: str, agent: str) -> list[str]:
        """Take in all that is meant for a task: noted outside under its id, then acknowledged."""
        noted = self._outside(run, f"{name}.told")
        async with self._m.bus.receive(agent, visibility_s=VISIBILITY_S, tries_max=50) as receiver:
            while not await self._has_all(noted, name, agent):
                delivery = await anext(receiver)
                noted.do(_line(delivery.message))
                with contextlib.suppress(MessageExpired):  # this process was too slow: it is delivered again
                    await delivery.ack()
        return texts(noted)

    async def _has_all(self, noted: Outside, name: str, agent: str) -> bool:
        if len(noted.lines()) < len(expected(name)):
            return False
        return not [each async for each in self._m.bus.waiting(agent)]

    async def check(self, run: Run, task: TaskState) -> Outcome:
        raise AssertionError("no task has a gate")

    complete = check

    def watch(self, purse: Purse) -> None:
        """Nothing here costs money."""

    async def stop(self, run: Run, task: TaskState) -> None:
        raise AssertionError("nobody pauses it")


def _line(message: Message) -> str:
    return f"{message.id} {message.text}"


def texts(noted: Outside) -> list[str]:
    return [line.partition(" ")[2] for line in noted.lines()]


async def live(database: str, schema: str, mark: str, folder: Path, ids: Sequence[str]) -> None:
    """Make the runs or go on with them, until they have ended."""
    more: dict[str, Any] = {"schema": schema, "mark_path": Path(mark)} if schema else {}
    async with maos.open(database, **more) as m:
        runs = Runs(m.journal, SystemClock(), m.agents, worker=lambda: hands, lease_s=2.0)
        hands = Hands(m, runs, folder)

        async def go_on(id: str) -> None:
            try:
                await runs.get(id)
            except maos.NotFound:
                await runs.create(plan(), request="paint it", options={"kind": "shell"}, id=id)
            await runs.execute(id, concurrency=3)

        await asyncio.gather(*map(go_on, ids))


if __name__ == "__main__":
    ownership.CLAIM_S = 1.0  # whoever dies between claiming and recording it is waited for as long
    database, schema, mark, folder, *runs = sys.argv[1:]
    asyncio.run(live(database, schema, mark, Path(folder), runs))
