"""The command handler of a run: questions, answers, more tasks, checkpoints, retry, skip and cancel.

What others are told about it is sent over the bus in the same append, so that it is in the history like everything
else that is said, and one is not there without the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from maos.bus.bus import Bus
from maos.engine import checkpoints
from maos.errors import InvalidInput
from maos.journal.journal import Append
from maos.model import plan
from maos.model.events.commands import (
    CancelRequested,
    CheckpointRequested,
    RetryRequested,
    SkipRequested,
    TasksRequested,
    WakeRequested,
)
from maos.model.events.run import (
    QuestionAnswered,
    QuestionAsked,
    RunEvent,
    RunNoteAdded,
    RunPlanned,
    RunWoken,
    TaskFailed,
    TaskGated,
    TaskRetried,
    TaskSkipped,
    TaskStopping,
)
from maos.model.message import PERSON, inbox
from maos.model.question import yes_or_no
from maos.model.run import GATE, Run, TaskState, asked_for
from maos.model.status import TaskStatus
from maos.runs import outcomes
from maos.runs.budgets import SENDER
from maos.runs.outcomes import Outcome, what_follows

TASKS_REQUESTED_MAX = 100
"""How many tasks agents may add to a run while one engine executes it."""
TEXT_CHARS_MAX = 100_000
DEFAULT = "default"
"""Who gave the answer to a question that answered itself."""


class Decision(NamedTuple):
    """What follows from a command."""

    events: Sequence[RunEvent] = ()
    """For the run."""
    also: Sequence[Append] = ()
    """For others."""


def gate_question(task: TaskState, question: str, now_us: int) -> QuestionAsked:
    """What a person is asked whose word a task's gate waits for."""
    return QuestionAsked(
        id=task.asks, question=question, choices=["yes", "no"], asked_by=[], context=task.result, at_us=now_us
    )


