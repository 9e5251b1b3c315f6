"""What follows for a task from how a try at it, or a check of it, came out: the failure table, applied."""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from maos.clock import MICROSECONDS
from maos.model.events.run import TaskFailed, TaskFinished, TaskGated, TaskReleased, TaskSkipped
from maos.model.failure import FRESH, NOTHING, RESUME, RETRY, TABLE, WAIT
from maos.model.run import GATED, RUNNING, TaskState
from maos.model.status import TaskStatus

BACKOFF_S = 5.0
BACKOFF_S_MAX = 600.0
LIMIT_UNKNOWN_S = 300.0
"""How long a rate limit is waited for when nobody said until when."""


class Outcome(NamedTuple):
    """What became of an attempt at a task, or of a gate."""

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


def what_follows(
    task: TaskState, outcome: Outcome, now_us: int, *, resolve: str = ""
) -> TaskReleased | TaskGated | TaskFinished | TaskFailed | TaskSkipped:
    """The event that records an outcome; `resolve` is how a conflict is resolved if it is one.

    A task that was being stopped is then cancelled or skipped, unless it was finished all the same.
    """
    gates = len(task.plan.get("gates", ()))
    common: _Common = {
        "task": task.name,
        "cost_usd": outcome.cost_usd,
        "tokens": outcome.tokens,
        "commit": outcome.commit,
        "merged": outcome.merged,
        "at_us": now_us,
    }
    is_finished = not outcome.failure and (task.gate >= gates if task.status == GATED else not gates)
    if task.stopping and not is_finished:
        if task.stopping == TaskStatus.SKIPPED:
            return TaskSkipped(why=task.why, **common)
        return TaskFailed(failure="cancelled", why=task.why, **common)
    if not outcome.failure:
        if task.status == RUNNING and gates:
            return TaskGated(passed=0, result=outcome.result, **common)
        if task.status == GATED and task.gate < gates:
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
    if task.status == GATED and name != "gate_failed":  # its own work is done, only the check is not
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


class _Common(TypedDict):
    """What all events say that record an outcome."""

    task: str
    cost_usd: float
    tokens: int
    commit: str
    merged: str
    at_us: int
