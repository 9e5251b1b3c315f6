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
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from maos.cli import documents, render, words
from maos.cli.agent.output import OutputPrinter
from maos.cli.input import Prompt, cancel
from maos.cli.render import clean, fold, shorten
from maos.cli.runs import page, plans
from maos.cli.words import Fact
from maos.clock import SystemClock
from maos.errors import InvalidInput
from maos.model.attempt import Attempt
from maos.model.events.facts import PermissionRequested
from maos.model.events.parts import PERSON, Limits
from maos.model.message import Message
from maos.model.question import PLAN, Open
from maos.model.run import Run
from maos.model.run_status import spent_of
from maos.model.status import TaskStatus
from maos.plans.parser import to_source
from maos.plans.source import Source
from maos.runs.budgets import Budget, left_of, left_of_attempt
from maos.runs.feed import AgentOutput, Observer, ReportedDiscovery, RunFeed, RunUpdate, Update
from maos.runs.plan_input import Addition, known_types, validate
from maos.runs.planner import proposed
from maos.runs.results import RunSummary
from maos.runs.status import RunView, is_executing

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
NARROW = 60
"""Columns below which a line has the name of a task and what it does, and little else."""
FRAME_LINES = 9
"""Lines of a terminal that a question leaves for the frame, the prompt, and a little of what was printed before."""
LINES_WAITING_MAX = 1000
LINES_KEPT = 10
"""Lines of a small terminal that are left for the prompt and for what was printed before."""
MESSAGE_WIDTH = 300
ASKED_WIDTH = 120
EDIT = ("e", "edit")
"""What a person says to a plan to edit it."""

Part = tuple[str, str]
"""A style and a text of the frame."""


