"""What maos adds while ten agents work, and what it keeps: of an orchestration, an agent, a message, and so on.

The goals are the figures that the first design of such a tool promised of itself; ours are to be lower on every line.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from statistics import median

import maos
from benchmarks import coder
from benchmarks.measure import Figures, Report, Row, Subject, Timer, interleave
from benchmarks.scratch import REPOSITORY, Scratch, end_processes, size
from benchmarks.workload import notes

AGENTS = 10
RATE = 10
STEPS_AN_HOUR = 300
"""Of one agent: some words and the use of a tool every twelve seconds."""
TALK = ["sh", "-c", "for n in 1 2 3 4 5 6 7 8 9 10; do echo $n: a line of some length, as agents print them; done"]
WAIT = ["sleep", "600"]
KB = 1_000


def ten_agents(directory: Path, seconds: float) -> Figures:
    """One engine and ten agents; bytes are what its database grows by, transcripts included."""
    coder.install(directory / "bin", RATE)
    home, database = directory / "home", directory / "maos.db"
    argv = [sys.executable, "-m", "benchmarks.overhead_engine", str(database), str(home), str(AGENTS), str(seconds)]
    env = {"HOME": str(directory), "PATH": f"{directory / 'bin'}:/usr/bin:/bin", "ANTHROPIC_API_KEY": "none"}
    try:
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY, env=env) as engine:
            assert engine.stdout is not None
            engine.stdout.readline()
            before = bytes_of(database)
            figures: Figures = json.loads(engine.stdout.readline())
            step_bytes = (bytes_of(database) - before) / figures.pop("steps")
    finally:
        end_processes(home)
    return {**figures, "KB a step": step_bytes / KB, "MB an hour of one": step_bytes * STEPS_AN_HOUR / KB / KB}


def bytes_of(database: Path) -> int:
    """How large a database is that others write to, without what its log holds twice."""
    with closing(sqlite3.connect(database)) as connection:
        (pages,), (page_bytes,) = (
            connection.execute(f"PRAGMA {what}").fetchone() for what in ("page_count", "page_size")
        )
        return int(pages * page_bytes)


async def kept(directory: Path, work: Callable[[maos.Maos, Path], Awaitable[int]]) -> float:
    """The KB that each of the things that `work` makes leaves behind, beyond what the first one needs to be there."""
    home, files = directory / "home", directory / "files"
    files.mkdir()
    async with maos.open(directory / "maos.db", home=home) as m:
        await work(m, files)
    before = size(home) + (directory / "maos.db").stat().st_size
    async with maos.open(directory / "maos.db", home=home) as m:
        count = await work(m, files)
    return (size(home) + (directory / "maos.db").stat().st_size - before) / count / KB


async def orchestrations(m: maos.Maos, files: Path) -> int:
    """Runs of three agents that talk a little."""
    tasks = [{"name": name, "command": TALK} for name in ("analyse", "build", "check")]
    for task, needed in zip(tasks[1:], tasks, strict=False):
        task["needs"] = [str(needed["name"])]
    for _ in range(10):
        run = await m.runs.create({"tasks": tasks}, folder=files, options={"in_place": True})
        await m.runs.execute(run.id)
    return 10


async def agents(m: maos.Maos, files: Path) -> int:
    """Agents that talk a little."""
    for _ in range(20):
        running = await m.agents.start(argv=TALK, cwd=files, in_place=True)
        await running.wait()
    return 20


async def messages(m: maos.Maos, files: Path) -> int:
    """Messages of a sentence or two (200 bytes), delivered and acknowledged."""
    texts = [note.data["text"][:200] for note in notes(500)]
    for text in texts:
        await m.bus.send("one", "other", text, type="discovery")
    async with m.bus.receive("other") as inbox:
        for _ in texts:
            delivery = await anext(inbox)
            await delivery.ack()
    return len(texts)


async def checkpoints(m: maos.Maos, files: Path) -> int:
    """Checkpoints of an agent in a worktree of a repository of 100 files, one of which has changed by some lines."""
    if not (files / ".git").exists():
        texts = [note.data["text"] + "\n" for note in notes(1_000)]
        for number in range(100):
            (files / f"file{number}.txt").write_text("".join(texts[number * 10 : number * 10 + 10]))
        git = ["git", "-C", str(files), "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
        for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "begin"]):
            subprocess.run([*git, *command], check=True)
    running = await m.agents.start(argv=WAIT, cwd=files)
    worktree = Path(running.attempt.workspace["path"])
    for number in range(50):
        with (worktree / f"file{number}.txt").open("a") as file:
            file.write(f"{number}: a line more\n")
        await running.checkpoint(f"save-{number}")
    await running.stop(grace_s=1)
    await running.wait()
    return 50


async def bus_times(directory: Path) -> Figures:
    """One message saved, everything that waits for ten agents restored, and the bus shut down, in milliseconds."""
    names = [f"agent-{number}" for number in range(AGENTS)]
    texts = [note.data["text"] for note in notes(500)]
    saved = []
    async with maos.open(directory / "maos.db") as m:
        for name in names:
            await m.bus.subscribe(name, "news")
        for number in range(1_000):
            with Timer() as timer:
                await m.bus.send("one", names[number % len(names)], texts[number % len(texts)])
            saved.append(timer.seconds)
    with Timer() as restoring:
        m = await maos.open(directory / "maos.db")
        receivers = [m.bus.receive(name) for name in names]
        first = await asyncio.gather(*(anext(each) for each in receivers))
        topics = await asyncio.gather(*(m.bus.subscriptions(name) for name in names))
        talks = await m.bus.talks()
    if not (all(each.tries == 1 for each in first) and topics == [["news"]] * AGENTS and len(talks) == AGENTS):
        raise RuntimeError("not everything was restored")
    with Timer() as closing_down:
        await m.close()
    times = {"save": median(saved), "restore": restoring.seconds, "shut down": closing_down.seconds}
    return {f"ms to {name}": seconds * 1e3 for name, seconds in times.items()}


async def measure(scratch: Scratch, quick: bool) -> Report:
    """Two tables: the processes, and what is kept."""
    seconds, rounds = (20.0, 2) if quick else (120.0, 3)

    async def work() -> Figures:
        with scratch.directory() as directory:
            return ten_agents(directory, seconds)

    async def keep() -> Figures:
        found = {}
        for each in (orchestrations, agents, messages, checkpoints):
            with scratch.directory() as directory:
                found[f"KB {each.__name__[:-1]}"] = await kept(directory, each)
        return found

    async def bus() -> Figures:
        with scratch.directory() as directory:
            return await bus_times(directory)

    title = f"overhead, {AGENTS} agents that print {RATE} lines/s"
    working = await interleave(title, [Subject("maos", work)], rounds)
    keeping = await interleave("overhead, what is kept of one", [Subject("maos", keep)], 1)
    telling = await interleave("overhead, the bus with 1,000 messages for 10 agents", [Subject("maos", bus)], 5)

    def row(name: str, figure: str, goal: str) -> Row:
        table = next(each for each in (working, keeping, telling) if figure in each.figures["maos"][0])
        return Row.of(f"overhead.{name}", [each[figure] for each in table.figures["maos"]], goal)

    rows = [
        row("engine.percent", "engine % of a core", "<= 2"),
        row("engine.mb", "engine resident MB", "<= 60"),
        row("hour.mb", "MB an hour of one", "<= 2"),
        row("orchestration.kb", "KB orchestration", "<= 100"),
        row("agent.kb", "KB agent", "<= 50"),
        row("message.kb", "KB message", "<= 1"),
        row("checkpoint.kb", "KB checkpoint", "<= 500"),
        row("save.ms", "ms to save", "<= 5"),
        row("restore.ms", "ms to restore", "<= 100"),
        row("shutdown.ms", "ms to shut down", "<= 50"),
    ]
    return Report([working, keeping, telling], rows)
