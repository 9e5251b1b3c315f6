"""A run live: a frame with its agents on a terminal that can be drawn on, plain lines on any other output, and JSON for
programs. `LiveRun` executes the run in this process on request.

A feed is rendered, so it does not matter which process executes the run. What is rendered is written by a thread: an
output that does not read delays no agent, and a frame is not drawn more often than a person can see.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any

from maos.cli import documents, render, words
from maos.cli.input import Prompt, cancel
from maos.cli.render import clean, shorten
from maos.cli.runs import page
from maos.errors import InvalidInput
from maos.model.attempt import Attempt
from maos.model.events.parts import PERSON
from maos.model.message import Message
from maos.model.question import Open
from maos.model.run import Run
from maos.runs.feed import AgentOutput, Observer, RunFeed, RunUpdate, Update
from maos.runs.plan_input import Addition
from maos.runs.status import RunSummary, RunView, is_executing

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import StyleAndTextTuples

    from maos.app import Maos
    from maos.cli.terminal import Complete, LiveTerminal

FRAME_S = 0.125
"""The shortest time between two frames, however much happens."""
TICK_S = 1.0
LOOK_EVERY_S = 1.0
"""How often to check that the engine of a run is alive; its end is not recorded."""
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
        self._attempts = {words.task_of(feed.run.id, each.agent): each for each in feed.attempts.values()}
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
            case RunUpdate(run, event):
                self.run, data = run, event.data
                self.emit({"kind": event.type, "run": run.id, **documents.time(data.pop("at_us")), **data})
                for task, text, style in words.of_event(run, event.type, data):
                    self.report(text, style, task=task)
            case AgentOutput(attempt, facts):
                task = words.task_of(self.run.id, attempt.agent)
                self._attempts[task] = attempt
                about = {"run": self.run.id, "task": task, "agent": attempt.agent}
                for data in (fact.data for fact in facts):
                    if said := words.notable(attempt.agent, data):
                        self.emit({**data, **about, **documents.time(attempt.output_us or None)})
                        self.report(*said, task=task)
            case Message() as message if message.sender != PERSON and message.type != "discovery":
                self.emit({"kind": "message", **message.data, **documents.time(message.at_us)})
                to = ", ".join(words.task_of(self.run.id, each) for each in message.to)
                text = f"→ {'all' if message.topic else to}: {words.one_line(message.text, MESSAGE_WIDTH)}"
                self.report(text, "", task=words.task_of(self.run.id, message.sender))
        self._changed.set()

    def notice(self, text: str, document: dict[str, Any]) -> None:
        """Render what the engine reports beside the journal: changed settings, a notification that failed."""
        self.report(text, "warning" if document["kind"] == "warning" else "dim")
        self.emit(document)

    def report(self, text: str, style: str = "dim", *, task: str = "") -> None:
        """Print a line for people, about a task or the whole run."""
        if not self.as_json:
            before = f"{clean(task).ljust(self._name_width)}  " if task else ""
            self._lines.append(render.styled(f"{before}{clean(text)}", style, sys.stdout))
            self._changed.set()

    def emit(self, document: documents.Document) -> None:
        """Print a document for programs."""
        if self.as_json:
            self._lines.append(json.dumps(document))
            self._changed.set()

    @property
    def _name_width(self) -> int:
        return min(words.NAME_WIDTH_MAX, max((len(name) for name in self.run.tasks), default=0))

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
        """Have a function that prints to standard output print above the frame; nothing with JSON."""
        if self.as_json:
            return
        await self.flush()
        if self.terminal is None:
            await asyncio.to_thread(show)
            return
        with render.console().capture() as printed:
            show()
        await self.terminal.print(printed.get())

    async def show_summary(self, found: RunSummary) -> None:
        """Print the summary of a run."""
        self.emit({**page.summary_document(found), "kind": "summary"})
        await self.write(lambda: page.show_summary(found))

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
            await asyncio.to_thread(print, text, end="", flush=True)

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


class LiveRun:
    """One run at a time: followed wherever it is executed, and executed by this process on request."""

    def __init__(self, m: Maos, view: LiveView, notify: Sequence[str]) -> None:
        self._m = m
        self._view = view
        self._notify = notify
        self._feed: RunFeed | None = None
        self._following: asyncio.Task[None] | None = None
        self._task: asyncio.Task[Run] | None = None
        self._has_ended = False
        """Whether a run that another process executes has ended."""
        self._answered: set[str] = set()
        """Questions that were answered here, until the engine has recorded the answer."""
        self._requested: set[str] = set()
        """Tasks that were requested while the run was executed."""
        self._concluded = 0
        """The version of the run whose summary was printed."""
        self.changed = asyncio.Event()
        """Set when anything has happened."""

    @property
    def run(self) -> Run | None:
        """The run as of now."""
        return None if self._feed is None else self._feed.run

    @property
    def is_ours(self) -> bool:
        """Whether this process executes the run."""
        return self._task is not None and not self._task.done()

    @property
    def is_executing(self) -> bool:
        """Whether any engine executes the run."""
        return self.is_ours or (self.run is not None and is_executing(self.run))

    @property
    def is_over(self) -> bool:
        """Whether the run is over for now, and `conclude` is due."""
        return self._has_ended if self._task is None else self._task.done()

    @property
    def questions(self) -> list[Open]:
        """What the run and its agents ask, and was not answered here."""
        found = [] if self._feed is None else self._feed.questions
        return [each for each in found if each.ref not in self._answered]

    async def wait(self) -> None:
        """Wait until something has happened."""
        await self.changed.wait()
        self.changed.clear()
        if self._following is not None and self._following.done():
            self._following.result()

    async def follow(self, id: str) -> Run:
        """Render what happens to a run from now on."""
        await self.unfollow()
        self._feed = await self._m.runs.follow(id).__aenter__()
        self._view.switch(self._feed.run)
        self._following = asyncio.create_task(self._follow(self._feed))
        self._following.add_done_callback(lambda _task: self.changed.set())
        return self._feed.run

    async def _follow(self, feed: RunFeed) -> None:
        async for _update in self._view.follow(feed):
            if self._task is None and not feed.run.is_going:
                self._has_ended = True  # what is executed here is over when its task is
            self.changed.set()

    async def unfollow(self) -> None:
        """Follow no run."""
        if self._following is not None:
            await cancel(self._following)
        self._feed = self._following = None
        self._view.switch(Run(id=""))

    # --- steering --------------------------------------------------------------------------------------------

    async def answer(self, ref: str, text: str) -> None:
        """Answer a question."""
        question = next((each for each in self.questions if each.ref == ref), None)
        if question is None:
            raise InvalidInput("that was answered already", hint="another answer came first")
        await self._m.questions.give_line(question, text)
        self._answered.add(ref)

    async def request(self, added: Addition) -> None:
        """Request more tasks of the engine that executes the run."""
        assert self.run is not None
        self._requested |= {each.name for each in added.plan.tasks}
        await self._m.runs.request_tasks(self.run.id, added.plan)

    async def execute(self, id: str) -> None:
        """Execute a run that this process has claimed, beside the conversation."""
        await self.follow(id)
        self._has_ended = False
        self._task = asyncio.create_task(self._m.runs.execute(id, self._view, notify=self._notify))
        self._task.add_done_callback(lambda _task: self.changed.set())

    def set_concurrency(self, concurrency: int) -> None:
        """Have more or fewer agents work at once; those at work finish their tasks."""
        if not self.is_ours or self.run is None:
            hint = f"/resume {concurrency} resumes it with so many"
            raise InvalidInput("this process does not execute it", hint=hint)
        self._m.runs.set_concurrency(self.run.id, concurrency)

    async def pause(self, why: str) -> None:
        """Have all agents stopped, by the engine that executes the run."""
        assert self.run is not None
        if self.is_ours:
            self._m.runs.pause_here(self.run.id, why)
        elif self.is_executing:
            await self._m.runs.pause(self.run.id, why)
        else:
            raise InvalidInput("no engine executes it", hint="/resume resumes it")

    # --- its end ---------------------------------------------------------------------------------------------

    async def conclude(self) -> None:
        """Print the summary of a run that is over for now, once."""
        run = await self.ended()
        if run is None or run.version == self._concluded:
            return
        self._concluded = run.version
        self._answered.clear()
        late, self._requested = self._requested - set(run.tasks), set()
        if late and run.status != "paused":  # requested while the run ended: it is in the run's inbox
            await self.execute(run.id)
            return
        await self._view.show_summary(await self._m.runs.summary(run))

    async def ended(self) -> Run | None:
        """Return the run when no engine executes it any more and everything of it is rendered; None while one does."""
        task, self._task, self._has_ended = self._task, None, False
        assert self._feed is not None
        if task is None:
            return None if self._feed.run.is_going else self._feed.run
        run = await task
        await self._feed.caught_up(run.version)
        return run

    async def detach(self) -> None:
        """Stop executing and following the run here; its agents keep running."""
        if self._task is not None:
            await cancel(self._task)
        await self.unfollow()


def prompt_of(run: str, question: Open, left: int) -> Prompt:
    """The prompt for the answer to a question, with the number of questions after it."""
    label = "answer › " if question.kind == "question" else "yes or no › "
    about = [*words.lines_of(run, question), *([f"  and {left} more"] if left else [])]
    return Prompt("answer", label, about, question.ref)


# --- commands that follow a run ----------------------------------------------------------------------------------


async def print_run(m: Maos, id: str, *, follow: bool, live: bool, as_json: bool) -> None:
    """Print what is recorded of a run: from its beginning, or with a live view from now on.

    With `follow`, until the run has ended or is paused, or its engine has exited.
    """
    async with m.runs.follow(id, from_start=not live) as feed:
        view = LiveView(feed.run, as_json=as_json)
        if not live:
            view.terminal = None  # lines only
        for update in await feed.recorded():
            view.update(update)
        await view.flush()

        async def read() -> None:
            async for _update in view.follow(feed):
                pass

        tasks = [asyncio.create_task(each) for each in (read(), view.show())] if follow else []
        try:
            while tasks and is_executing(feed.run):
                done, _pending = await asyncio.wait(tasks, timeout=LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            await cancel(*tasks)
        await view.close()


async def watch(m: Maos, run: Run, *, tasks: bool, messages: bool, as_json: bool) -> None:
    """Render the status of a run whenever it changes, until the run has ended or is paused."""
    terminal = LiveView(run, as_json=as_json).terminal
    if terminal is not None:
        terminal.start()
    shown_max = 0 if as_json else page.MESSAGES_SHOWN_MAX
    last = ""
    try:
        async for now in _statuses(m, run):
            said = await m.runs.messages(run.id, newest=shown_max) if messages else None
            if as_json:
                documents.show_line(page.document(now, tasks=tasks, messages=said))
            elif terminal is not None:
                with render.console().capture() as printed:
                    page.show(now, tasks=tasks, messages=said)
                last = printed.get()
                await terminal.draw_ansi(last)
            elif (line := _status_line(now)) != last:
                last = line
                render.line(f"{render.when(now.at_us)}  {line}")
                sys.stdout.flush()
    finally:
        if terminal is not None:
            await terminal.stop()
            sys.stdout.write(last)
            sys.stdout.flush()


async def _statuses(m: Maos, run: Run) -> AsyncIterator[RunView]:
    """Yield the status of a run now, and whenever something is recorded or the engine exits, until the run is over."""
    changed = asyncio.Event()

    async def read(feed: RunFeed) -> None:
        async for _update in feed:
            changed.set()

    async with m.runs.follow(run.id) as feed:
        reading = asyncio.create_task(read(feed))
        try:
            while not reading.done():
                changed.clear()
                is_over = not feed.run.is_going  # before the status is read, which takes a while
                was_executing = is_executing(feed.run)
                yield await m.runs.status_of(feed.run)
                if is_over:
                    return
                await asyncio.sleep(FRAME_S)
                while not (changed.is_set() or reading.done()) and is_executing(feed.run) == was_executing:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_EVERY_S):
                            await changed.wait()
            reading.result()
        finally:
            await cancel(reading)


def _status_line(now: RunView) -> str:
    """A line for each change: a file is not drawn over."""
    doing = now.now.error or now.now.activity
    return f"{now.run.progress:>3} %  {page.spoken(now)}  {words.one_line(doing, 200)}".rstrip()
