"""A run in the foreground: executed by this process and shown as it happens, until it ends, is paused or detached.

Ctrl+C pauses the run: its agents are stopped, and everything is recorded. A second one, a closed terminal or a reader
that went away only detach: the agents keep running until a process resumes the run.
"""

from __future__ import annotations

import asyncio
import errno
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maos.cli import signals
from maos.cli.database import ask
from maos.cli.failures import INTERRUPTED, note
from maos.cli.runs import bundles
from maos.cli.runs import summary as summaries
from maos.cli.runs.prompts import Prompts
from maos.cli.runs.resume import show_moved
from maos.cli.runs.screen import Screen
from maos.cli.workflow import changes
from maos.runs.service import Observer
from maos.workflows.file_changes import Look

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.run import Run
    from maos.runs.consent import Act
    from maos.runs.feed import RunFeed
    from maos.travel.relocation import Moved

SIGNALLED = 128
"""Added to the number of the signal that made us leave, as shells do."""


class Notices(Observer):
    """Shows what an engine says about a run beside what is recorded of it."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def notice(self, text: str, document: dict[str, Any]) -> None:
        """The settings have changed, worktrees were removed, or a notification could not be sent."""
        self._screen.tell(text, "warning" if document["kind"] == "warning" else "dim")
        self._screen.document(document)


class Dialogue(Observer):
    """Tells a person what resuming a run does, and asks what it must."""

    def __init__(self, on_change: str, *, trust: bool, as_json: bool) -> None:
        self._on_change = on_change
        self._trust = trust
        self._as_json = as_json

    async def agree(self, run: Run, acts: Sequence[Act]) -> bool:
        """Whether a person agrees to what a run from elsewhere would start here."""
        if not self._as_json:
            bundles.show_acts(run, acts)
        if not self._trust and not self._as_json and sys.stdin is not None and sys.stdin.isatty():
            ask(f"{run.id} came with a file. Do all of this, in {run.folder}?")
            return True
        return self._trust

    def moved(self, moved: Moved) -> None:
        """The run works in another folder from now on."""
        show_moved(moved, as_json=self._as_json, dry_run=False)

    def definition_changed(self, run: Run, change: object) -> None:
        """The plan file of the run has changed since."""
        assert isinstance(change, Look)
        changes.tell(run, change, self._on_change, as_json=self._as_json)


class Live:
    """One run that this process executes."""

    def __init__(self, m: Maos, run: Run, *, as_json: bool, summary: str = "", notify: Sequence[str] = ()) -> None:
        self._m = m
        self._summary = summary
        """A file for the summary as Markdown, if one is wanted."""
        self._run = run
        self._notify = notify
        self._screen = Screen(run, as_json=as_json)
        self._prompts = Prompts(m, self._screen)
        self._as_json = as_json
        self._interrupts = 0
        self._left = 0
        self._leaving = asyncio.Event()

    async def execute(self) -> int:
        """Execute the claimed run until it has ended or is paused, or this process is told to leave; the exit code."""
        self._introduce()
        with signals.heard(interrupted=self._interrupted, sent_away=self._leave):
            async with self._m.runs.follow(self._run.id) as feed:
                return await self._until_over(feed)

    async def _until_over(self, feed: RunFeed) -> int:
        work = self._m.runs.execute(self._run.id, Notices(self._screen), notify=self._notify)
        executing = asyncio.create_task(work)
        following = asyncio.create_task(self._follow(feed))
        drawing = asyncio.create_task(self._screen.show())
        leaving = asyncio.create_task(self._leaving.wait())
        tasks = (executing, following, drawing, leaving)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if executing.done() and not executing.exception():
                await feed.caught_up(executing.result().version)
            self._prompts.close()
            if following.done():
                following.result()
            if not executing.done():
                return await self._detach(drawing)
            await _ended(drawing)
            await self._screen.close()
            return await self._conclude(executing.result())
        except OSError as error:
            if error.errno == errno.EIO:  # the terminal is gone
                return SIGNALLED + signal.SIGHUP
            raise
        finally:
            await cancel(*tasks)
            self._prompts.close()

    async def _follow(self, feed: RunFeed) -> None:
        """Show what is recorded of the run, and ask what it asks."""
        for attempt in feed.attempts.values():
            self._screen.knows(attempt)
        if self._prompts.is_on:
            self._prompts.look(feed.questions)
        async for update in feed:
            self._screen.update(update)
            if self._prompts.is_on:
                self._prompts.look(feed.questions)

    def _introduce(self) -> None:
        run = self._run
        self._screen.document({"kind": "run", **summaries.document(run)})
        self._screen.tell(f"{run.id} in {run.folder}")
        for text in run.options.get("notes", ()):
            self._screen.tell(str(text))

    async def _conclude(self, run: Run) -> int:
        found = await self._m.runs.summary(run)
        if self._summary:
            await asyncio.to_thread(Path(self._summary).write_text, summaries.markdown(found), encoding="utf-8")
        if self._as_json:
            self._screen.document({**summaries.whole(found), "kind": "summary"})
            await self._screen.close()
        else:
            await asyncio.to_thread(summaries.show, found)
        return INTERRUPTED if self._interrupts else summaries.exit_code(run)

    async def _detach(self, drawing: asyncio.Task[None]) -> int:
        """Say how to come back; the caller closes what is open, and the agents keep running."""
        again = f"maos resume {self._run.id}"
        said = f"its agents go on without us; `{again}` takes them up again"
        if drawing.done():
            if not self._as_json:
                note(f"{self._run.id}: {said}")
            drawing.result()  # the reader of our output is gone
        await _ended(drawing)
        self._screen.document({"kind": "let_go", "run": self._run.id, "go_on": again})
        self._screen.tell(said)
        try:
            await self._screen.close()
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
        return SIGNALLED + self._left

    # --- signals ---------------------------------------------------------------------------------------------

    def _interrupted(self) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            self._leave(signal.SIGINT)
            return
        self._screen.tell("pausing: the agents are being stopped; Ctrl+C again lets go of them instead", "warning")
        self._m.runs.pause_here(self._run.id, "Ctrl+C")

    def _leave(self, number: signal.Signals) -> None:
        self._left = number
        self._leaving.set()


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks until all have ended: before Python 3.12, `wait_for` can lose a cancellation."""
    while not all(task.done() for task in tasks):
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=1.0)
    await asyncio.gather(*tasks, return_exceptions=True)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
