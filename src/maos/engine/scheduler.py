"""Carries out a run: begins tasks whose needs are met, and records what becomes of them.

What is decided together is recorded in one append, so finishing a task and beginning those that waited for it cannot
come apart (I30). A task that is recorded as begun is worked on by whoever runs the run; the worker finds out for itself
whether there is something to go on with.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from maos.clock import MICROSECONDS, Clock
from maos.engine.budgets import Budget
from maos.engine.recorder import Recorder
from maos.errors import InvalidInput
from maos.journal.codec import Event
from maos.journal.journal import Append, Record
from maos.model import plan
from maos.model.attempt import inbox
from maos.model.failure import FRESH, NOTHING, RESUME, RETRY, TABLE, WAIT
from maos.model.run import COMPLETED, FAILED, GATED, RUNNING, WAITING, Run, TaskState, agent_name

BACKOFF_S = 5.0
BACKOFF_S_MAX = 600.0
STAGGER_S = 2.0
"""Between the agents that wake up after a rate limit, so that they do not run into the next one together."""
LIMIT_UNKNOWN_S = 300.0
"""How long a rate limit is waited for when nobody said until when."""
TASKS_ASKED_MAX = 100
"""How many tasks agents may add to a run while this engine carries it out."""
YES = ("yes", "y", "ok", "true")

Listener = Callable[[Run, Sequence[Event]], None]


class Outcome(NamedTuple):
    """What became of an attempt at a task, or of a gate."""

    result: str = ""
    failure: str = ""
    """Empty when it went well; else a name from the failure table."""
    message: str = ""
    reset_us: int = 0
    cost_usd: float = 0.0
    tokens: int = 0
    commit: str = ""
    merged: str = ""
    """The commit that has the work of all tasks done so far."""


class Worker(Protocol):
    """Who does the tasks."""

    async def work(self, run: Run, task: TaskState) -> Outcome:
        """Begin a task that is recorded as begun, or go on with it; returns when this try is over.

        A task without gates is then completed; for one with gates, `complete` is called when it has passed them.
        """
        ...

    async def check(self, run: Run, task: TaskState) -> Outcome:
        """Let the task's next gate, a command or a reviewer, look at its work."""
        ...

    async def complete(self, run: Run, task: TaskState) -> Outcome:
        """Bring the work of a task that has passed all its gates together with that of the others."""
        ...

    async def stop(self, run: Run, task: TaskState) -> None:
        """Have a task stopped; its `work` then returns."""
        ...


