"""A run in the foreground: carried out by this process, shown to whoever is looking, paused or let go of unhurt.

Ctrl+C pauses the run: its agents are stopped, and everything is recorded. A second one, a closed terminal or a reader
that went away only let go: the agents go on without us until a process takes them up again.
"""

from __future__ import annotations

import asyncio
import errno
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maos.cli import signals
from maos.cli.failures import INTERRUPTED, note
from maos.cli.orchestrate import ending, markdown
from maos.cli.orchestrate.asking import Asking
from maos.cli.orchestrate.screen import RunScreen

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.engine.notify import Address
    from maos.journal.codec import Event
    from maos.model.attempt import Attempt
    from maos.model.facts import Fact
    from maos.model.run import Run

SIGNALLED = 128
"""Added to the number of the signal that made us leave, as shells do."""


class Conductor:
    """One run that this process carries out."""

    def __init__(self, m: Maos, run: Run, *, as_json: bool, summary: str = "", notify: Sequence[Address] = ()) -> None:
        self._m = m
        self._summary = summary
        """A file for the summary as Markdown, if one is wanted."""
        self._run = run
        self._screen = RunScreen(run, as_json=as_json)
        self._asking = Asking(m, self._screen)
        from maos.engine.notify import Notifier

        self._notifier = Notifier(m.journal, run.id, notify, tell=self._screen.warn)
        self._as_json = as_json
        self._interrupts = 0
        self._left = 0
        self._leaving = asyncio.Event()

    async def execute(self, *, options: Mapping[str, Any] | None = None) -> int:
        """Until the run has ended or is paused, or we are sent away; the exit code."""
        from maos.clock import SystemClock
        from maos.engine.agent_worker import AgentWorker
        from maos.engine.upkeep import Upkeep

        self._introduce()
        await self._look_around()
        worker = AgentWorker(self._m.attempts, listener=self._heard)
        upkeep = Upkeep(
            self._m.journal,
            SystemClock(),
            self._m.runs,
            self._m.attempts,
            self._run.id,
            tell=self._keeps_up,
            concurrency={**self._run.options, **(options or {})}.get("concurrency"),
            notifier=self._notifier,
        )
        with signals.heard(interrupted=self._interrupted, sent_away=self._leave):
            work = self._m.runs.execute(
                self._run.id,
                worker=worker,
                concurrency=upkeep.concurrency,
                options=options,
                listener=self._changed,
            )
            carrying = asyncio.create_task(upkeep.beside(work))
            showing = asyncio.create_task(self._screen.show())
            leaving = asyncio.create_task(self._leaving.wait())
            self._asking.look(self._run, self._screen.attempts)
            try:
                await asyncio.wait([carrying, showing, leaving], return_when=asyncio.FIRST_COMPLETED)
                self._asking.close()
                if not carrying.done():
                    return await self._let_go(showing)
                await _ended(showing)
                await self._notifier.close()
                await self._screen.close()
                return await self._conclude(carrying.result())
            except OSError as error:
                if error.errno == errno.EIO:  # the terminal is gone
                    return SIGNALLED + signal.SIGHUP
                raise
            finally:
                for task in (carrying, showing, leaving):
                    task.cancel()
                await asyncio.gather(carrying, showing, leaving, return_exceptions=True)
                self._asking.close()
                await self._notifier.close()

    async def _look_around(self) -> None:
        """See what agents ask that worked before we came."""
        from maos.cli.orchestration import standing

        attempts = list((await standing.at_work(self._m, self._run)).values())
        for attempt in attempts:
            self._screen.knows(attempt)
        await self._notifier.open(self._run, attempts)

    def _changed(self, run: Run, events: Sequence[Event]) -> None:
        self._screen.changed(run, events)
        self._notifier.changed(run, events)
        self._asking.look(run, self._screen.attempts)

    def _heard(self, attempt: Attempt, facts: Sequence[Fact]) -> None:
        self._screen.heard(attempt, facts)
        self._notifier.heard(attempt, facts)
        self._asking.look(self._screen.run, self._screen.attempts)

    def _keeps_up(self, text: str, document: dict[str, Any]) -> None:
        self._screen.tell(text)
        self._screen.document(document)

    def _introduce(self) -> None:
        run = self._run
        self._screen.document({"kind": "run", **ending.document(run)})
        self._screen.tell(f"{run.id} in {run.folder}")
        for text in run.options.get("notes", ()):
            self._screen.tell(str(text))

    async def _conclude(self, run: Run) -> int:
        found = await ending.look(self._m, run)
        if self._summary:
            await asyncio.to_thread(Path(self._summary).write_text, markdown.document(found), encoding="utf-8")
        if self._as_json:
            self._screen.document({**ending.whole(found), "kind": "summary"})
            await self._screen.close()
        else:
            await asyncio.to_thread(ending.show, found)
        return INTERRUPTED if self._interrupts else ending.exit_code(run)

    async def _let_go(self, showing: asyncio.Task[None]) -> int:
        """Say how to come back; what is open is closed by whoever called us, and the agents go on."""
        again = f"maos resume {self._run.id}"
        said = f"its agents go on without us; `{again}` takes them up again"
        if showing.done():
            if not self._as_json:
                note(f"{self._run.id}: {said}")
            showing.result()  # whoever read our output is gone
        await _ended(showing)
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


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