class CommandHandler:
    """Decides which commands from the inbox of a run are applied."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._asked = 0

    def decide(self, run: Run, command: Any, version: int, now_us: int) -> Decision:
        """Decide on a command with its version in the inbox. One that no longer makes sense changes nothing, nor does
        one from an agent of a branch that was given up (I14)."""
        asked_by = getattr(command, "asked_by", ())
        if not all(map(run.accepts_from, [asked_by] if isinstance(asked_by, str) else asked_by)):
            return Decision()
        match command:
            case TasksRequested():
                return self._add_tasks(run, command, version, now_us)
            case CheckpointRequested():
                return self._checkpoint(run, command.name, version, now_us)
            case QuestionAsked():
                return Decision([replace(command, inbox_version=version, at_us=now_us)])
            case QuestionAnswered():
                return self._answer(run, replace(command, inbox_version=version, at_us=now_us))
            case RetryRequested():
                return _retry(run, command, version, now_us)
            case SkipRequested():
                return _end_task(run, command, TaskStatus.SKIPPED, version, now_us)
            case CancelRequested():
                return _end_task(run, command, TaskStatus.FAILED, version, now_us)
            case WakeRequested() if run.wakes_us > now_us:
                return Decision([RunWoken(by=command.by, inbox_version=version, at_us=now_us)])
        return Decision()

    def _answer(self, run: Run, answered: QuestionAnswered) -> Decision:
        id = answered.id
        question = run.questions.get(id)
        if question is None or question.answer is not None:
            return Decision()  # the first answer counts
        task = run.tasks.get(asked_for(id))
        if task is not None and task.asks == id:  # else it continues, or is done, without that answer (I29)
            follows = _after_gate if id.startswith(GATE) else outcomes.after_conflict
            return Decision([answered, follows(task, answered)])
        text = f"Answer to your question {question.question!r}: {answered.answer}"
        sender = SENDER if answered.by == DEFAULT else PERSON
        told = [self._tell(run, sender, agent, text, "response", question=id) for agent in question.asked_by]
        return Decision([answered], [each for appends in told for each in appends])

    def _add_tasks(self, run: Run, wanted: TasksRequested, version: int, now_us: int) -> Decision:
        """Tasks that an agent has asked for; one that makes no sense is refused, and the agent told why."""
        by, count = wanted.asked_by, len(wanted.tasks)
        try:
            if self._asked + count > TASKS_REQUESTED_MAX:
                raise InvalidInput(f"agents have asked for {self._asked} tasks", hint="no more are taken in this run")
            plan.from_data({"tasks": [*(each.plan for each in run.tasks.values()), *wanted.tasks]})
        except InvalidInput as error:
            told = self._tell(run, SENDER, by, f"Your task was refused: {error}", "error")
            return Decision([RunNoteAdded(text=str(error), inbox_version=version, at_us=now_us)], told)
        self._asked += count
        return Decision([RunPlanned(tasks=wanted.tasks, asked_by=by, inbox_version=version, at_us=now_us)])

    def _checkpoint(self, run: Run, name: str, version: int, now_us: int) -> Decision:
        saved = checkpoints.made(run, name, "asked", now_us, inbox_version=version)
        requested = CheckpointRequested(name=name, at_us=now_us)
        at_work = [task.name for task in run.tasks.values() if task.status == TaskStatus.RUNNING]
        return Decision([saved], [Append(inbox(run.agent(name)), [requested]) for name in at_work])

    def _tell(self, run: Run, sender: str, to: str, text: str, type: str, **metadata: Any) -> list[Append]:
        return self._bus.enclosed(sender, to, text[:TEXT_CHARS_MAX], run=run.id, type=type, metadata=metadata)


def _after_gate(task: TaskState, answered: QuestionAnswered) -> RunEvent:
    if yes_or_no(answered.answer):
        return TaskGated(task=task.name, passed=task.gate + 1, at_us=answered.at_us)
    refused = Outcome(failure="gate_failed", message=f"a person said: {answered.answer}")
    return what_follows(task, refused, answered.at_us)


def _retry(run: Run, command: RetryRequested, version: int, now_us: int) -> Decision:
    failed = [name for name, task in run.tasks.items() if task.status == TaskStatus.FAILED]
    if command.tasks:
        failed = [name for name in failed if name in command.tasks]
    if not failed:
        return _refuse("no failed task is left to retry", version, now_us)
    return Decision([TaskRetried(task=name, inbox_version=version, at_us=now_us) for name in failed])


def _end_task(
    run: Run, command: SkipRequested | CancelRequested, then: TaskStatus, version: int, now_us: int
) -> Decision:
    """Skip or cancel a task: at once, or, while an agent works on it, as soon as that has been stopped."""
    task = run.tasks.get(command.task)
    if task is None or task.status.is_done or then in (task.status, task.stopping):
        return _refuse(f"{command.task} is {task.status if task else 'no task'}", version, now_us)
    if isinstance(command, CancelRequested) and command.attempt and command.attempt != task.attempts:
        return _refuse(f"attempt {command.attempt} at {command.task} has ended", version, now_us)
    why = command.why or ("a person cancelled it" if then == TaskStatus.FAILED else "")
    if task.status == TaskStatus.RUNNING or (task.status == TaskStatus.GATED and not task.asks):
        return Decision([TaskStopping(task=task.name, then=then, why=why, inbox_version=version, at_us=now_us)])
    ended: RunEvent = TaskSkipped(task=task.name, why=why, inbox_version=version, at_us=now_us)
    if then == TaskStatus.FAILED:
        ended = TaskFailed(task=task.name, failure="cancelled", why=why, inbox_version=version, at_us=now_us)
    if task.asks in run.questions:  # no person needs to answer it any more
        closed = QuestionAnswered(id=task.asks, answer=str(then.value), by=PERSON, at_us=now_us)
        return Decision([ended, closed])
    return Decision([ended])


def _refuse(why: str, version: int, now_us: int) -> Decision:
    return Decision([RunNoteAdded(text=why, inbox_version=version, at_us=now_us)])