class Scheduler:
    """One run that this engine carries out."""

    def __init__(
        self,
        recorder: Recorder[Run],
        worker: Worker,
        clock: Clock,
        *,
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
        self._order = {name: number for number, name in enumerate(recorder.fold.tasks)}
        self._tasks: dict[str, asyncio.Task[Outcome]] = {}
        self._over: list[str] = []
        self._news = asyncio.Event()
        self._wishes: list[Record] = []
        self._wished = recorder.fold.inbox_cursor
        self._pausing = ""
        self._asked = 0
        self._budget = Budget.of(recorder.fold.options)
        self._until_us = clock.now_us() + int(self._budget.time_s * MICROSECONDS) if self._budget.time_s else 0

    @property
    def run(self) -> Run:
        """What is known of it."""
        return self.recorder.fold

    def wish(self, record: Record) -> None:
        """Something from the run's inbox; asked for twice, it is done once."""
        if record.version > self._wished:
            self._wished = record.version
            self._wishes.append(record)
            self._news.set()

    def pause(self, why: str) -> None:
        """Have all agents stopped and begin no more tasks."""
        self._pausing = self._pausing or why
        self._news.set()

    async def carry_out(self) -> Run:
        """Until the run has ended or is paused; cancelled, let go of it."""
        lease = asyncio.create_task(self.recorder.keep_lease())
        try:
            self._take_stock()
            while True:
                events, also = self._decide()
                if events:
                    await self.recorder.append(*events, also=also)
                    self._act(events)
                    continue
                if self.run.status != RUNNING and not self._tasks:
                    return self.run
                await self._wait(lease)
        finally:
            for task in (lease, *self._tasks.values()):
                task.cancel()
            await asyncio.gather(lease, *self._tasks.values(), return_exceptions=True)

    # --- deciding --------------------------------------------------------------------------------------------

    def _take_stock(self) -> None:
        """From the fold alone: what could begin, what waits, and what somebody worked on when the engine died."""
        for name, task in self.run.tasks.items():
            if task.status in (RUNNING, GATED):
                self._go_on(name)
            elif task.status == WAITING and task.missing == 0:
                self._line_up(task)

    def _line_up(self, task: TaskState) -> None:
        place = self._order[task.name]
        if task.not_before_us > self._clock.now_us():
            heapq.heappush(self._later, (task.not_before_us, place, task.name))
        else:
            heapq.heappush(self._ready, (-int(task.plan.get("priority", 0)), place, task.name))

    def _decide(self) -> tuple[list[Event], list[Append]]:
        """What follows from what has happened: events for the run, and for others; nothing is applied yet."""
        now_us = self._clock.now_us()
        events: list[Event] = []
        also: list[Append] = []
        while self._wishes and not events:  # one at a time: the next may depend on what this one changes
            self._grant(self._wishes.pop(0), now_us, events, also)
        if not events:
            self._expire_questions(now_us, events, also)
        over, self._over = self._over, []
        for name in over:
            events.append(self._outcome(self.run.tasks[name], self._tasks.pop(name).result(), now_us))
        if self.run.status != RUNNING or events:
            return events, also  # begun is what may begin after these
        if not self._pausing and self.run.done < len(self.run.tasks):
            is_late = self._until_us and now_us >= self._until_us
            self._pausing = self._budget.time_is_up() if is_late else self._budget.reached(self.run)
        if self._pausing:
            paused = _event("run_paused", now_us, why=self._pausing, inbox_version=self._wished)
            return ([] if self._tasks else [paused]), also
        while self._later and self._later[0][0] <= now_us:
            task = self.run.tasks[heapq.heappop(self._later)[2]]
            heapq.heappush(self._ready, (-int(task.plan.get("priority", 0)), self._order[task.name], task.name))
        while self._ready and len(self._tasks) + len(events) < self._concurrency:
            task = self.run.tasks[heapq.heappop(self._ready)[2]]
            events.append(_event("task_started", now_us, task=task.name, number=task.attempts + 1))
        if not (events or self._tasks or self._later or self._waits_for_a_person()):
            events.append(self._ending(now_us))
        return events, also

    def _grant(self, record: Record, now_us: int, events: list[Event], also: list[Append]) -> None:
        data = {**record.data, "inbox_version": record.version}
        data.pop("at_us", None)
        if record.type == "pause_asked":
            self._pausing = data.get("why") or "asked"
        elif record.type == "tasks_asked":
            self._add_tasks(data, now_us, events, also)
        elif record.type == "checkpoint_asked":
            events.append(_event("run_checkpointed", now_us, commit=self.run.commit, trigger="asked", **data))
            wish = Event("checkpoint_asked", {"name": data["name"], "at_us": now_us})
            at_work = [task.name for task in self.run.tasks.values() if task.status == RUNNING]
            also += [Append(inbox(agent_name(self.run.id, name)), [wish]) for name in at_work]
        elif record.type == "question_asked":
            events.append(_event("question_asked", now_us, **data))
        elif record.type == "question_answered":
            question = self.run.questions.get(data["id"])
            if question is None or question.answer is not None:
                return  # the first answer counts
            events.append(_event("question_answered", now_us, **data))
            if data["id"].startswith("gate/"):
                events.append(self._after_gate(data["id"], data["answer"], now_us))
                return
            said = f"Answer to your question {question.question!r}: {data['answer']}"
            message = Event("message_sent", {"text": said, "sender": data.get("by", "person"), "at_us": now_us})
            also += [Append(inbox(agent), [message]) for agent in question.asked_by]

    def _add_tasks(self, data: dict[str, Any], now_us: int, events: list[Event], also: list[Append]) -> None:
        """Tasks that an agent has asked for; one that makes no sense is refused, and the agent told why."""
        known = [each.plan for each in self.run.tasks.values()]
        try:
            if self._asked + len(data["tasks"]) > TASKS_ASKED_MAX:
                raise InvalidInput(f"agents have asked for {self._asked} tasks", hint="no more are taken in this run")
            plan.from_data({"tasks": [*known, *data["tasks"]]})
        except InvalidInput as error:
            said = Event("message_sent", {"text": f"Your task was refused: {error}", "sender": "maos", "at_us": now_us})
            also.append(Append(inbox(data["asked_by"]), [said]))
            events.append(_event("run_noted", now_us, inbox_version=data["inbox_version"], text=str(error)))
            return
        self._asked += len(data["tasks"])
        first = len(self._order)
        self._order |= {each["name"]: first + place for place, each in enumerate(data["tasks"])}
        more = {"tasks": data["tasks"], "asked_by": data["asked_by"], "inbox_version": data["inbox_version"]}
        events.append(_event("run_planned", now_us, **more))

    def _expire_questions(self, now_us: int, events: list[Event], also: list[Append]) -> None:
        """A question with a default and a time limit answers itself when the time has come."""
        for question in self.run.open_questions:
            if question.default is not None and 0 < question.expires_us <= now_us:
                data = {"id": question.id, "answer": question.default, "by": "default"}
                self._grant(self._own_wish("question_answered", data), now_us, events, also)

    def _own_wish(self, type_: str, data: dict[str, Any]) -> Record:
        """Something that the run wants of itself."""
        return Record(0, "", self._wished, 1, type_, 0, 0, data, b"", 0)

    def _outcome(self, task: TaskState, outcome: Outcome, now_us: int) -> Event:
        spent: dict[str, Any] = {"task": task.name, "cost_usd": outcome.cost_usd, "tokens": outcome.tokens}
        spent |= {name: value for name, value in (("commit", outcome.commit), ("merged", outcome.merged)) if value}
        if not outcome.failure:
            gates = len(task.plan.get("gates", ()))
            if task.status == RUNNING and gates:
                return _event("task_gated", now_us, passed=0, result=outcome.result, **spent)
            if task.status == GATED and task.gate < gates:
                return _event("task_gated", now_us, passed=task.gate + 1, result=task.result, **spent)
            return _event("task_finished", now_us, result=outcome.result or task.result, **spent)
        failure = TABLE[outcome.failure]
        spent |= {"failure": failure.name, "why": outcome.message or failure.meaning}
        if failure.action == WAIT:
            until_us = outcome.reset_us or now_us + int(LIMIT_UNKNOWN_S * MICROSECONDS)
            until_us += self._order[task.name] % 10 * int(STAGGER_S * MICROSECONDS)
            return _event("task_released", now_us, not_before_us=until_us, **spent)
        if failure.action == NOTHING and task.status == GATED:  # its own work is done, only the check is not
            return _event("task_gated", now_us, task=task.name, passed=task.gate, cost_usd=outcome.cost_usd)
        if failure.action == NOTHING:
            return _event("task_released", now_us, **spent)
        if failure.action in (RETRY, RESUME, FRESH) and task.tries < failure.tries_max:
            pause_s = min(BACKOFF_S * 2**task.tries, BACKOFF_S_MAX) if failure.action == RETRY else 0.0
            until_us = now_us + int(pause_s * MICROSECONDS) if pause_s else 0
            return _event("task_released", now_us, not_before_us=until_us, counts=True, **spent)
        return _event("task_failed", now_us, **spent)

    def _after_gate(self, id: str, answer: str, now_us: int) -> Event:
        task = self.run.tasks[id.split("/")[1]]
        if answer.strip().lower() in YES:
            return _event("task_gated", now_us, task=task.name, passed=task.gate + 1)
        return self._outcome(task, Outcome(failure="gate_failed", message=f"a person said: {answer}"), now_us)

    def _waits_for_a_person(self) -> bool:
        return any(task.status == GATED for task in self.run.tasks.values())

    def _ending(self, now_us: int) -> Event:
        run = self.run
        if run.done == len(run.tasks):
            return _event("run_ended", now_us, status=COMPLETED)
        bad = sorted(task.name for task in run.tasks.values() if task.status == FAILED)
        return _event("run_ended", now_us, status=FAILED, why=f"{', '.join(bad)} failed")

    # --- acting ----------------------------------------------------------------------------------------------

    def _act(self, events: Sequence[Event]) -> None:
        unblocked: dict[str, None] = {}
        for event in events:
            name: str = event.data.get("task", "")
            if event.type == "task_started" or (event.type == "task_gated" and not self._pausing):
                self._go_on(name)
            elif event.type == "task_released" and not self._pausing:
                self._line_up(self.run.tasks[name])
            elif event.type == "run_planned":
                unblocked |= dict.fromkeys(each["name"] for each in event.data["tasks"])
            elif event.type == "task_finished":
                unblocked |= dict.fromkeys(self.run.needed_by.get(name, ()))
        for name in unblocked:
            if self.run.tasks[name].missing == 0:
                self._line_up(self.run.tasks[name])
        if self._listener is not None:
            self._listener(self.run, events)

    def _go_on(self, name: str) -> None:
        """Have somebody do what a task needs next: work, a check, or the completion."""
        task = self.run.tasks[name]
        gates = task.plan.get("gates", ())
        if task.status == RUNNING:
            work = self._worker.work(self.run, task)
        elif task.gate == len(gates):
            work = self._worker.complete(self.run, task)
        elif gates[task.gate].get("person"):
            self._ask_gate(task, gates[task.gate]["person"])
            return
        else:
            work = self._worker.check(self.run, task)
        self._tasks[name] = asyncio.create_task(work, name=name)
        self._tasks[name].add_done_callback(self._note_over)

    def _ask_gate(self, task: TaskState, question: str) -> None:
        id = f"gate/{task.name}/{task.gate}/{task.attempts}"
        if id not in self.run.questions:
            data = {"id": id, "question": question, "choices": ["yes", "no"], "asked_by": [], "context": task.result}
            self._wishes.append(self._own_wish("question_asked", data))
            self._news.set()

    def _note_over(self, task: asyncio.Task[Outcome]) -> None:
        self._over.append(task.get_name())
        self._news.set()

    async def _wait(self, lease: asyncio.Task[None]) -> None:
        if self._pausing and self._tasks:
            running = [self.run.tasks[name] for name in self._tasks]
            await asyncio.gather(*(self._worker.stop(self.run, task) for task in running))
        moments = [self._later[0][0]] if self._later else []
        moments += [each.expires_us for each in self.run.open_questions if each.default is not None and each.expires_us]
        timeout_s = max(0.0, (min(moments) - self._clock.now_us()) / MICROSECONDS) if moments else None
        if self._until_us and not self._pausing:
            left_s = max(0.0, (self._until_us - self._clock.now_us()) / MICROSECONDS)
            timeout_s = left_s if timeout_s is None else min(timeout_s, left_s)
        news = asyncio.create_task(self._news.wait())
        try:
            await asyncio.wait((news, lease), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
        if lease.done():
            lease.result()
        self._news.clear()


def _event(type_: str, now_us: int, **data: Any) -> Event:
    return Event(type_, {**data, "at_us": now_us})
