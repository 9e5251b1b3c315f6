"""Decides what follows for a run: from the outcome of an attempt or of a check, and from a command in its inbox.

A merge conflict loses nothing: the task's work is a commit of its own, the work of the others is not touched, and tasks
that do not need this one continue while a person decides. Messages that follow from a command are sent over the bus in
the same append, so that they are in the history exactly when the command was applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from maos.bus.bus import Bus
from maos.clock import MICROSECONDS
from maos.engine import checkpoints
from maos.errors import InvalidInput
from maos.journal.journal import Append
from maos.model import plan
from maos.model.attempt import Attempt
from maos.model.events.commands import (
    CancelRequested,
    CheckpointRequested,
    RetryRequested,
    SkipRequested,
    TasksRequested,
    WakeRequested,
)
from maos.model.events.parts import PERSON
from maos.model.events.run import (
    QuestionAnswered,
    QuestionAsked,
    RunEvent,
    RunNoteAdded,
    RunPlanned,
    RunWoken,
    TaskFailed,
    TaskFinished,
    TaskGated,
    TaskReleased,
    TaskRetried,
    TaskSkipped,
    TaskStopping,
)
from maos.model.failure import FRESH, NOTHING, RESUME, RETRY, TABLE, WAIT
from maos.model.message import inbox
from maos.model.plan import BY_AGENT
from maos.model.question import yes_or_no
from maos.model.run import GATE, Run, TaskState, asked_for
from maos.model.status import TaskStatus
from maos.runs.budgets import SENDER
from maos.workspaces import OTHERS, OWN

BACKOFF_S = 5.0
BACKOFF_S_MAX = 600.0
LIMIT_UNKNOWN_S = 300.0
"""How long a rate limit is waited for when its end is not known."""
LIMIT_S_MAX = 40 * 86_400.0
"""The longest limit that is waited for: no plan of a model is limited for longer than a month."""
MERGE_AGAIN, BY_TASK_AGENT, GIVE_UP = "retry", "agent", "give up"
"""How a person can have a merge conflict resolved, beside choosing a side."""
CHOICES = {
    MERGE_AGAIN: "merge again, after you have changed something",
    OWN: "take these files as this task left them; what the others changed in them is dropped",
    OTHERS: "keep these files as the others left them; what this task changed in them is dropped",
    BY_TASK_AGENT: "let the task's agent merge both sides",
    GIVE_UP: "the task fails; resuming the run asks again",
}
FILES_SHOWN_MAX = 20
CONFLICT_TASK = """The work of a task could not be merged with that of others: both changed the same lines. \
The files in this folder have both sides now, with conflict markers (<<<<<<<, =======, >>>>>>>) where they differ:

{files}

Merge both sides in these files, so that what each of them does still works, and remove all markers. Change \
nothing else, and do not commit. The task was:

