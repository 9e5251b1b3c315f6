"""Where a run is shown: a live view on a terminal, plain lines or JSON anywhere else.

Whoever carries the run out only leaves word here and goes on. A thread writes it: a terminal that waits makes no agent
wait, and nothing is drawn more often than a person can see.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from maos.cli import documents as shared
from maos.cli import render
from maos.cli.agent import words
from maos.cli.plain import clean
from maos.cli.render import coloured, styled
from maos.cli.runs import narration
from maos.model.message import PERSON
from maos.runs.feed import AgentOutput, MessageUpdate, RunUpdate

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from maos.cli.line import InputLine
    from maos.model.attempt import Attempt
    from maos.model.events.facts import Fact
    from maos.model.events.run import RunEvent
    from maos.model.message import Message
    from maos.model.run import Run
    from maos.runs.feed import Update

FRAME_S = 0.125
TICK_S = 1.0
ROWS_MAX = 10
BAR_WIDTH = 30
LINES_KEPT = 10
"""Lines of a small terminal that are left for the rest of the view and what was said before."""
PROMPT_LINES_MAX = 4
MESSAGE_WIDTH = 300


class Prompt:
    """What is asked below the live view, and the line that a person types there."""

    def __init__(self, line: InputLine, label: str, about: Sequence[str] = ()) -> None:
        self._line = line
        self._label = label
        self._about = about

    def drawn(self, columns: int) -> list[RenderableType]:
        """What is asked, and what was typed so far, around the cursor."""
        from rich.text import Text

        text, cursor = self._line.text, self._line.cursor
        room = max(20, columns - len(self._label)) * PROMPT_LINES_MAX // 2
        start = max(0, cursor - room)
        typed = Text(self._label, style="bold cyan")
        typed.append(text[start:cursor], style="not bold default")
        typed.append(text[cursor : cursor + 1] or " ", style="reverse not bold default")
        typed.append(text[cursor + 1 : start + 2 * room], style="not bold default")
        asked = [Text(clean(each), style="yellow", no_wrap=True, overflow="ellipsis") for each in self._about]
        return [*asked, typed]


class Screen:
    """Shows one run."""

    def __init__(self, run: Run, *, as_json: bool) -> None:
        self._run = run
        self._as_json = as_json
        self._width = _width(run)
        self._lines: list[str] = []
        self._news = asyncio.Event()
        self._typed = asyncio.Event()
        self._prompt: Prompt | None = None
        self._held = False
        self._attempts: dict[str, Attempt] = {}
        self._began = time.monotonic()
        self._live: Live | None = None

    @property
    def run(self) -> Run:
        """The run as it was last heard of."""
        return self._run

    @property
    def attempts(self) -> list[Attempt]:
        """The newest attempt of each agent that was heard of."""
        return list(self._attempts.values())

    @property
    def is_live(self) -> bool:
        """Whether there is, or will be, a live view: somebody looks at a terminal that can be drawn on."""
        return not self._as_json and coloured(sys.stdout)

    # --- word is left ----------------------------------------------------------------------------------------

    def changed(self, run: Run, events: Sequence[RunEvent]) -> None:
        """Something was recorded of the run."""
        if run is not self._run or any(event.type == "run_planned" for event in events):
            self._width = _width(run)
        if run.id != self._run.id:
            self._began = time.monotonic()
            self._attempts.clear()
        self._run = run
        if self._as_json:
            self._documents(narration.documents_of_events(run, events))
        else:
            self._say(narration.of_events(run, events))

    def heard(self, attempt: Attempt, facts: Sequence[Fact]) -> None:
        """Something was recorded of an agent."""
        self._attempts[narration.task_of(self._run.id, attempt.agent)] = attempt
        found = [fact.data for fact in facts]
        if self._as_json:
            self._documents(narration.documents_of_facts(self._run.id, attempt, found))
        else:
            self._say(narration.of_facts(self._run.id, attempt, found))
        self._news.set()  # what it does has changed

    def update(self, update: Update) -> None:
        """Something of a feed; a message of a person or a discovery is seen elsewhere already."""
        if isinstance(update, RunUpdate):
            self.changed(*update)
        elif isinstance(update, AgentOutput):
            self.heard(*update)
        elif (
            isinstance(update, MessageUpdate) and update.message.sender != PERSON and update.message.type != "discovery"
        ):
            self._message(update.message, update.data)

    def _message(self, said: Message, data: Mapping[str, Any]) -> None:
        run = self._run.id
        to = ", ".join(narration.task_of(run, each) for each in said.to) if not said.topic else "all"
        self.told(narration.task_of(run, said.sender), f"→ {to}: {words.one_line(said.text, MESSAGE_WIDTH)}")
        self.document({"kind": "message", **data, **shared.time(said.at_us)})

    def tell(self, text: str, style: str = "dim") -> None:
        """Something about the whole run, for people."""
        if not self._as_json:
            self._leave(styled(clean(text), style, sys.stdout))

    def warn(self, text: str) -> None:
        """Something that went wrong and hurts nobody, for people and programs."""
        self.tell(text, "warning")
        self.document({"kind": "warning", "text": text})

    def document(self, document: shared.Document) -> None:
        """Something for programs."""
        if self._as_json:
            self._documents([document])

    def told(self, name: str, text: str, style: str = "") -> None:
        """Something about one of the tasks, for people."""
        if not self._as_json:
            self._say([(name, text, style)])

    def knows(self, attempt: Attempt) -> None:
        """What an agent did before we came; nothing is said of it."""
        self._attempts[narration.task_of(self._run.id, attempt.agent)] = attempt

    def ask(self, prompt: Prompt | None) -> None:
        """Have something typed below the live view, or nothing more."""
        self._prompt = prompt
        self.typed()

    def typed(self) -> None:
        """A key was pressed: show it at once."""
        self._typed.set()
        self._news.set()

    def _documents(self, found: Iterable[shared.Document]) -> None:
        for each in found:
            self._leave(json.dumps(each))

    def _say(self, lines: Iterable[narration.Line]) -> None:
        for name, text, style in lines:
            before = f"{clean(name).ljust(self._width)}  " if name else ""
            self._leave(styled(f"{before}{clean(text)}", style, sys.stdout))

    def _leave(self, line: str) -> None:
        self._lines.append(line)
        self._news.set()

    # --- and shown -------------------------------------------------------------------------------------------

    async def show(self) -> None:
        """Write what was left, and keep the live view fresh, until cancelled."""
        if self.is_live:
            self._live = self._start_live()
        while True:
            await self._flush()
            # Not wait_for: before Python 3.12 it forgets that it was cancelled when the event comes at the same moment.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S if self._live else None):
                    await self._news.wait()
            self._news.clear()
            if self._live:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FRAME_S):
                        await self._typed.wait()
                self._typed.clear()

    async def close(self) -> None:
        """Write what is left, and take the live view away."""
        live, self._live = self._live, None
        try:
            if live is not None:
                await asyncio.to_thread(live.stop)
        finally:
            await self._flush()

    async def write(self, show: Callable[[], None]) -> None:
        """Have something else write to standard output, after what was left before."""
        await self._flush()
        await asyncio.to_thread(show)

    @contextlib.contextmanager
    def hidden(self) -> Iterator[None]:
        """Without a live view: another program has the terminal."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()
        self._held = True
        try:
            yield
        finally:
            self._held = False
            if live is not None:
                self._live = self._start_live()

    async def _flush(self) -> None:
        if self._held:
            return
        lines, self._lines = self._lines, []
        frame = self._frame() if self._live else None
        if lines or frame is not None:
            drawing = asyncio.ensure_future(asyncio.to_thread(self._draw, lines, frame))
            try:
                await asyncio.shield(drawing)
            except asyncio.CancelledError:
                await drawing  # cancelled before its thread had begun, it would lose what was said
                raise

    def _draw(self, lines: Sequence[str], frame: RenderableType | None) -> None:
        if self._live is None or frame is None:
            sys.stdout.writelines(f"{line}\n" for line in lines)
            sys.stdout.flush()
            return
        if lines:
            from rich.text import Text

            self._live.console.print(Text.from_ansi("\n".join(lines)), soft_wrap=True)
        self._live.update(frame, refresh=True)

    # --- the live view ---------------------------------------------------------------------------------------

    def _start_live(self) -> Live:
        from rich.live import Live

        live = Live(self._frame(), console=render.console(), auto_refresh=False, transient=True)
        live.start()
        return live

    def _frame(self) -> RenderableType:
        from rich.console import Group

        parts = [self._bar()] if self._run.status == "running" else []
        parts += [self._rows()] if self._run.running else []
        parts += [] if self._prompt is None else self._prompt.drawn(_columns())
        return Group(*parts)

    def _bar(self) -> RenderableType:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        run = self._run
        cost_usd = run.cost_usd + sum(each.total_cost_usd for each in self._attempts.values() if each.is_open)
        parts = [f"{run.done} of {len(run.tasks)} tasks", f"{run.running} running"]
        parts += [words.duration(time.monotonic() - self._began)]
        parts += [words.money(cost_usd)] if cost_usd else []
        grid = Table.grid(padding=(0, 2))
        grid.add_row(
            ProgressBar(total=len(run.tasks) or 1, completed=run.done, width=BAR_WIDTH), Text(" · ".join(parts))
        )
        return grid

    def _rows(self) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True, style="bold", max_width=self._width)
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True, justify="right")
        grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1, style="dim")
        running = [task.name for task in self._run.tasks.values() if task.status == "running"]
        rows_max = max(1, min(ROWS_MAX, _lines() - LINES_KEPT))
        for name in running[:rows_max]:
            grid.add_row(*(Text(each) for each in self._row(name)))
        if len(running) > rows_max:
            grid.add_row(Text(f"… and {len(running) - rows_max} more"))
        return grid

    def _row(self, name: str) -> tuple[str, str, str, str]:
        attempt = self._attempts.get(name)
        if attempt is None or not attempt.is_open:
            ends = attempt is not None and attempt.number == self._run.tasks[name].attempts
            return clean(name), "finishes" if ends else "starts", "", ""
        status = "asks" if attempt.permissions else attempt.status
        cost = words.money(attempt.total_cost_usd) if attempt.total_cost_usd else ""
        return clean(name), status, cost, words.one_line(_doing(attempt), 200)


def _width(run: Run) -> int:
    return min(narration.NAME_WIDTH_MAX, max((len(name) for name in run.tasks), default=0))


def _columns() -> int:

    return render.console().width


def _lines() -> int:

    return render.console().height


def _doing(attempt: Attempt) -> str:
    tools = list(attempt.tools_open.values())
    return f"→ {words.tool(tools[-1].name, tools[-1].input)}" if tools else attempt.activity
