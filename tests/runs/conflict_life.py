"""A run of two tasks that change the same file, in a git repository: makes it, or goes on until it has ended.

python conflict_life.py DATABASE HOME REPOSITORY
"""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import maos
from maos import workspaces
from maos.app import Maos
from maos.journal.codec import Event
from maos.model.plan import Plan, Task
from maos.model.run import Run
from maos.runs.service import Runs
from maos.runs.worker import AgentWorker
from maos_testing.crash import ack

GIT = ["git", "-c", "user.name=x", "-c", "user.email=x@x"]


def repository(folder: Path) -> Path:
    """A repository with one file of three lines."""
    place = folder / "repository"
    if not (place / ".git").exists():
        place.mkdir(parents=True, exist_ok=True)
        (place / "f.txt").write_text("one\ntwo\nthree\n")
        subprocess.run([*GIT, "init", "-q"], cwd=place, check=True)
        subprocess.run([*GIT, "add", "."], cwd=place, check=True)
        subprocess.run([*GIT, "commit", "-q", "-m", "x"], cwd=place, check=True)
    return place


def shown(repository: Path, commit: str, name: str = "f.txt") -> str:
    """A file as a commit has it."""
    command = [*GIT, "show", f"{commit}:{name}"]
    return subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True).stdout


def change(word: str, into: Path | None = None) -> str:
    """Change the second line, and write a file of one's own; not before the work of the first task is merged."""
    wait = f"until grep -q a {into}/f.txt; do sleep 0.02; done; " if into is not None else ""
    return f"{wait}printf 'one\\n{word}\\nthree\\n' > f.txt; echo {word} > {word}.txt"


async def order(m: Maos, home: Path, repository: Path, tasks: Sequence[Task] = (), **more: str) -> Run:
    """A run with a workspace: `a`, then what else is given, or `b` in the way of `a`; and `c`, which needs `b`."""
    into = await workspaces.prepare(repository, "the-run", root=home / "workspaces")
    given = [Task(name="a", command=["sh", "-c", change("a")])]
    given += tasks or [Task(name="b", command=["sh", "-c", change("b", into.path)])]
    given.append(Task(name="c", command=["sh", "-c", "tr '\\n' ' ' < f.txt"], needs=["b"]))
    options = {"workspace": into.to_data(), "kind": "shell"}
    return await m.runs.create(Plan(tasks=given, **more), folder=repository, options=options)


class Person:
    """Somebody who answers every question a run asks, one answer after the other."""

    def __init__(self, runs: Runs, *answers: str) -> None:
        self._runs = runs
        self._answers = list(answers)
        self.asked: list[str] = []
        self.contexts: list[str] = []
        self._answering: set[asyncio.Task[None]] = set()

    def look(self, run: Run, events: Sequence[Event]) -> None:
        """A listener of the run."""
        for question in run.open_questions:
            if question.id not in self.asked:
                self.asked.append(question.id)
                self.contexts.append(f"{question.question}\n{question.context}\n{question.choices}")
                answer = self._runs.answer(run.id, question.id, self._answers.pop(0))
                self._answering.add(asyncio.create_task(answer))

    async def execute(self, run: Run, worker: AgentWorker | None = None) -> Run:
        """The run, until it has ended, with this person at hand."""
        async with asyncio.timeout(25):
            done = await self._runs.execute(run.id, worker=worker, listener=self.look)
        await asyncio.gather(*self._answering)
        return done


async def live(database: str, home: Path, repository: Path) -> Run:
    async with maos.open(database, home=home) as m:
        known = [run async for run in m.runs.all()]
        run = known[0] if known else await order(m, home, repository)
        if run.status != "completed":
            person = Person(m.runs, "own")
            person.look(run, ())
            run = await person.execute(run)
        ack(run.status)
        return run


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
