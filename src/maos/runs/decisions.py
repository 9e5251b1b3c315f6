"""Decides what follows for a run: from the outcome of an attempt or of a check, and from a command in its inbox.

A merge conflict loses nothing: the task's work is a commit of its own, the work of the others is not touched, and tasks
that do not need this one continue while a person decides. Messages that follow from a command are sent over the bus in
the same append, so that they are in the history exactly when the command was applied.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
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
    UpdateRequested,
    WakeRequested,
)
from maos.model.events.parts import PERSON, Limits, Spent
from maos.model.events.run import (
    PlanProposed,
    QuestionAnswered,
    QuestionAsked,
    RunBlocked,
    RunEnded,
    RunEvent,
    RunNoteAdded,
    RunPlanned,
    RunUpdated,
    RunWoken,
    TaskFailed,
    TaskFinished,
    TaskGated,
    TaskReleased,
    TaskRetried,
    TaskSkipped,
    TaskStopping,
)
from maos.model.failure import FRESH, NOTHING, RESUME, RETRY, TABLE, TELL, WAIT, Failure
from maos.model.message import inbox
from maos.model.plan import BY_AGENT
from maos.model.question import yes_or_no
from maos.model.run import GATE, Run, TaskState, asked_for
from maos.model.status import RunStatus, TaskStatus
from maos.runs import agent_types
from maos.runs.budgets import SENDER, Budget
from maos.runs.planner import REVISE
from maos.text import cut, without_escapes
from maos.tuples import NamedTuple
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
    MERGE_AGAIN: "merge again, after you have changed files in the task's worktree, which `maos status {task}` names",
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
    estimated_usd: float = 0.0
    tokens: int = 0
    unpriced_tokens: int = 0
    worked_us: int = 0
    commit: str = ""
    merged: str = ""
    """The commit that has the work of all tasks done so far."""
    files: tuple[str, ...] = ()
    """Those that could not be merged."""
    proposed: PlanProposed | None = None
    """The plan, if the task was to make one."""
    traceback: str = ""
    """Where a Python function failed."""
    to_do: str = ""
    """What a person can do about a failure, where the agent's program has a way of its own."""

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


def outcome_of(attempt: Attempt) -> Outcome:
    """What an attempt that has ended came to."""
    return Outcome(
        result=without_escapes(attempt.result or attempt.last_text),
        failure=attempt.failure,
        message=attempt.message,
        reset_us=attempt.reset_us,
        at_us=attempt.ended_us,
        worked_us=attempt.worked_us(attempt.ended_us),
        traceback=attempt.traceback,
        commit=attempt.saved,
        **msgspec.structs.asdict(attempt.spent),
    )


