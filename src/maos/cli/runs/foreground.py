"""A run in the foreground: executed by this process and rendered as it happens, until it ends, is paused or detached.

Ctrl+C pauses the run: its agents are stopped, and everything is recorded. A second one, a closed terminal or a reader
that has exited only detach: the agents keep running until a process resumes the run.
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

from maos.cli import documents, render, signals
from maos.cli.database import ask
from maos.cli.failures import INTERRUPTED, note
from maos.cli.plain import clean
from maos.cli.runs import bundles
from maos.cli.runs import summary as summaries
from maos.cli.runs.live import LiveView
from maos.cli.runs.prompts import QuestionPrompts
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
"""Added to the number of the signal that ended a command, as shells do."""
PAUSING = "pausing: the agents are being stopped; press Ctrl+C again to detach from them instead"


class Dialogue(Observer):
    """Reports what resuming a run does, and asks a person what must be asked."""

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
        """Report that the run works in another folder from now on."""
        show_moved(moved, as_json=self._as_json, dry_run=False)

    def definition_changed(self, run: Run, change: object) -> None:
        """Report that the plan file of the run has changed since."""
        assert isinstance(change, Look)
        changes.tell(run, change, self._on_change, as_json=self._as_json)


def show_moved(moved: Moved, *, as_json: bool, dry_run: bool) -> None:
    """Print where a run works from now on."""
    if as_json:
        found = {**moved._asdict(), "found": list(moved.found), "anew": list(moved.anew)}
        documents.show_line({"kind": "moved", "dry_run": dry_run, **found})
        return
    if moved.changed:
        verb = "would work" if dry_run else "works"
        where = f"{clean(moved.folder)}, and no more in {clean(moved.before)}"
        render.line((clean(moved.run), "bold"), f" {verb} in {where}")
    for name in moved.anew:
        verb = "would be made" if dry_run else "is made"
        render.line((f"the worktree {clean(name)} {verb} anew, with what was last saved", "dim"))


class ForegroundRun:
    """One run that this process executes."""

    def __init__(self, m: Maos, run: Run, *, as_json: bool, summary: str = "", notify: Sequence[str] = ()) -> None:
        self._m = m
        self._summary = summary
        """A file for the summary as Markdown, if one is wanted."""
        self._run = run
        self._notify = notify
        self._view = LiveView(run, as_json=as_json)
        self._prompts = QuestionPrompts(m, self._view)
        self._as_json = as_json
        self._interrupts = 0
        self._signal = 0
        self._leaving = asyncio.Event()

    async def execute(self) -> int:
        """Execute the claimed run until it ends, is paused, or a signal detaches this process; return the exit code."""
        introduce(self._view, self._run)
        with signals.heard(interrupted=self._interrupt, sent_away=self._leave):
            async with self._m.runs.follow(self._run.id) as feed:
                return await self._until_over(feed)

    async def _until_over(self, feed: RunFeed) -> int:
        work = self._m.runs.execute(self._run.id, self._view, notify=self._notify)
        executing = asyncio.create_task(work)
        following = asyncio.create_task(self._follow(feed))
        drawing = asyncio.create_task(self._view.show())
        leaving = asyncio.create_task(self._leaving.wait())
        answering = asyncio.create_task(self._prompts.answer())
        tasks = (executing, following, drawing, leaving)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if executing.done() and not executing.exception():
                await feed.caught_up(executing.result().version)
            if following.done():
                following.result()
            if not executing.done():
                return await self._detach(drawing)
            await _stop(drawing)
            await self._view.close()
            return await self._conclude(executing.result())
        except OSError as error:
            if error.errno == errno.EIO:  # the terminal was closed
                return SIGNALLED + signal.SIGHUP
            raise
        finally:
            await cancel(*tasks, answering)
            with suppress(OSError):
                await self._view.close()

    async def _follow(self, feed: RunFeed) -> None:
        self._prompts.ask(feed.questions)
        async for _update in self._view.follow(feed):
            self._prompts.ask(feed.questions)

    async def _conclude(self, run: Run) -> int:
        found = await self._m.runs.summary(run)
        if self._summary:
            await asyncio.to_thread(Path(self._summary).write_text, summaries.markdown(found), encoding="utf-8")
        if self._as_json:
            self._view.emit({**summaries.whole(found), "kind": "summary"})
            await self._view.close()
        else:
            await asyncio.to_thread(summaries.show, found)
        return INTERRUPTED if self._interrupts else summaries.exit_code(run)

    async def _detach(self, drawing: asyncio.Task[None]) -> int:
        """Say how to attach again; the caller closes what is open, and the agents keep running."""
        again = f"maos resume {self._run.id}"
        text = f"its agents keep running; `{again}` attaches to them again"
        if drawing.done():
            if not self._as_json:
                note(f"{self._run.id}: {text}")
            drawing.result()  # the reader of the output has exited
        await _stop(drawing)
        self._view.emit({"kind": "let_go", "run": self._run.id, "resumable": again})
        self._view.report(text)
        try:
            await self._view.close()
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
        return SIGNALLED + self._signal

    # --- signals ---------------------------------------------------------------------------------------------

    def _interrupt(self) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            self._leave(signal.SIGINT)
            return
        self._view.report(PAUSING, "warning")
        self._m.runs.pause_here(self._run.id, "Ctrl+C")

    def _leave(self, number: signal.Signals) -> None:
        self._signal = number
        self._leaving.set()


def introduce(view: LiveView, run: Run) -> None:
    """Print which run is executed, and where."""
    view.emit({"kind": "run", **summaries.document(run)})
    for text in (f"{run.id} in {run.folder}", *run.options.get("notes", ())):
        view.report(str(text))


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks until all have ended: before Python 3.12, `wait_for` can lose a cancellation."""
    while not all(task.done() for task in tasks):
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=1.0)
    await asyncio.gather(*tasks, return_exceptions=True)


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
