"""The course of the demonstration: begin, kill the engine, answer a question, resume, merge.

Everything is done by commands that a person could type; this only types them, and looks.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from maos.app import open as open_journal
from maos.demo import sample
from maos.demo.folder import DemoEngine, DemoFolder, DemoRecord, command
from maos.demo.watch import Watching
from maos.errors import MaosError, NotFound
from maos.holder import registry
from maos.model.message import Message
from maos.workspaces import git

PAUSE_S = 0.15
"""How long an agent works at a line."""
LOOK_S = 0.1
STEP_S_MAX = 90.0
"""How long one part of the story may take on the slowest machine."""
LINES_MIN = 12
MESSAGES_MIN = 3
UNHEARD_MIN = 12
"""Of each kind, how much there must be before it is interesting."""
WATCH_S_MAX = 3.0
CLEAR_S_MAX = 3.0
COMMAND_S_MAX = 60.0
LOG_LINES_SHOWN = 3


def _counted(watching: Watching) -> str:
    """How far the journal is behind the agents."""
    printed, recorded = (sum(getattr(row, name) for row in watching.rows) for name in ("printed", "recorded"))
    return f"{printed} lines printed, {recorded} in the journal"


class DemoFailed(MaosError):
    """The demonstration could not be carried out."""

    hint = "its folder has plan.toml, and a log of each engine; `maos agent logs AGENT` shows what an agent said"


class Teller(Protocol):
    """Who tells the story."""

    def chapter(self, title: str, text: str) -> None:
        """A new part of it, and what happens there."""
        ...

    def typed(self, words: str) -> None:
        """A command that is run."""
        ...

    def tell(self, text: str) -> None:
        """Something that happened."""
        ...

    def shown(self, line: str) -> None:
        """A line that a command printed."""
        ...

    def said(self, message: Message) -> None:
        """A message between agents."""
        ...

    def show(self, engine: str, watching: Watching) -> None:
        """How things stand, many times a second."""
        ...


async def check_git() -> None:
    """NotFound says what to install when the one program that the demonstration needs is not there."""
    try:
        await git.check_version()
    except git.GitUnavailable as error:
        hint = f"install git {'.'.join(map(str, git.VERSION_MIN))} or newer: `apt install git`, `dnf install git`, …"
        raise NotFound(f"the demo works on a git repository, and {error.what}", hint=hint) from error


class Story:
    """One demonstration in one folder."""

    def __init__(self, place: DemoFolder, teller: Teller) -> None:
        self._place = place
        self._teller = teller
        self._children: list[Process] = []
        self._engine: Process | None = None
        self._engine_shown = ""

    async def play(self) -> DemoRecord:
        """From an empty folder to merged work; whatever happens, no process of it is left."""
        base = await self._prepare()
        try:
            async with open_journal(self._place.database) as m:
                return await self._play(Watching(m, self._place), base)
        finally:
            await asyncio.shield(asyncio.create_task(self._clear_away()))

    async def _play(self, watching: Watching, base: str) -> DemoRecord:
        teller = self._teller
        teller.chapter("Three agents begin", "Each in a git worktree of its own. They talk over the bus, through maos.")
        first = await self._start_engine("orchestrate", "--plan", "plan.toml", "--cwd", "till", "--auto")
        await self._until(
            watching,
            lambda: (
                watching.question != ""
                and watching.messages >= MESSAGES_MIN
                and all(row.printed >= LINES_MIN for row in watching.rows if row.name != "developer")
            ),
            "the agents to be at work",
        )
        teller.tell(f"The developer asks: {sample.QUESTION}")

        teller.chapter("kill -9", "The engine dies in the middle. Nothing is flushed, nobody is told.")
        teller.typed(f"kill -9 {first.pid}")
        os.kill(first.pid, signal.SIGKILL)
        engines = [DemoEngine(first.pid, await first.wait())]
        self._engine, self._engine_shown = None, f"killed · pid {first.pid} is gone, nobody records"
        at_kill = sum(self._place.printed().values())
        await self._look_on(watching, lambda: sum(self._place.printed().values()) - at_kill >= UNHEARD_MIN)
        teller.tell(f"The agents did not notice: {_counted(watching)}.")
        teller.tell("What they print is kept for whoever comes next. What would going on mean?")
        await self._run("resume", "--dry-run", shown=True)
        teller.tell("The question can be answered all the same:")
        await self._run("answer", watching.question, sample.ANSWER)
        await self._until(watching, self._is_answered, "the answer to arrive")
        teller.tell("The developer has its answer and the analyst is done, without an engine:")
        teller.tell(f"{_counted(watching)}.")

        teller.chapter("maos resume", "A new engine takes over. Agents that live are re-attached, not restarted.")
        at_resume = sum(self._place.printed().values())
        second = await self._start_engine("resume", watching.run)
        await self._until(watching, lambda: second.returncode is not None, "the agents to finish", ends=True)
        engines.append(DemoEngine(second.pid, await second.wait()))
        self._engine, self._engine_shown = None, f"ended · pid {second.pid}, all tasks are done"
        await watching.refresh()
        self._show(watching)
        if second.returncode != 0:
            raise DemoFailed(f"`maos resume` ended with status {second.returncode}: {self._log('resume')}")

        teller.tell(f"Every line is there: {_counted(watching)}.")

        teller.chapter("Take the work", "So far nothing of it is in the repository itself.")
        await self._run("orchestration", "merge", watching.run, shown=True)
        record = DemoRecord(
            run=watching.run, base=base, engines=engines, lines_at_kill=at_kill, lines_at_resume=at_resume
        )
        self._place.keep(record)
        return record

    def _is_answered(self) -> bool:
        developer, analyst = self._place.notes_of("developer"), self._place.notes_of("analyst")
        return any("answer" in note for note in developer) and any("ended" in note for note in analyst)

    # --- doing -----------------------------------------------------------------------------------------------

    async def _prepare(self) -> str:
        """The sample repository, with one commit, and the plan; the commit's id."""
        place = self._place
        for folder in (place.repository, place.notes, place.home):
            folder.mkdir()
        self._teller.chapter("A sample repository", "The code of a till, one commit, and a plan for three agents.")
        for path, text in sample.FILES.items():
            file = place.repository / path
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        place.plan.write_text(sample.plan(sys.executable, str(place.notes), PAUSE_S), encoding="utf-8")
        call = git.Git(place.repository)
        await call.run("init", "--quiet", "--initial-branch=main")
        await call.run("add", "--all")
        await call.run("commit", "--quiet", "--message", "A till")
        return await call.line("rev-parse", "HEAD")

    async def _start_engine(self, *arguments: str) -> Process:
        self._teller.typed(f"maos {' '.join(arguments)}")
        with (self._place.folder / f"{arguments[0]}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *command(*arguments),
                cwd=self._place.folder,
                env=self._place.environment(),
                stdin=DEVNULL,
                stdout=log,
                stderr=STDOUT,
                start_new_session=True,  # Ctrl+C is for us: we end it, and all that it has started
            )
        self._children.append(process)
        self._engine, self._engine_shown = process, f"pid {process.pid}, records"
        return process

    async def _run(self, *arguments: str, shown: bool = False) -> None:
        """A command that ends by itself."""
        words = [f"'{each}'" if " " in each else each for each in arguments]
        self._teller.typed(f"maos {' '.join(words)}")
        process = await asyncio.create_subprocess_exec(
            *command(*arguments),
            cwd=self._place.folder,
            env=self._place.environment(),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            start_new_session=True,
        )
        self._children.append(process)
        output, _none = await asyncio.wait_for(process.communicate(), COMMAND_S_MAX)
        text = output.decode(errors="replace").strip()
        if process.returncode != 0:
            raise DemoFailed(f"`maos {arguments[0]}` ended with status {process.returncode}: {text}")
        for line in text.splitlines() if shown else ():
            self._teller.shown(line)

    async def _until(self, watching: Watching, reached: Callable[[], bool], what: str, *, ends: bool = False) -> None:
        """Look until something is so; an engine that ends before is a failure, unless that is what is waited for."""
        deadline_s = time.monotonic() + STEP_S_MAX
        while True:
            await watching.refresh()
            self._show(watching)
            if reached():
                return
            if self._engine is not None and self._engine.returncode is not None and not ends:
                name = "orchestrate" if len(self._children) == 1 else "resume"
                raise DemoFailed(f"the engine ended by itself: {self._log(name)}")
            if time.monotonic() > deadline_s:
                raise DemoFailed(f"waited {STEP_S_MAX:.0f} s in vain for {what}")
            await asyncio.sleep(LOOK_S)

    async def _look_on(self, watching: Watching, enough: Callable[[], bool]) -> None:
        """Give the one who watches a moment to see what goes on; nothing depends on it."""
        until_s = time.monotonic() + WATCH_S_MAX
        while time.monotonic() < until_s and not enough():
            await watching.refresh()
            self._show(watching)
            await asyncio.sleep(LOOK_S)

    def _show(self, watching: Watching) -> None:
        for each in watching.said:
            self._teller.said(each)
        watching.said.clear()
        self._teller.show(self._engine_shown, watching)

    def _log(self, name: str) -> str:
        """Where an engine wrote what it said, and the end of that."""
        path = self._place.folder / f"{name}.log"
        last = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()][
            -LOG_LINES_SHOWN:
        ]
        return f"{' | '.join(last)} (all of it is in {path})"

    async def _clear_away(self) -> None:
        """End every process of this demonstration: commands, then agents with their holders."""
        for process in self._children:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        until_s = time.monotonic() + CLEAR_S_MAX
        while True:
            found = await asyncio.to_thread(registry.holders, self._place.holders)
            for info in found:
                await registry.end(info)
            if all(info.pid for info in found) or time.monotonic() > until_s:
                return
            await asyncio.sleep(LOOK_S)  # one that is just starting has not said yet who it is
