"""Executes a run: starts tasks whose needs are met, and records their outcomes.

What is decided together is recorded in one append: that tasks have finished, and that those which waited for them are
begun (I30). Deciding costs as much as what has happened and never depends on how large the run is. A task that is
recorded as started is handed to the worker of whichever engine executes the run; the worker finds out whether there is
an agent to resume.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from maos.bus.bus import Bus
from maos.clock import MICROSECONDS, Clock
from maos.engine.recorder import Recorder
from maos.journal.codec import EncodedEvent
from maos.journal.journal import Append, Record, by_stream
from maos.model.events.commands import CancelRequested, PauseRequested
from maos.model.events.run import (
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
    RunEvent,
    RunHibernated,
    RunPaused,
    RunPlanned,
    RunUpdated,
    RunWoken,
    TaskFinished,
    TaskGated,
    TaskReleased,
    TaskRetried,
    TaskSkipped,
    TaskStarted,
    TaskStopping,
)
from maos.model.failure import REPEATABLE, TABLE
from maos.model.run import Run, TaskState
from maos.model.status import RunStatus, TaskStatus
from maos.runs import agent_types, decisions
from maos.runs.budgets import NOTHING_REACHED, Budget, Purse, Reached
from maos.runs.decisions import Outcome, what_follows
from maos.runs.worker import AgentWorker

UNPAID_S = 1.0
"""How often a review looks whether the agents at work have left money for it."""
STAGGER_S = 2.0
"""Between the agents that wake up after a rate limit, so that they do not run into the next one together."""

Listener = Callable[[Run, Sequence[RunEvent]], None]


class Scheduler:
    """One run that this engine executes."""

    def __init__(
        self,
        recorder: Recorder[Run],
        worker: AgentWorker,
        clock: Clock,
        *,
        bus: Bus,
        concurrency: int,
        listener: Listener | None = None,
    ) -> None:
        self.recorder = recorder
        self._worker = worker
        self._clock = clock
        self._concurrency = concurrency
        self._listener = listener
        self._ready: list[tuple[int, int, str]] = []
        self._later: list[tuple[int, int, str]] = []
        self._blocked: list[str] = []
        """Tasks that wait until a person has done something for agents of their kind."""
        self._unpaid: list[tuple[int, int, str]] = []
        """Tasks that can start when an agent at work leaves money for them."""
        self._next_us: dict[str, int] = {}
        """When the next agent of a kind that has slept may begin."""
        self._order = {name: number for number, name in enumerate(recorder.fold.tasks)}
        self._tasks: dict[str, asyncio.Task[Outcome]] = {}
        self._ended: list[str] = []
        self._news = asyncio.Event()
        self._events: list[EncodedEvent[RunEvent]] = []
        """What was decided, and is in the fold, but not yet on disk."""
        self._also: list[Append] = []
        self._notes: list[RunEvent] = []
        self._commands: list[tuple[Any, int]] = []
        """Commands, with their versions in the inbox."""
        self._inbox_version = recorder.fold.inbox_cursor
        self._mailbox = bus.mailbox
        self._handler = decisions.CommandHandler(bus)
        self._expiring: list[tuple[int, str]] = []
        self._pausing = ""
        self._stopped_by = ""
        """The principal that had the run paused or cancelled."""
        self._is_cancelled = False
        self._limit = NOTHING_REACHED
        """The limit for which it is being paused. The worker stops the agents, unless it is the limit of time."""
        self._purse = Purse(recorder.fold, self._news.set)
        worker.watch(self._purse)
        self._began_us = recorder.fold.restored_us or clock.now_us()

    @property
    def run(self) -> Run:
        """What is known of it."""
        return self.recorder.fold

    @property
    def _until_us(self) -> int:
        """When its limit of time is reached; 0 when there is none."""
        time_s = self._purse.budget.time_s
        return self._began_us + int(time_s * MICROSECONDS) if time_s else 0

    def _receive(self, record: Record) -> None:
        """Keep a command from the run's inbox until the next decision."""
        self._inbox_version = record.version
        self._commands.append((record.event, record.version))
        self._news.set()

    def pause(self, why: str, *, by: str = "") -> None:
        """Have all agents stopped and begin no more tasks."""
        if not self._pausing:
            self._pausing, self._stopped_by = why, by
        self._news.set()

    def set_concurrency(self, concurrency: int) -> None:
        """Begin more tasks, or none until so few are at work; those that are stay."""
        self._concurrency = concurrency
        self._news.set()

    def note(self, event: RunEvent) -> None:
        """Have something recorded with what is decided next."""
        self._notes.append(event)
        self._news.set()

    async def execute(self) -> Run:
        """Execute the run until it has ended or is paused, or its lease, which the recorder holds, is lost."""
        assert self.recorder.renewal is not None
        async with await self._mailbox.open(self.run.id, after=self._inbox_version) as inbox:
            for record in await inbox.backlog():
                self._receive(record)
            listener = asyncio.create_task(inbox.deliver(self._receive))
            try:
                return await self._run_tasks((self.recorder.renewal, listener))
            finally:
                listener.cancel()
                await asyncio.gather(listener, return_exceptions=True)

    async def _run_tasks(self, watchers: Sequence[asyncio.Task[None]]) -> Run:
        """Decide and act until the run has ended; an error of a watcher ends it too."""
        try:
            self._take_stock()
            while True:
                self._decide(self._clock.now_us())
                if self._events:
                    events, also, self._events, self._also = self._events, self._also, [], []
                    await self.recorder.append(*events, also=by_stream(also))
                    self._act([each.event for each in events])
                    continue
                if self.run.status != RunStatus.RUNNING and not self._tasks:
                    return self.run
                await self._wait(watchers)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    # --- deciding --------------------------------------------------------------------------------------------

    def _take_stock(self) -> None:
        """From the fold alone: what can start, what waits, and what an agent worked on when the engine died."""
        for name, task in self.run.tasks.items():
            if task.status == TaskStatus.RUNNING and self._spends(task):
                self._purse.begin(name)
        for name, task in self.run.tasks.items():
            if task.status in (TaskStatus.RUNNING, TaskStatus.GATED):
                self._continue(name)
            elif task.status == TaskStatus.WAITING and task.missing == 0:
                self._enqueue(task)
        for question in self.run.open_questions:
            self._watch_expiry(question.id)

    def _decide(self, now_us: int) -> None:
        """Everything that follows from what has happened; each thing is folded in before the next is decided."""
        notes, self._notes = self._notes, []
        for event in notes:
            self._record(event)
        waiting, self._commands = self._commands, []
        for command, version in waiting:
            self._handle(command, version, now_us)
        self._expire_questions(now_us)
        ended, self._ended = self._ended, []
        for name in ended:
            self._conclude(self.run.tasks[name], self._tasks.pop(name).result(), now_us)
        if self.run.status != RunStatus.RUNNING:
            return
        if not self._pausing and self.run.done < len(self.run.tasks):
            self._limit = self._reached(now_us)
            self._pausing = self._limit.why
        if self._pausing:
            if not self._tasks:
                self._record(self._stop(now_us))
            return
        if self._begin(now_us) or self._tasks or self._later or self._ready or self._unpaid:
            return
        if any(self.run.tasks[name].status in (TaskStatus.WAITING, TaskStatus.GATED) for name in self._blocked):
            why = [f"{kind}: {TABLE[each.failure].meaning}; {each.to_do}" for kind, each in self.run.blocked.items()]
            self._record(RunPaused(why="; ".join(why), inbox_version=self._inbox_version, at_us=now_us))
            return
        if not any(task.status == TaskStatus.GATED for task in self.run.tasks.values()):  # else a person is asked
            self._record(self._ending(now_us))

    def _begin(self, now_us: int) -> int:
        while self._later and self._later[0][0] <= now_us:
            name = heapq.heappop(self._later)[2]
            if self.run.tasks[name].status == TaskStatus.GATED and name not in self._tasks:
                self._continue(name)
            elif self.run.tasks[name].status == TaskStatus.WAITING:
                self._enqueue(self.run.tasks[name])
        started = 0
        while self._ready and len(self._tasks) + started < self._concurrency:
            entry = heapq.heappop(self._ready)
            task = self.run.tasks[entry[2]]
            if task.status != TaskStatus.WAITING:  # it was cancelled, or skipped
                continue
            if self._waits(task, now_us):  # its kind came to a limit after it had been lined up
                continue
            if self._spends(task):
                if not self._purse.affords_another and (self._tasks or started):
                    self._unpaid.append(entry)
                    continue
                self._purse.begin(task.name)
            self._note_begin(task, now_us)
            self._record(TaskStarted(task=task.name, number=task.attempts + 1, at_us=now_us))
            started += 1
        return started

    def _reached(self, now_us: int) -> Reached:
        """The limit of the run that is reached."""
        is_late = self._until_us and now_us >= self._until_us
        return self._purse.budget.time_is_up() if is_late else self._purse.reached

    def _spends(self, task: TaskState) -> bool:
        """Whether what a task needs next is an agent that takes a share of the run's money."""
        return bool(self._purse.budget.cost_usd) and self._kind(task) not in ("", *REPEATABLE)

    def _record(self, event: RunEvent) -> None:
        self._events.append(self.recorder.fold_in(event))

    def _handle(self, command: Any, version: int, now_us: int) -> None:
        if isinstance(command, PauseRequested) or (isinstance(command, CancelRequested) and not command.task):
            self._pausing, self._stopped_by = command.why or "asked", command.by
            self._limit = NOTHING_REACHED
            self._is_cancelled = self._is_cancelled or isinstance(command, CancelRequested)
            return
        decision = self._handler.decide(self.run, command, version, now_us)
        self._also += decision.also
        for event in decision.events:
            self._record(event)
            match event:
                case RunPlanned():
                    self._line_up(event)
                case RunEnded():  # a person refused the plan: other agents at work are stopped
                    self._pausing, self._stopped_by, self._is_cancelled = event.why, event.by, True
                case QuestionAsked():
                    self._watch_expiry(event.id)
                case RunWoken():
                    self._wake(now_us)
                case RunUpdated():
                    self._apply_limits(event, now_us)
                case TaskReleased():
                    self._enqueue(self.run.tasks[event.task])
                case TaskRetried():
                    self._unblock([event.task])
                case TaskSkipped():
                    self._unblock(self.run.needed_by.get(event.task, ()))
                case TaskStopping() if event.task not in self._tasks:
                    self._conclude(self.run.tasks[event.task], Outcome(failure="stopped"), now_us)

    def _apply_limits(self, event: RunUpdated, now_us: int) -> None:
        """Keep the limits that a person has changed; what is being paused for one that is not reached now continues."""
        if event.limits.concurrency is not None:
            self._concurrency = event.limits.concurrency
        if event.limits.time_limit_s is not None:
            self._worker.limit_again(self.run)
        self._purse.set_budget(Budget.of(self.run.options))
        while self._unpaid:
            heapq.heappush(self._ready, self._unpaid.pop())
        if self._limit and not self._reached(now_us):
            self._pausing, self._limit = "", NOTHING_REACHED
            for name, task in self.run.tasks.items():
                if task.status == TaskStatus.GATED and name not in self._tasks:
                    self._continue(name)

    def _conclude(self, task: TaskState, outcome: Outcome, now_us: int) -> None:
        if outcome.is_limited:
            until_us, kind = outcome.until_us(now_us), self._kind(task)
            self._record(RunHibernated(kind=kind, until_us=until_us, why=outcome.message, at_us=now_us))
        elif outcome.failure and TABLE[outcome.failure].of_kind and self._kind(task) not in self.run.blocked:
            self._record(decisions.blocked(self.run, self._kind(task), outcome, now_us))
        event = what_follows(task, outcome, now_us, resolve=decisions.first_resolution(self.run, task, outcome))
        if outcome.proposed is not None and not task.stopping:
            self._record(replace(outcome.proposed, at_us=now_us))
        self._record(event)
        self._purse.conclude(task.name)
        while self._unpaid:
            heapq.heappush(self._ready, self._unpaid.pop())
        match event:
            case TaskFinished() | TaskSkipped():
                self._unblock(self.run.needed_by.get(task.name, ()))
                is_approved = isinstance(event, TaskFinished) and task is self.run.planner
                if is_approved and (approved := self.run.proposal) is not None:
                    known = {**approved.options.get("agents", {}), **(self.run.options.get("agents") or {})}
                    planned = RunPlanned(tasks=approved.tasks, options={"agents": known}, at_us=now_us)
                    self._record(planned)
                    self._line_up(planned)
            case TaskReleased():
                self._enqueue(task)

    def _line_up(self, planned: RunPlanned) -> None:
        """Let tasks that were added start as soon as those they need are done."""
        names = [each["name"] for each in planned.tasks]
        self._order |= {name: place for place, name in enumerate(names, len(self._order))}
        self._unblock(names)

    def _unblock(self, names: Sequence[str]) -> None:
        for name in names:
            task = self.run.tasks[name]
            if task.missing == 0 and task.status == TaskStatus.WAITING:
                self._enqueue(task)

    def _watch_expiry(self, id: str) -> None:
        question = self.run.questions[id]
        if question.default is not None and question.expires_us and question.answer is None:
            heapq.heappush(self._expiring, (question.expires_us, id))

    def _expire_questions(self, now_us: int) -> None:
        """A question with a default and a time limit answers itself when the time has come."""
        while self._expiring and self._expiring[0][0] <= now_us:
            question = self.run.questions[heapq.heappop(self._expiring)[1]]
            if question.answer is None and question.default is not None:
                answered = QuestionAnswered(id=question.id, answer=question.default, by=decisions.DEFAULT, at_us=now_us)
                self._handle(answered, self._inbox_version, now_us)

    def _stop(self, now_us: int) -> RunEvent:
        """All agents have stopped: the run is paused, or has ended if it was cancelled."""
        common: dict[str, Any] = {
            "why": self._pausing,
            "by": self._stopped_by,
            "inbox_version": self._inbox_version,
            "at_us": now_us,
        }
        if self._is_cancelled:
            return RunEnded(status=RunStatus.CANCELLED, **common)
        if self._limit:  # with what was spent in the end
            common["why"] = (self._reached(now_us) or self._limit).why
        return RunPaused(limit=self._limit.limit, **common)

    def _ending(self, now_us: int) -> RunEnded:
        run = self.run
        if run.done == len(run.tasks):
            return RunEnded(status=RunStatus.COMPLETED, at_us=now_us)
        bad = sorted(task.name for task in run.tasks.values() if task.status == TaskStatus.FAILED)
        return RunEnded(status=RunStatus.FAILED, why=f"{', '.join(bad)} failed", at_us=now_us)

    # --- waiting for a time ----------------------------------------------------------------------------------

    def _enqueue(self, task: TaskState) -> None:
        if not self._waits(task, self._clock.now_us()):
            heapq.heappush(self._ready, (-int(task.plan.get("priority", 0)), self._order[task.name], task.name))

    def _waits(self, task: TaskState, now_us: int) -> bool:
        """Whether a task must wait: for a time, its own or that of its kind, after which it is looked at again; or for
        a person, since no agent of its kind can work."""
        if self.run.blocked and self._kind(task) in self.run.blocked:
            self._blocked.append(task.name)
            return True
        if not task.not_before_us and not self.run.sleeping:
            return False
        until_us = max(task.not_before_us, self._wakes_us(self._kind(task), now_us))
        if until_us > now_us:
            heapq.heappush(self._later, (until_us, self._order[task.name], task.name))
        return until_us > now_us

    def _wakes_us(self, kind: str, now_us: int) -> int:
        """When the next agent of a kind may begin: those who slept wake up one after the other.

        When they wake up is in the fold, so it is the same for an engine that comes after a crash.
        """
        until_us = self.run.sleeping.get(kind, 0)
        is_waking = until_us <= now_us < until_us + self._concurrency * int(STAGGER_S * MICROSECONDS)
        return self._next_us.get(kind, 0) if is_waking else until_us

    def _note_begin(self, task: TaskState, now_us: int) -> None:
        if self.run.sleeping:
            self._next_us[self._kind(task)] = now_us + int(STAGGER_S * MICROSECONDS)

    def _kind(self, task: TaskState) -> str:
        """Whose limits count for what a task needs next: those of its agent, or of the one that reviews it."""
        if task.status != TaskStatus.GATED or task.resolve == decisions.BY_TASK_AGENT:
            return agent_types.kind_of(self.run.options, task.plan)
        gates = task.plan.get("gates", ())
        is_review = task.gate < len(gates) and gates[task.gate].get("review")
        return str(self.run.options.get("kind", "")) if is_review else ""

    def _wake(self, now_us: int) -> None:
        """Look again at all that waits: rate limits and missing logins count no more."""
        later, self._later = self._later, []
        later += [(now_us, self._order[name], name) for name in self._blocked]
        self._blocked = []
        for _until_us, order, name in later:
            task = self.run.tasks[name]
            until_us = max(task.not_before_us, self._wakes_us(self._kind(task), now_us))
            heapq.heappush(self._later, (until_us, order, name))

    # --- acting ----------------------------------------------------------------------------------------------

    def _act(self, events: Sequence[RunEvent]) -> None:
        for event in events:
            if isinstance(event, TaskStarted) or (isinstance(event, TaskGated | TaskRetried) and not self._pausing):
                is_active = self.run.tasks[event.task].status in (TaskStatus.RUNNING, TaskStatus.GATED)
                if is_active and event.task not in self._tasks:
                    self._continue(event.task)
        if self._listener is not None:
            self._listener(self.run, events)

    def _continue(self, name: str) -> None:
        """Have the worker do what a task needs next: work, a check, or the completion."""
        task, now_us = self.run.tasks[name], self._clock.now_us()
        gates = task.plan.get("gates", ())
        if task.status == TaskStatus.RUNNING:
            work = self._worker.work(self.run, task)
        elif task.failure == "merge_conflict" and not task.resolve:  # a person decides how it is merged
            self._ask(decisions.conflict_question(self.run, task, now_us))
            return
        elif task.gate < len(gates) and gates[task.gate].get("person"):
            self._ask(decisions.gate_question(self.run, task, gates[task.gate]["person"], now_us))
            return
        elif self._waits(task, now_us):
            return
        elif self._spends(task) and not self._purse.affords_another and self._tasks:
            heapq.heappush(self._later, (now_us + int(UNPAID_S * MICROSECONDS), self._order[name], name))
            return
        else:
            if self._spends(task):
                self._purse.begin(name)
            self._note_begin(task, now_us)
            does = self._worker.check if task.gate < len(gates) else self._worker.complete
            work = does(self.run, task)
        self._tasks[name] = asyncio.create_task(work, name=name)
        self._tasks[name].add_done_callback(self._note_end)

    def _ask(self, question: QuestionAsked) -> None:
        if question.id not in self.run.questions:
            self._commands.append((question, self._inbox_version))
            self._news.set()

    def _note_end(self, task: asyncio.Task[Outcome]) -> None:
        self._ended.append(task.get_name())
        self._news.set()

    async def _wait(self, watchers: Sequence[asyncio.Task[None]]) -> None:
        running = [self.run.tasks[name] for name, work in self._tasks.items() if not work.done()]
        is_stopped = self._pausing and self._limit.limit in ("", "time_s")
        await asyncio.gather(*(self._worker.stop(self.run, task) for task in running if is_stopped or task.stopping))
        times_us = [heap[0][0] for heap in (self._later, self._expiring) if heap]
        if self._until_us and not self._pausing:
            times_us.append(self._until_us)
        timeout_s = max(0.0, (min(times_us) - self._clock.now_us()) / MICROSECONDS) if times_us else None
        news = asyncio.create_task(self._news.wait())
        try:
            await asyncio.wait((news, *watchers), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
        for failed in (each for each in watchers if each.done()):
            failed.result()
        self._news.clear()