def what_follows(
    task: TaskState, outcome: Outcome, now_us: int, *, resolve: str = "", by_person: bool = False
) -> TaskReleased | TaskGated | TaskFinished | TaskFailed | TaskSkipped:
    """The event that records an outcome; `resolve` is how a conflict is resolved if it is one, and `by_person` whether
    a person decided it, who may have changed something since.

    A task that was being stopped is then cancelled or skipped, unless it was finished all the same.
    """
    gates = len(task.plan.get("gates", ()))
    common: dict[str, Any] = {
        "task": task.name,
        **{name: getattr(outcome, name) for name in Spent.__struct_fields__},
        "commit": outcome.commit,
        "merged": outcome.merged,
        "worked_us": outcome.worked_us,
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
    elif (
        failure.action in (RETRY, RESUME, FRESH)
        and task.tries < failure.tries_max
        and (by_person or _helps(failure, task))
    ):
        pause_s = min(BACKOFF_S * 2**task.tries, BACKOFF_S_MAX) if failure.action == RETRY else 0.0
        until_us, counts = now_us + int(pause_s * MICROSECONDS) if pause_s else 0, True
    elif failure.action not in (NOTHING, TELL) and not failure.of_kind:
        return TaskFailed(failure=name, why=why, traceback=outcome.traceback, **common)
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


def _helps(failure: Failure, task: TaskState) -> bool:
    """Whether trying a task again can come to another outcome: a command that is only run again does the same."""
    return not failure.told or not task.plan.get("command") or task.plan.get("kind") not in (None, "", "shell")


def told_on_retry(run: Run, task: TaskState) -> str:
    """What the agent of a task is told when it is resumed because its work did not pass a check; else nothing."""
    if task.failure != "gate_failed":
        return ""
    if task is run.planner:
        return REVISE.format(why=task.why)
    return f"Your work did not pass a check. Fix the cause, then finish the task.\n\n{task.why}"


def told_instead(task: TaskState, number: int) -> str:
    """What the agent of a task does instead when it is resumed, if a person has changed the text or the command of the
    task after the attempt of that number; else nothing."""
    if number > task.edited:
        return ""
    return str(task.plan.get("task") or "") or shlex.join(map(str, task.plan.get("command") or ()))


def blocked(run: Run, kind: str, outcome: Outcome, now_us: int) -> RunBlocked:
    """The event that keeps agents of a kind from being started, since a person must do something first."""
    resume = f"`maos resume {run.id}`"
    to_do = f"{outcome.to_do}, then {resume}" if outcome.to_do else f"{TABLE[outcome.failure].hint}: {resume}"
    return RunBlocked(kind=kind, failure=outcome.failure, to_do=to_do, at_us=now_us)


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


def conflict_question(run: Run, task: TaskState, now_us: int) -> QuestionAsked:
    """What a person is asked. Where it was not the files that were in the way, choosing between them means nothing."""
    choices = (
        [each for each in CHOICES if each != BY_TASK_AGENT or _has_agent(task)]
        if task.conflict
        else [MERGE_AGAIN, GIVE_UP]
    )
    why, _, explained = task.why.partition("\n")
    files = task.conflict[:FILES_SHOWN_MAX]
    if len(task.conflict) > FILES_SHOWN_MAX:
        files.append(f"and {len(task.conflict) - FILES_SHOWN_MAX} more files")
    return QuestionAsked(
        id=task.asks,
        question=f"The work of {task.name} cannot be merged ({why}). What is to be done?",
        choices=choices,
        meanings=[CHOICES[each].format(task=f"{run.id}/{task.name}") for each in choices],
        asked_by=[],
        context="\n".join([*([explained] if explained else files), f"The task's work is commit {task.commit}."]),
        at_us=now_us,
    )


def after_conflict(task: TaskState, answered: QuestionAnswered) -> TaskGated | TaskFailed:
    """What follows from a person's answer."""
    said = answered.answer.strip().lower()
    if said in CHOICES and said != GIVE_UP:
        return TaskGated(task=task.name, passed=task.gate, resolve=said, by=answered.by, at_us=answered.at_us)
    why = task.why if said == GIVE_UP else f"{task.why}; a person said: {answered.answer}"
    return TaskFailed(task=task.name, failure="merge_conflict", why=why, by=answered.by, at_us=answered.at_us)


class Decision(NamedTuple):
    """What follows from a command."""

    events: Sequence[RunEvent] = ()
    """For the run."""
    also: Sequence[Append] = ()
    """For others."""


def gate_question(run: Run, task: TaskState, question: str, now_us: int) -> QuestionAsked:
    """The question of a gate that a person answers. A plan can also be changed in words."""
    choices = [] if task is run.planner else ["yes", "no"]
    return QuestionAsked(
        id=task.asks, question=question, choices=choices, asked_by=[], context=task.result, at_us=now_us
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
                return self._checkpoint(run, command, version, now_us)
            case QuestionAsked():
                return Decision([replace(command, inbox_version=version, at_us=now_us)])
            case PlanProposed():
                is_asked = run.planner is not None and run.planner.asks
                edited = replace(command, inbox_version=version, at_us=now_us)
                return Decision([edited]) if is_asked else _refuse("its plan waits for no approval", version, now_us)
            case QuestionAnswered():
                return self._answer(run, replace(command, inbox_version=version, at_us=now_us))
            case RetryRequested():
                return _retry(run, command, version, now_us)
            case SkipRequested():
                return _end_task(run, command, TaskStatus.SKIPPED, version, now_us)
            case CancelRequested():
                return _end_task(run, command, TaskStatus.FAILED, version, now_us)
            case UpdateRequested():
                return _update(run, command, version, now_us)
            case WakeRequested() if run.wakes_us > now_us or run.blocked:
                return Decision([RunWoken(by=command.by, inbox_version=version, at_us=now_us)])
        return Decision()

    def _answer(self, run: Run, answered: QuestionAnswered) -> Decision:
        id = answered.id
        question = run.questions.get(id)
        if question is None or question.answer is not None:
            return Decision()  # the first answer counts
        task = run.tasks.get(asked_for(id))
        if task is not None and task.asks == id and task is run.planner:
            return Decision([answered, *_after_plan(task, answered)])
        if task is not None and task.asks == id:  # else it continues, or is done, without that answer (I29)
            follows = _after_gate if id.startswith(GATE) else after_conflict
            return Decision([answered, follows(task, answered)])
        text = f"Answer to your question {question.question!r}: {answered.answer}"
        sender = SENDER if answered.by == DEFAULT else PERSON
        by = answered.by
        told = [self._tell(run, sender, agent, text, "response", by=by, question=id) for agent in question.asked_by]
        return Decision([answered], [each for appends in told for each in appends])

    def _add_tasks(self, run: Run, wanted: TasksRequested, version: int, now_us: int) -> Decision:
        """Tasks that were requested; an invalid one is refused, with a message to the agent that requested it."""
        by, count = wanted.asked_by, len(wanted.tasks)
        try:
            if self._asked + count > TASKS_REQUESTED_MAX:
                raise InvalidInput(f"agents have asked for {self._asked} tasks", hint="this run accepts no more")
            whole = plan.from_data({"tasks": [*(each.plan for each in run.tasks.values()), *wanted.tasks]})
            fields = plan.not_for_agents(whole.tasks[len(run.tasks) :]) if by != PERSON else []
            if fields:
                hint = f"it can give {', '.join(plan.AGENT_FIELDS)}"
                raise InvalidInput(f"an agent cannot give a task {', '.join(fields)}", hint=hint)
        except InvalidInput as error:
            told = self._tell(run, SENDER, by, f"Your task was refused: {error}", "error")
            return Decision([RunNoteAdded(text=str(error), inbox_version=version, at_us=now_us)], told)
        self._asked += count
        planned = RunPlanned(tasks=wanted.tasks, asked_by=by, by=wanted.by, inbox_version=version, at_us=now_us)
        return Decision([planned])

    def _checkpoint(self, run: Run, command: CheckpointRequested, version: int, now_us: int) -> Decision:
        saved = checkpoints.made(run, command.name, "asked", now_us, by=command.by, inbox_version=version)
        requested = replace(command, at_us=now_us)
        at_work = [task.name for task in run.tasks.values() if task.status == TaskStatus.RUNNING]
        return Decision([saved], [Append(inbox(run.agent(name)), [requested]) for name in at_work])

    def _tell(
        self, run: Run, sender: str, to: str, text: str, type: str, *, by: str = "", **metadata: Any
    ) -> list[Append]:
        text = cut(text, TEXT_CHARS_MAX)
        return self._bus.enclosed(sender, to, text, run=run.id, type=type, by=by, metadata=metadata)


def _after_gate(task: TaskState, answered: QuestionAnswered) -> RunEvent:
    if yes_or_no(answered.answer):
        return TaskGated(task=task.name, passed=task.gate + 1, by=answered.by, at_us=answered.at_us)
    refused = Outcome(failure="gate_failed", message=f"a person said: {answered.answer}")
    return replace(what_follows(task, refused, answered.at_us, by_person=True), by=answered.by)


def _after_plan(task: TaskState, answered: QuestionAnswered) -> list[RunEvent]:
    """A plan that a person refuses ends its run; anything but yes and no is what to change, however often."""
    common: dict[str, Any] = {"by": answered.by, "at_us": answered.at_us}
    is_yes = yes_or_no(answered.answer)
    if is_yes:
        return [TaskGated(task=task.name, passed=task.gate + 1, **common)]
    if is_yes is None:
        why = f"A person wants this change of the plan:\n\n{answered.answer}"
        return [TaskReleased(task=task.name, failure="gate_failed", why=why, **common)]
    why = "a person refused the plan"
    return [
        TaskFailed(task=task.name, failure="cancelled", why=why, **common),
        RunEnded(status=RunStatus.CANCELLED, why=why, **common),
    ]


def _update(run: Run, command: UpdateRequested, version: int, now_us: int) -> Decision:
    """Change limits; while an engine executes the run, tasks that failed at a time limit that is raised are retried."""
    given = command.limits
    budget = Budget.of(run.options)._asdict()
    known = {**budget, **{name: run.options.get(name) for name in ("time_limit_s", "concurrency")}}
    before = Limits(**{name: known[name] for name in given.given})
    common: dict[str, Any] = {"by": command.by, "inbox_version": version, "at_us": now_us}
    events: list[RunEvent] = [RunUpdated(limits=given, before=before, **common)]
    if run.is_going and given.time_limit_s is not None and _is_raised(before.time_limit_s, given.time_limit_s):
        timed_out = [each for each in run.tasks.values() if each.failure == "timed_out" and _has_no_limit(run, each)]
        events += [TaskRetried(task=each.name, **common) for each in timed_out if each.status == TaskStatus.FAILED]
    return Decision(events)


def _is_raised(before: float | None, now: float) -> bool:
    return bool(before) and (not now or now > (before or 0.0))


def _has_no_limit(run: Run, task: TaskState) -> bool:
    """Whether the time limit of the run counts for a task: neither the task nor its type has one."""
    role = agent_types.of_task(run.options, str(task.plan.get("agent", "")))
    return not (task.plan.get("time_limit_s") or role.time_limit_s)


def _retry(run: Run, command: RetryRequested, version: int, now_us: int) -> Decision:
    failed = [name for name, task in run.tasks.items() if task.status == TaskStatus.FAILED]
    if command.tasks:
        failed = [name for name in failed if name in command.tasks]
    if not failed:
        return _refuse("no failed task is left to retry", version, now_us)
    common: dict[str, Any] = {"by": command.by, "inbox_version": version, "at_us": now_us}
    return Decision([TaskRetried(task=name, changed=command.changed, **common) for name in failed])


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
    common: dict[str, Any] = {"why": why, "by": command.by, "inbox_version": version, "at_us": now_us}
    if task.status == TaskStatus.RUNNING or (task.status == TaskStatus.GATED and not task.asks):
        return Decision([TaskStopping(task=task.name, then=then, **common)])
    ended: RunEvent = TaskSkipped(task=task.name, **common)
    if then == TaskStatus.FAILED:
        ended = TaskFailed(task=task.name, failure="cancelled", **common)
    if task.asks in run.questions:  # no person needs to answer it any more
        closed = QuestionAnswered(id=task.asks, answer=str(then.value), by=command.by, at_us=now_us)
        return Decision([ended, closed])
    return Decision([ended])


def _refuse(why: str, version: int, now_us: int) -> Decision:
    return Decision([RunNoteAdded(text=why, inbox_version=version, at_us=now_us)])
