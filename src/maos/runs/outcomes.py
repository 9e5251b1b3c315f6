"""What follows for a task from how a try at it, or a check of it, came out: the failure table, applied."""

from __future__ import annotations

from typing import Any, NamedTuple

from maos.clock import MICROSECONDS
from maos.journal.codec import Event
from maos.model.failure import FRESH, NOTHING, RESUME, RETRY, TABLE, WAIT
from maos.model.run import GATED, RUNNING, TaskState

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


def what_follows(task: TaskState, outcome: Outcome, now_us: int, *, resolve: str = "") -> Event:
    """The event that records an outcome; `resolve` is how a conflict is resolved if it is one."""
    gates = len(task.plan.get("gates", ()))
    data: dict[str, Any] = {"task": task.name, "cost_usd": outcome.cost_usd, "tokens": outcome.tokens, "at_us": now_us}
    data |= {name: value for name, value in (("commit", outcome.commit), ("merged", outcome.merged)) if value}
    if not outcome.failure:
        if task.status == RUNNING and gates:
            return Event("task_gated", {"passed": 0, "result": outcome.result, **data})
        if task.status == GATED and task.gate < gates:
            return Event("task_gated", {"passed": task.gate + 1, **data})
        return Event("task_finished", {"result": outcome.result or task.result, **data})
    failure = TABLE[outcome.failure]
    data |= {"failure": failure.name, "why": outcome.message or failure.meaning}
    if failure.name == "merge_conflict":  # nothing is lost: the work is done, and stays as it is until it is merged
        data |= {"passed": gates, "result": outcome.result or task.result, "conflict": list(outcome.files)}
        return Event("task_gated", {**data, "resolve": resolve} if resolve else data)
    again = "task_released"
    if task.status == GATED and failure.name != "gate_failed":  # its own work is done, only the check is not
        again = "task_gated"
        data |= {"passed": task.gate, "resolve": task.resolve} if task.resolve else {"passed": task.gate}
    if failure.action == WAIT:
        return Event(again, {"not_before_us": outcome.until_us(now_us), **data})
    if failure.action == NOTHING:
        return Event(again, data)
    if failure.action in (RETRY, RESUME, FRESH) and task.tries < failure.tries_max:
        pause_s = min(BACKOFF_S * 2**task.tries, BACKOFF_S_MAX) if failure.action == RETRY else 0.0
        until_us = now_us + int(pause_s * MICROSECONDS) if pause_s else 0
        return Event(again, {"not_before_us": until_us, "counts": True, **data})
    return Event("task_failed", data)
