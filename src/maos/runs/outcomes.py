"""What follows for a task from the outcome of an attempt at it, or of a check: the failure table, applied.

A merge conflict loses nothing: the task's work is a commit of its own, the work of the others is not touched, and tasks
that do not need this one continue while a person decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from maos.clock import MICROSECONDS
from maos.model.attempt import Attempt
from maos.model.events.run import (
    QuestionAnswered,
    QuestionAsked,
    TaskFailed,
    TaskFinished,
    TaskGated,
    TaskReleased,
    TaskSkipped,
)
from maos.model.failure import FRESH, NOTHING, RESUME, RETRY, TABLE, WAIT
from maos.model.plan import BY_AGENT
from maos.model.run import Run, TaskState
from maos.model.status import TaskStatus
from maos.workspaces import OTHERS, OWN

BACKOFF_S = 5.0
BACKOFF_S_MAX = 600.0
LIMIT_UNKNOWN_S = 300.0
"""How long a rate limit is waited for when its end is not known."""
MERGE_AGAIN, BY_TASK_AGENT, GIVE_UP = "retry", "agent", "give up"
"""How a person can have a merge conflict resolved, beside choosing a side."""
CHOICES = {
    MERGE_AGAIN: "merge again, after you have changed something",
    OWN: "take these files as this task left them; what the others changed in them is dropped",
    OTHERS: "keep these files as the others left them; what this task changed in them is dropped",
    BY_TASK_AGENT: "let the task's agent bring both together",
    GIVE_UP: "the task fails; resuming the run asks again",
}
FILES_SHOWN_MAX = 20
CONFLICT_TASK = """The work of a task could not be merged with that of others: both changed the same places. \
The files in this folder have both sides now, with conflict markers (<<<<<<<, =======, >>>>>>>) where they differ:

{files}

Bring both sides together in these files, so that what each of them wanted still works, and remove all markers. Change \
nothing else, and do not commit. The task was:

{task}"""
_MARKERS = (b"<<<<<<< ", b">>>>>>> ")


class Outcome(NamedTuple):
    """The outcome of an attempt at a task, or of a gate."""

    result: str = ""
    failure: str = ""
    """Empty when it went well; else a name from the failure table."""
    message: str = ""
    reset_us: int = 0
    at_us: int = 0
    """When it came out; 0 for now. An engine that was away hears of it later."""
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
        """How long a limit lasts. An end that lay in the past when the limit was met tells nothing."""
        met_us = self.at_us or now_us
        return self.reset_us if self.reset_us > met_us else met_us + int(LIMIT_UNKNOWN_S * MICROSECONDS)


def tokens_of(attempt: Attempt) -> int:
    """The tokens that an attempt took."""
    tokens = attempt.total_tokens
    return tokens.input + tokens.output


def outcome_of(attempt: Attempt) -> Outcome:
    """What an attempt that has ended came to."""
    commits = [each.commit for each in attempt.checkpoints if each.commit]
    return Outcome(
        result=attempt.result or attempt.last_text,
        failure=attempt.failure,
        message=attempt.message,
        reset_us=attempt.reset_us,
        at_us=attempt.ended_us,
        cost_usd=attempt.total_cost_usd,
        tokens=tokens_of(attempt),
        commit=commits[-1] if commits else "",
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
