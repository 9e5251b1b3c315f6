"""The live view of a run, for every command that has one: a frame with its agents on a terminal that can be drawn on,
plain lines on any other output, and JSON for programs.

It renders the updates of a feed, so it does not matter which process executes the run. What it renders is written by a
thread: an output that does not read delays no agent, and a frame is not drawn more often than a person can see.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from maos.cli import documents, render
from maos.cli.agent import words
from maos.cli.plain import clean, shorten
from maos.cli.runs import narration
from maos.model.attempt import Attempt
from maos.model.message import PERSON
from maos.model.run import Run
from maos.runs.feed import AgentOutput, MessageUpdate, RunFeed, RunUpdate, Update
from maos.runs.service import Observer

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import StyleAndTextTuples

    from maos.cli.terminal import Complete, LiveTerminal

FRAME_S = 0.125
"""The shortest time between two frames, however much happens."""
TICK_S = 1.0
ROWS_MAX = 10
BAR_WIDTH = 30
STATUS_WIDTH = 9
LINES_KEPT = 10
"""Lines of a small terminal that are left for the prompt and for what was printed before."""
MESSAGE_WIDTH = 300

Part = tuple[str, str]
"""A style and a text of the frame."""


class LiveView(Observer):
    """Renders one run at a time."""

    def __init__(self, run: Run, *, as_json: bool = False, complete: Complete | None = None) -> None:
        self.run = run
        self.heading: Callable[[], Sequence[Part]] = lambda: ()
        """What stands above the frame."""
        self.detail: Callable[[str], Sequence[Part]] = lambda _task: ()
        """What stands before the activity of a task."""
        self.terminal: LiveTerminal | None = None
        self.as_json = as_json
        self._lines: list[str] = []
        self._changed = asyncio.Event()
        self._attempts: dict[str, Attempt] = {}
        self._began_s = time.monotonic()
        if not as_json and render.coloured(sys.stdout):
            from maos.cli.terminal import LiveTerminal

            self.terminal = LiveTerminal(complete or (lambda _beginning: ()))

    # --- what is rendered ------------------------------------------------------------------------------------

    async def follow(self, feed: RunFeed) -> AsyncIterator[Update]:
        """Render a feed, and yield its updates."""
        self.switch(feed.run)
        self._attempts = {narration.task_of(feed.run.id, each.agent): each for each in feed.attempts.values()}
        async for update in feed:
            self.update(update)
            yield update

    def switch(self, run: Run) -> None:
        """Render another run from now on."""
        self.run, self._attempts, self._began_s = run, {}, time.monotonic()
        self._changed.set()

    def refresh(self) -> None:
        """Draw the frame again."""
        self._changed.set()

    def update(self, update: Update) -> None:
        """Render an update of the feed. Messages of a person and discoveries are rendered where they come from."""
        match update:
            case RunUpdate(run, events):
                self.run = run
                self._emit_all(narration.documents_of_events(run, events))
                self._report_all(narration.of_events(run, events))
            case AgentOutput(attempt, facts):
                self._attempts[narration.task_of(self.run.id, attempt.agent)] = attempt
                found = [fact.data for fact in facts]
                self._emit_all(narration.documents_of_facts(self.run.id, attempt, found))
                self._report_all(narration.of_facts(self.run.id, attempt, found))
            case MessageUpdate(message) if message.sender != PERSON and message.type != "discovery":
                self.emit({"kind": "message", **message.data, **documents.time(message.at_us)})
                to = ", ".join(narration.task_of(self.run.id, each) for each in message.to)
                text = f"→ {'all' if message.topic else to}: {words.one_line(message.text, MESSAGE_WIDTH)}"
                self._report_all([(narration.task_of(self.run.id, message.sender), text, "")])
        self._changed.set()

    def notice(self, text: str, document: dict[str, Any]) -> None:
        """Render what the engine reports beside the journal: changed settings, a notification that failed."""
        self.report(text, "warning" if document["kind"] == "warning" else "dim")
        self.emit(document)

    def report(self, text: str, style: str = "dim", *, task: str = "") -> None:
        """Print a line for people, about a task or the whole run."""
        self._report_all([(task, text, style)])

    def emit(self, document: documents.Document) -> None:
        """Print a document for programs."""
        self._emit_all([document])

    def _emit_all(self, found: Iterable[documents.Document]) -> None:
        if self.as_json:
            self._lines += [json.dumps(each) for each in found]
            self._changed.set()

    def _report_all(self, lines: Iterable[narration.Line]) -> None:
        if not self.as_json:
            for name, text, style in lines:
                before = f"{clean(name).ljust(self._name_width)}  " if name else ""
                self._lines.append(render.styled(f"{before}{clean(text)}", style, sys.stdout))
            self._changed.set()

    @property
    def _name_width(self) -> int:
        return min(narration.NAME_WIDTH_MAX, max((len(name) for name in self.run.tasks), default=0))

    # --- where it is written ---------------------------------------------------------------------------------

    async def show(self) -> None:
        """Write what there is to render, and keep the frame up to date, until cancelled."""
        if self.terminal is not None:
            self.terminal.start()
        while True:
            await self.flush()
            # Not wait_for: before Python 3.12 it loses a cancellation when the event is set at the same time.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S if self.terminal is not None else None):
                    await self._changed.wait()
            self._changed.clear()
            if self.terminal is not None:
                await asyncio.sleep(FRAME_S)

    async def write(self, show: Callable[[], None]) -> None:
        """Have a function that prints to standard output print above the frame."""
        await self.flush()
        if self.terminal is None:
            await asyncio.to_thread(show)
            return
        with render.console().capture() as printed:
            show()
        await self.terminal.print(printed.get())

    async def close(self) -> None:
        """Remove the frame, and write what is left."""
        terminal, self.terminal = self.terminal, None
        try:
            if terminal is not None:
                await terminal.stop()
        finally:
            await self.flush()

    async def flush(self) -> None:
        """Write what there is to render now."""
        lines, self._lines = self._lines, []
        text = "".join(f"{line}\n" for line in lines)
        writing = asyncio.ensure_future(self._write(text))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await writing  # cancelled before it has begun, it would lose what was to be written
            raise

    async def _write(self, text: str) -> None:
        if self.terminal is not None:
            self.terminal.draw(self._frame())
            await self.terminal.print(text)
        elif text:
            await asyncio.to_thread(_write_plain, text)

    # --- the frame -------------------------------------------------------------------------------------------

    def _frame(self) -> StyleAndTextTuples:
        rows = [self.heading(), self._bar()] if self.run.status == "running" else [self.heading()]
        running = [task.name for task in self.run.tasks.values() if task.status == "running"]
        rows_max = max(1, min(ROWS_MAX, render.console().height - LINES_KEPT))
        rows += [self._row(name) for name in running[:rows_max]]
        rows += [[("", f"… and {len(running) - rows_max} more")]] if len(running) > rows_max else []
        shown = [row for row in rows if row]
        return [part for number, row in enumerate(shown) for part in ([("", "\n")] if number else []) + list(row)]

    def _bar(self) -> list[Part]:
        run = self.run
        cost_usd = run.cost_usd + sum(each.total_cost_usd for each in self._attempts.values() if each.is_open)
        done = BAR_WIDTH * run.done // (len(run.tasks) or 1)
        parts = [f"{run.done} of {len(run.tasks)} tasks", f"{run.running} running"]
        parts += [words.duration(time.monotonic() - self._began_s), *([words.money(cost_usd)] if cost_usd else [])]
        return [("fg:ansigreen", "━" * done), ("dim", "━" * (BAR_WIDTH - done)), ("", f"  {' · '.join(parts)}")]

    def _row(self, name: str) -> list[Part]:
        attempt = self._attempts.get(name)
        status, cost, activity = "starts", "", ""
        if attempt is not None and attempt.is_open:
            status = "asks" if attempt.permissions else attempt.status
            cost = f"{words.money(attempt.total_cost_usd)}  " if attempt.total_cost_usd else ""
            tools = list(attempt.tools_open.values())
            activity = f"→ {words.tool(tools[-1].name, tools[-1].input)}" if tools else attempt.activity
        elif attempt is not None and attempt.number == self.run.tasks[name].attempts:
            status = "finishes"
        title = shorten(clean(name), self._name_width).ljust(self._name_width)
        row = [("bold", title), ("", f"  {status:<{STATUS_WIDTH}}  {cost}"), *self.detail(name)]
        room = render.console().width - sum(len(text) for _style, text in row) - 1
        return [*row, ("dim", words.one_line(activity, max(1, room)))]


def _write_plain(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
