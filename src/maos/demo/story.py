"""The course of the demonstration: start a run, kill the engine, answer a question, resume, merge.

Everything is done by commands that a person could type. This module types them, and reads the feed of the run.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from maos.app import Maos
from maos.demo import sample
from maos.demo.folder import DemoEngine, DemoFailed, DemoFolder, DemoRecord, maos
from maos.model.events.facts import Line
from maos.model.run import agent_name
from maos.runs.feed import AgentOutput, MessageUpdate, RunFeed, Update

PAUSE_S = 0.15
"""How long an agent works at a line."""
LOOK_S = 0.1
STEP_S_MAX = 90.0
"""How long one part of the story may take on the slowest machine."""
LINES_MIN = 12
MESSAGES_MIN = 3
UNRECORDED_MIN = 12
"""How much of each must be there before it is interesting."""
WATCH_S_MAX = 3.0
LOG_LINES_SHOWN = 3


class StoryView(Protocol):
    """Where the story is rendered: the live view of its run."""

    def report(self, text: str, style: str = "dim") -> None:
        """Print a line."""

    def update(self, update: Update) -> None:
        """Render an update of the feed."""

    def refresh(self) -> None:
        """Draw the engine and the counts again."""


class Story:
    """One demonstration in one folder."""

    def __init__(self, folder: DemoFolder, view: StoryView) -> None:
        self.folder = folder
        self.engine = ""
        """The engine and its state, for people."""
        self.recorded: Counter[str] = Counter()
        """How many lines of each agent are in the journal."""
        self._view = view
        self._chapters = 0
        self._log = folder.folder
        self._process: Process | None = None
        self._feed: RunFeed | None = None
        self._messages = 0

    async def play(self) -> DemoRecord:
        """Play it, from an empty folder to merged work; no process of it is left, whatever happens."""
        self._view.report("maos demo · three agents, one kill -9, nothing lost", "bold")
        self._view.report("No key, no network: the agents are scripts, and everything else is real.")
        self._view.report(f"All of it is in {self.folder.folder}")
        base = await self._prepare()
        async with self.folder.open(create=True) as m:
            try:
                return await self._play(m, base)
            finally:
                await asyncio.shield(asyncio.create_task(self._clear_away(m)))

    async def _play(self, m: Maos, base: str) -> DemoRecord:
        self._chapter("Three agents begin", "Each in a git worktree of its own. They talk over the bus, through maos.")
        first = await self._start_engine("run", "-f", "plan.toml", "--cwd", "till", "--auto")
        await self._until(m, self._is_interesting, "the agents to be at work")
        self._say(f"The developer asks: {sample.QUESTION}")

        self._chapter("kill -9", "The engine dies while they work. Nothing is flushed, no process is warned.")
        self._say(f"$ kill -9 {first.pid}", "found")
        os.kill(first.pid, signal.SIGKILL)
        engines = [DemoEngine(first.pid, await first.wait())]
        self._process, self.engine = None, f"killed · pid {first.pid} records no more"
        at_kill = self.folder.printed()
        until_s = time.monotonic() + WATCH_S_MAX
        while time.monotonic() < until_s and self.folder.printed() - at_kill < UNRECORDED_MIN:
            await self._look(m)
        self._say(f"The agents did not notice: {self._counted()}.")
        self._say("What they print is kept for the next engine. What would resuming do?")
        await self._run("resume", "--dry-run")
        self._say("The question can be answered without an engine:")
        await self._run("answer", next(iter(self._questions())), sample.ANSWER)
        await self._until(m, self._is_answered, "the answer to arrive")
        self._say(f"The developer has its answer and the analyst is done: {self._counted()}.")

        self._chapter("maos resume", "A new engine takes over. Agents that live are re-attached, not restarted.")
        at_resume = self.folder.printed()
        second = await self._start_engine("resume", self._run_id)
        await self._until(m, lambda: second.returncode is not None, "the agents to finish")
        engines.append(DemoEngine(second.pid, await second.wait()))
        self._process, self.engine = None, f"exited · pid {second.pid}, all tasks are done"
        await self._look(m)
        if second.returncode != 0:
            raise DemoFailed(f"`maos resume` exited with {second.returncode}: {self._end_of_log()}")
        self._say(f"Every line is there: {self._counted()}.")

        self._chapter("Take the work", "So far nothing of it is in the repository itself.")
        await self._run("merge", self._run_id)
        record = DemoRecord(
            run=self._run_id, base=base, engines=engines, lines_at_kill=at_kill, lines_at_resume=at_resume
        )
        self.folder.keep(record)
        return record

    @property
    def _run_id(self) -> str:
        return "" if self._feed is None else self._feed.run.id

    def _questions(self) -> list[str]:
        return [] if self._feed is None else list(self._feed.run.questions)

    def _counted(self) -> str:
        return f"{self.folder.printed()} lines printed, {self.recorded.total()} in the journal"

    def _is_interesting(self) -> bool:
        busy = all(len(self.folder.noted(agent, "line")) >= LINES_MIN for agent in ("analyst", "tester"))
        return busy and self._messages >= MESSAGES_MIN and bool(self._questions())

    def _is_answered(self) -> bool:
        return bool(self.folder.noted("developer", "answer") and self.folder.noted("analyst", "ended"))

    def _chapter(self, title: str, text: str) -> None:
        self._chapters += 1
        for line, style in (("", ""), (f"{self._chapters}  {title}", "bold"), (f"   {text}", "")):
            self._view.report(line, style)

    def _say(self, text: str, style: str = "") -> None:
        self._view.report(f"   {text}", style)

    # --- steps -----------------------------------------------------------------------------------------------

    async def _prepare(self) -> str:
        """Make the sample repository, with one commit, and the plan; return the commit's id."""
        folder = self.folder
        for path in (folder.repository, folder.notes, folder.home):
            path.mkdir()
        self._chapter("A sample repository", "The code of a till, one commit, and a plan for three agents.")
        for name, text in sample.FILES.items():
            file = folder.repository / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        plan = sample.plan(sys.executable, str(folder.notes), PAUSE_S)
        (folder.folder / "plan.toml").write_text(plan, encoding="utf-8")
        await folder.git("init", "--quiet", "--initial-branch=main")
        await folder.git("add", "--all")
        await folder.git("commit", "--quiet", "--message", "A till")
        return (await folder.git("rev-parse", "HEAD")).decode().strip()

    async def _start_engine(self, *arguments: str) -> Process:
        self._say(f"$ maos {' '.join(arguments)}", "found")
        self._log = self.folder.folder / f"{arguments[0]}.log"
        with self._log.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *maos(*arguments), cwd=self.folder.folder, env=self.folder.environment(),
                stdin=DEVNULL, stdout=log, stderr=STDOUT,
                start_new_session=True,  # Ctrl+C is for this process, which ends the engine and its agents
            )  # fmt: skip
        self._process, self.engine = process, f"pid {process.pid} records"
        return process

    async def _run(self, *arguments: str) -> None:
        """Run a command, and render its output."""
        self._say(f"$ maos {shlex.join(arguments)}", "found")
        status, printed = await self.folder.run(*maos(*arguments))
        text = printed.decode(errors="replace").strip()
        if status != 0:
            raise DemoFailed(f"`maos {arguments[0]}` exited with {status}: {text}")
        for line in text.splitlines() if arguments[0] != "answer" else ():
            self._say(f"  {line}", "dim")

    async def _until(self, m: Maos, reached: Callable[[], bool], what: str) -> None:
        """Wait until something is so; an engine that exits before is a failure."""
        deadline_s = time.monotonic() + STEP_S_MAX
        await self._look(m)
        while not reached():
            if self._process is not None and self._process.returncode is not None:
                raise DemoFailed(f"the engine exited by itself: {self._end_of_log()}")
            if time.monotonic() > deadline_s:
                raise DemoFailed(f"waited {STEP_S_MAX:.0f} s in vain for {what}")
            await self._look(m)

    async def _look(self, m: Maos) -> None:
        """Read what was recorded since the last time, and render it."""
        await asyncio.sleep(LOOK_S)
        if self._feed is None:
            async for run in m.runs.all():
                self._feed = m.runs.follow(run.id, from_start=True)
        for update in () if self._feed is None else await self._feed.recorded():
            self._messages += isinstance(update, MessageUpdate)
            if isinstance(update, AgentOutput):
                role = update.attempt.agent.removeprefix(agent_name(self._run_id, ""))
                self.recorded[role] += sum(isinstance(fact, Line) for fact in update.facts)
            self._view.update(update)
        self._view.refresh()

    def _end_of_log(self) -> str:
        """The end of what the engine printed, and where all of it is."""
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return f"{' | '.join(lines[-LOG_LINES_SHOWN:])} (all of it is in {self._log})"

    async def _clear_away(self, m: Maos) -> None:
        """End every process of this demonstration: the engine, then the agents with their holders."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        async for run in m.runs.all():
            if run.is_open:
                await m.runs.cancel(run.id, why="the demonstration was interrupted")