class LiveView(Observer):
    """Renders one run at a time."""

    def __init__(
        self, run: Run, *, as_json: bool = False, complete: Complete | None = None, with_output: bool = False
    ) -> None:
        self.run = run
        self.is_log = False
        """Whether lines are all there is: no summary is printed when the run is over."""
        self._printers: dict[str, OutputPrinter] | None = {} if with_output else None
        """What prints the output of each agent, if all of it is wanted."""
        self.heading: Callable[[], Sequence[Part]] = lambda: ()
        """What stands above the frame."""
        self.detail: Callable[[str], Sequence[Part]] = lambda _task: ()
        """What stands before the activity of a task."""
        self.terminal: LiveTerminal | None = None
        self.as_json = as_json
        self._lines: list[str] = []
        self._changed = asyncio.Event()
        self._attempts: dict[str, Attempt] = {}
        self._foreseen: set[str] = set()
        """Requests that a rule had answered before they were made: what was said of them then is enough."""
        self._began_s = time.monotonic()
        self._clock = SystemClock()
        self._named = (0, 0)
        """How many tasks there are, and the width of their names."""
        if not as_json and render.drawable(sys.stdout):
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
        self.run, self._attempts, self._began_s, self._named = run, {}, time.monotonic(), (0, 0)
        self._changed.set()

    def refresh(self) -> None:
        """Draw the frame again."""
        self._changed.set()

    def update(self, update: Update, *, since_us: int = 0) -> None:
        """Render an update of the feed, unless it happened before a time. Messages of a person and discoveries are
        rendered where they come from."""
        if since_us and _at_us(update) < since_us:
            return
        match update:
            case RunUpdate(run, event):
                self.run, data = run, event.data
                self.emit({"kind": event.type, "run": run.id, **documents.time(data.pop("at_us")), **data})
                if event.type == "plan_proposed":
                    self.show_proposal()
                lines = words.of_event(run, event.type, data)
                for task, text, style in chain(lines, words.of_run(run, event.type, data) if self.is_log else ()):
                    self.report(text, style, task=task)
            case AgentOutput(attempt, facts, answered):
                task = words.task_of(self.run.id, attempt.agent)
                self._attempts[task] = attempt
                about = {"run": self.run.id, "task": task, "agent": attempt.agent}
                if answered is not None:
                    data = answered.data
                    self.emit({"kind": answered.type, **about, **documents.time(data.pop("at_us", None)), **data})
                    if self._printers is not None or answered.request not in self._foreseen:
                        asked = attempt.permissions.get(answered.request)
                        what = words.tool(asked.tool, asked.input) if asked is not None else answered.request
                        self.report(f"· {words.decision(data, words.one_line(what, ASKED_WIDTH))}", task=task)
                self._foreseen |= {each.id for each in facts if isinstance(each, PermissionRequested) and each.rule}
                if self._printers is not None:
                    self._print_output(task, attempt, [fact.data for fact in facts], about)
                    return
                for data in (fact.data for fact in facts):
                    if said := words.notable(attempt.agent, data):
                        self.emit({**data, **about, **documents.time(attempt.output_us or None)})
                        self.report(*said, task=task)
            case ReportedDiscovery(agent, discovery, at_us):
                task = words.task_of(self.run.id, agent)
                about = {"run": self.run.id, "task": task, "agent": agent}
                self.emit({**discovery.data, **about, **documents.time(at_us)})
                if said := words.notable(agent, discovery.data):
                    self.report(*said, task=task)
            case Message() as message if message.sender != PERSON and message.type != "discovery":
                self.emit({"kind": "message", **message.data, **documents.time(message.at_us)})
                to = ", ".join(words.task_of(self.run.id, each) for each in message.to)
                text = f"→ {'all' if message.topic else to}: {words.one_line(message.text, MESSAGE_WIDTH)}"
                self.report(text, "", task=words.task_of(self.run.id, message.sender))
        self._changed.set()

    def _print_output(self, task: str, attempt: Attempt, facts: list[Fact], about: dict[str, str]) -> None:
        """Print all that an agent said and did."""
        assert self._printers is not None
        if self.as_json:
            for data in facts:
                self.emit({**data, **about, **documents.time(attempt.output_us or None)})
            return
        printer = self._printers.get(attempt.agent)
        if printer is None:
            printer = OutputPrinter(
                beside=sys.stdout, write=lambda _to, text, style: self.report(text, style, task=task)
            )
            self._printers[attempt.agent] = printer
        printer.print_facts(facts, {})

    def show_proposal(self) -> None:
        """Print the plan that waits to be approved, if there is one."""
        found = proposed(self.run)
        if found is not None and not self.as_json:
            with render.console().capture() as printed:
                plans.show(found, self.run.options)
            self._lines.append(printed.get().rstrip("\n"))
            self._changed.set()

    def notice(self, text: str, document: dict[str, Any]) -> None:
        """Render what the engine reports beside the journal: changed settings, a notification that failed."""
        self.report(text, "warning" if document["kind"] == "warning" else "dim")
        self.emit(document)

    def report(self, text: str, style: str = "dim", *, task: str = "") -> None:
        """Print a line for people, about a task or the whole run."""
        if not self.as_json:
            before = f"{clean(task).ljust(self._name_width)}  " if task else ""
            shown = f"{before}{clean(text)}"
            if render.terminal():
                width = render.console().width
                shown = fold(shown, width, indent=" " * (len(before) if width >= NARROW else 4))
            lines = (render.styled(line, style, sys.stdout) for line in shown.split("\n"))
            self._lines.append("\n".join(lines))
            self._changed.set()

    def emit(self, document: documents.Document) -> None:
        """Print a document for programs."""
        if self.as_json:
            self._lines.append(json.dumps(document))
            self._changed.set()

    @property
    def _name_width(self) -> int:
        tasks = self.run.tasks
        if len(tasks) != self._named[0]:
            self._named = (len(tasks), min(words.NAME_WIDTH_MAX, max((len(name) for name in tasks), default=0)))
        return self._named[1]

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
            await asyncio.to_thread(sys.stdout.flush)
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

    async def flush_some(self) -> None:
        """Write what there is to render if it is a good deal."""
        if len(self._lines) > LINES_WAITING_MAX:
            await self.flush()

    def keep_last(self, count: int, *, exactly: bool = False) -> None:
        """Drop all but the last so many lines that wait to be written, or a few more."""
        if exactly or len(self._lines) > 2 * count + LINES_WAITING_MAX:
            del self._lines[: max(0, len(self._lines) - count)]

    async def _write(self, text: str) -> None:
        if self.terminal is not None:
            self.terminal.draw(self._frame())
            await self.terminal.print(text)
        elif text:
            await asyncio.to_thread(print, text, end="", flush=True)

    # --- the frame -------------------------------------------------------------------------------------------

    def _frame(self) -> StyleAndTextTuples:
        rows = [self.heading(), self._bar()] if self.run.status == "running" else [self.heading()]
        running = [each.name for each in self.run.tasks.values() if each.status == "running" or words.next_check(each)]
        rows_max = max(1, min(ROWS_MAX, render.console().height - LINES_KEPT))
        rows += [self._row(name) for name in running[:rows_max]]
        rows += [[("", f"… and {len(running) - rows_max} more")]] if len(running) > rows_max else []
        shown = [row for row in rows if row]
        return [part for number, row in enumerate(shown) for part in ([("", "\n")] if number else []) + list(row)]

    def _bar(self) -> list[Part]:
        run = self.run
        spent = spent_of(run, {each.agent: each for each in self._attempts.values()})
        left = left_of(run, spent, self._clock.now_us())
        checked = sum(bool(words.next_check(each)) for each in run.tasks.values())
        parts = [f"{run.done} of {len(run.tasks)} tasks", f"{run.running} running"]
        parts += [f"{checked} being checked"] if checked else []
        parts += words.used(spent, Budget.of(run.options), time.monotonic() - self._began_s, left)
        text = fold(" · ".join(parts), render.console().width)
        width = max(0, min(BAR_WIDTH, render.console().width - len(text) - 3))
        done = width * run.done // (len(run.tasks) or 1)
        return [("fg:ansigreen", "━" * done), ("dim", "━" * (width - done)), ("", f"  {text}" if width else text)]

    def _row(self, name: str) -> list[Part]:
        attempt = self._attempts.get(name)
        status, cost, activity = "starts", "", ""
        if attempt is not None and attempt.is_open:
            status = "asks" if attempt.permissions else attempt.status
            left = words.left(left_of_attempt(attempt, self._clock.now_us()))
            figures = [words.cost(attempt), f"{left} left" if left else ""]
            cost = "".join(f"{each}  " for each in figures if each)
            tools = list(attempt.tools_open.values())
            activity = f"→ {words.tool(tools[-1].name, tools[-1].input)}" if tools else attempt.activity
        elif check := words.next_check(self.run.tasks[name]):
            status, activity = "checked", check
        elif attempt is not None and attempt.number == self.run.tasks[name].attempts:
            status = "finishes"
        is_narrow = render.console().width < NARROW
        name_width = min(self._name_width, render.console().width // 2)
        title = shorten(clean(name), name_width).ljust(name_width)
        shown = f"{status:<{STATUS_WIDTH}}  {cost}" if not is_narrow else f"{status}  " if status != "running" else ""
        row = [("bold", title), ("", f"  {shown}"), *self.detail(name)]
        room = render.console().width - sum(len(text) for _style, text in row) - 1
        return [*row, ("dim", words.one_line(activity, max(1, room)))]


def _at_us(update: Update) -> int:
    """When something happened."""
    match update:
        case RunUpdate(event=event):
            return event.at_us
        case AgentOutput(attempt=attempt):
            return attempt.output_us
        case ReportedDiscovery(at_us=at_us) | Message(at_us=at_us):
            return at_us
    return update.time_us


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
        self._draft: Source | None = None
        """A plan as a person has edited it, while it is not valid."""
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
        self._answered.update(question.refs)

    @property
    def is_planning(self) -> bool:
        """Whether the plan of the run is being made, and a person cannot approve it yet."""
        planner = None if self.run is None else self.run.planner
        is_open = planner is not None and planner.status in (TaskStatus.WAITING, TaskStatus.RUNNING, TaskStatus.GATED)
        return is_open and self.is_executing and not any(each.kind == PLAN for each in self.questions)

    async def edit_plan(self, lines: LiveTerminal) -> None:
        """Let a person edit the plan that waits to be approved; BadPlan when what they wrote is not valid."""
        assert self.run is not None
        found = proposed(self.run)
        if found is None:
            raise InvalidInput("no plan waits to be approved", hint="it was answered already")
        draft = self._draft or to_source(found.plan, "the plan of the agent")
        async with lines.hidden():
            text = await asyncio.to_thread(click.edit, draft.text, extension=draft.suffix)
        self._draft = draft._replace(text=draft.text if text is None else text)  # kept when it is wrong
        valid = validate(self._draft, known_types(self.run))
        await self._m.runs.edit_plan(self.run.id, valid)
        self._draft = None

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

    async def set_limits(self, limits: Limits) -> None:
        """Change the limits of the run, whichever process executes it."""
        assert self.run is not None
        await self._m.runs.update(self.run.id, limits)

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
    """The prompt for the answer to a question, with the number of questions after it. A plan is printed above it."""
    if question.kind == PLAN:
        return Prompt("answer", "run this plan? yes, no, edit, or what to change › ", [], question.ref)
    label = "answer › " if question.kind == "question" else f"{words.choices(question)} › "
    console = render.console()
    shown = words.lines_of(run, question, width=console.width, lines_max=console.height - FRAME_LINES)
    about = [*shown, *([f"  and {left} more"] if left else [])]
    return Prompt("answer", label, about, question.ref)


# --- commands that follow a run ----------------------------------------------------------------------------------


async def print_run(
    m: Maos,
    id: str,
    *,
    follow: bool,
    as_json: bool,
    live: bool = False,
    brief: bool = False,
    count: int | None = None,
    since_us: int = 0,
) -> None:
    """Print what is recorded of a run, in order: from its beginning, with the output of its agents unless it is to be
    brief, or with a live view from now on.

    `count` is how many lines of what is recorded are printed, the last ones. With `follow`, until the run has ended or
    is paused, or its engine has exited.
    """
    async with m.runs.follow(id, from_start=not live) as feed:
        view = LiveView(feed.run, as_json=as_json, with_output=not (live or brief))
        if not live:
            view.terminal, view.is_log = None, True
        async for update in feed.recorded():
            view.update(update, since_us=since_us)
            if count is None:
                await view.flush_some()
            else:
                view.keep_last(count)
        if count is not None:
            view.keep_last(count, exactly=True)
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