{task}"""
_MARKERS = (b"<<<<<<< ", b">>>>>>> ")
TASKS_REQUESTED_MAX = 100
"""How many tasks agents may add to a run while one engine executes it."""
TEXT_CHARS_MAX = 100_000
DEFAULT = "default"
"""Who gave the answer to a question that answered itself."""


class Outcome(NamedTuple):
    """The outcome of an attempt at a task, or of a gate."""

    result: str = ""
    failure: str = ""
    """Empty when it went well; else a name from the failure table."""
    message: str = ""
    reset_us: int = 0
    at_us: int = 0
    """When the outcome was known; 0 for now. An engine that was detached reads it later."""
    cost_usd: float = 0.0
    tokens: int = 0
    commit: str = ""
    merged: str = ""
    """The commit that has the work of all tasks done so far."""
    files: tuple[str, ...] = ()
    """Those that could not be merged."""

    @property
    def is_limited(self) -> bool:
        """Whether a limit was reached that ends by itself: not a failure, but a reason to wait."""
        return bool(self.failure) and TABLE[self.failure].action == WAIT

    def until_us(self, now_us: int) -> int:
        """How long a limit lasts. An end in the past, or years after the limit was met, tells nothing."""
        met_us = self.at_us or now_us
        if met_us < self.reset_us <= met_us + int(LIMIT_S_MAX * MICROSECONDS):
            return self.reset_us
        return met_us + int(LIMIT_UNKNOWN_S * MICROSECONDS)


def tokens_of(attempt: Attempt) -> int:
    """The tokens that an attempt took."""
    tokens = attempt.total_tokens
    return tokens.input + tokens.output


def outcome_of(attempt: Attempt) -> Outcome:
    """What an attempt that has ended came to."""
    return Outcome(
        result=attempt.result or attempt.last_text,
        failure=attempt.failure,
        message=attempt.message,
        reset_us=attempt.reset_us,
        at_us=attempt.ended_us,
        cost_usd=attempt.total_cost_usd,
        tokens=tokens_of(attempt),
        commit=attempt.saved,
    )


def what_follows(
    task: TaskState, outcome: Outcome, now_us: int, *, resolve: str = ""
) -> TaskReleased | TaskGated | TaskFinished | TaskFailed | TaskSkipped:
    """The event that records an outcome; `resolve` is how a conflict is resolved if it is one.

    A task that was being stopped is then cancelled or skipped, unless it was finished all the same.
    """
    gates = len(task.plan.get("gates", ()))
    common: dict[str, Any] = {
        "task": task.name,
        "cost_usd": outcome.cost_usd,
        "tokens": outcome.tokens,
        "commit": outcome.commit,
        "merged": outcome.merged,
        "at_us": now_us,
    }
    is_finished = not outcome.failure and (task.gate >= gates if task.status == TaskStatus.GATED else not gates)
    if task.stopping and not is_finished:
        if task.stopping == TaskStatus.SKIPPED:
            return TaskSkipped(why=task.why, **common)
        return TaskFailed(failure="cancelled", why=task.why, **common)
    if not outcome.failure:
        if task.status == TaskStatus.RUNNING and gates:
            return TaskGated(passed=0, result=outcome.result, **common)
        if task.status == TaskStatus.GATED and task.gate < gates:
            return TaskGated(passed=task.gate + 1, **common)
        return TaskFinished(result=outcome.result or task.result, **common)
    failure = TABLE[outcome.failure]
    name, why = failure.name, outcome.message or failure.meaning
    if name == "merge_conflict":  # nothing is lost: the work is done, and stays as it is until it is merged
        result = outcome.result or task.result
        return TaskGated(
            passed=gates, result=result, conflict=list(outcome.files), resolve=resolve, failure=name, why=why, **common
        )
    until_us, counts = 0, False
    if failure.action == WAIT:
        until_us = outcome.until_us(now_us)
    elif failure.action in (RETRY, RESUME, FRESH) and task.tries < failure.tries_max:
        pause_s = min(BACKOFF_S * 2**task.tries, BACKOFF_S_MAX) if failure.action == RETRY else 0.0
        until_us, counts = now_us + int(pause_s * MICROSECONDS) if pause_s else 0, True
    elif failure.action != NOTHING:
        return TaskFailed(failure=name, why=why, **common)
    if task.status == TaskStatus.GATED and name != "gate_failed":  # its own work is done, only the check is not
        return TaskGated(
            passed=task.gate,
            resolve=task.resolve,
            failure=name,
            why=why,
            not_before_us=until_us,
            counts=counts,
            **common,
        )
    return TaskReleased(failure=name, why=why, not_before_us=until_us, counts=counts, **common)


def first_resolution(run: Run, task: TaskState, outcome: Outcome) -> str:
    """What the plan wants done about a conflict before a person is asked; empty when a person is asked at once."""
    is_wanted = run.options.get("conflicts") == BY_AGENT and _has_agent(task)
    return BY_TASK_AGENT if is_wanted and outcome.files and task.resolve != BY_TASK_AGENT else ""


def files_with_markers(tree: Path, files: Sequence[str]) -> list[str]:
    """Those files in which conflict markers are left."""
    found = []
    for name in files:
        path = tree / name
        if path.is_file() and not path.is_symlink():
            lines = path.read_bytes().split(b"\n")
            if any(line.startswith(_MARKERS) for line in lines):
                found.append(name)
    return found


def _has_agent(task: TaskState) -> bool:
    """Whether an agent did it that can be given another task; a command cannot."""
    return not task.plan.get("command")


def conflict_question(task: TaskState, now_us: int) -> QuestionAsked:
    """What a person is asked. Where it was not the files that were in the way, choosing between them means nothing."""
    choices = (
        [each for each in CHOICES if each != BY_TASK_AGENT or _has_agent(task)]
        if task.conflict
        else [MERGE_AGAIN, GIVE_UP]
    )
    files = [f"  {each}" for each in task.conflict[:FILES_SHOWN_MAX]]
    if len(task.conflict) > FILES_SHOWN_MAX:
        files.append(f"  and {len(task.conflict) - FILES_SHOWN_MAX} more")
    meanings = [f"  {name}: {CHOICES[name]}" for name in choices]
    return QuestionAsked(
        id=task.asks,
        question=f"The work of {task.name} cannot be merged ({task.why}). What is to be done?",
        choices=choices,
        asked_by=[],
        context="\n".join([*files, "The task's work is the commit", f"  {task.commit}", "Choices", *meanings]),
        at_us=now_us,
    )


def after_conflict(task: TaskState, answered: QuestionAnswered) -> TaskGated | TaskFailed:
    """What follows from a person's answer."""
    said = answered.answer.strip().lower()
    if said in CHOICES and said != GIVE_UP:
        return TaskGated(task=task.name, passed=task.gate, resolve=said, at_us=answered.at_us)
    why = task.why if said == GIVE_UP else f"{task.why}; a person said: {answered.answer}"
    return TaskFailed(task=task.name, failure="merge_conflict", why=why, at_us=answered.at_us)


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
            follows = _after_gate if id.startswith(GATE) else after_conflict
            return Decision([answered, follows(task, answered)])
        text = f"Answer to your question {question.question!r}: {answered.answer}"
        sender = SENDER if answered.by == DEFAULT else PERSON
        told = [self._tell(run, sender, agent, text, "response", question=id) for agent in question.asked_by]
        return Decision([answered], [each for appends in told for each in appends])

    def _add_tasks(self, run: Run, wanted: TasksRequested, version: int, now_us: int) -> Decision:
        """Tasks that an agent has requested; an invalid one is refused, with a message to the agent."""
        by, count = wanted.asked_by, len(wanted.tasks)
        try:
            if self._asked + count > TASKS_REQUESTED_MAX:
                raise InvalidInput(f"agents have asked for {self._asked} tasks", hint="this run accepts no more")
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
