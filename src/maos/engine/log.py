"""What engines do, for Python's `logging`: one record for each recorded event that an operator cares about, and for
what is not recorded (a lost lease, an unavailable store).

Each log record has the attributes `action` (a stable name such as `task.failed`), `run`, `task`, `agent`, `by`
(the principal whose act it was) and `reason`;
those that do not apply are empty. The library configures no handler; `maos serve` does (`maos.ops.server_log`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from maos.journal.codec import Event
from maos.model.events.core import EventBase
from maos.tuples import NamedTuple

logging.getLogger("maos").addHandler(logging.NullHandler())

RUNS, ENGINE, WORKFLOWS, OPS, SERVER = (
    logging.getLogger(f"maos.{name}") for name in ("runs", "engine", "workflows", "ops", "server")
)
KEYS = ("action", "run", "task", "agent", "by", "reason")
"""The attributes that every record has; others, such as `workflow`, only those to which they apply."""
_INFO, _WARNING = logging.INFO, logging.WARNING


class Action(NamedTuple):
    """How an event is logged."""

    action: str
    message: str
    level: int = _INFO


ACTIONS = {
    "run_created": Action("run.created", "run created"),
    "run_claimed": Action("run.claimed", "run claimed by this engine"),
    "run_resumed": Action("run.resumed", "run resumed"),
    "run_handed_over": Action("run.handed_over", "run handed over to any engine"),
    "run_paused": Action("run.paused", "run paused"),
    "run_removed": Action("run.removed", "run removed"),
    "run_hibernated": Action("run.hibernated", "run waits for the end of a rate limit"),
    "run_blocked": Action("run.blocked", "run starts no agents of a kind until a person has logged in"),
    "run_woken": Action("run.woken", "run starts agents of all kinds again"),
    "run_rolled_back": Action("run.rolled_back", "run rolled back"),
    "task_started": Action("task.started", "task started"),
    "task_released": Action("task.released", "attempt at the task ended; it is started again", _WARNING),
    "task_retried": Action("task.retried", "failed task is retried"),
    "task_stopping": Action("task.stopping", "agent of the task is being stopped"),
    "task_failed": Action("task.failed", "task failed", _WARNING),
    "task_skipped": Action("task.skipped", "task skipped"),
    "task_finished": Action("task.completed", "task completed"),
    "question_asked": Action("question.asked", "a person is asked"),
    "question_answered": Action("question.answered", "question answered"),
    "attempt_claimed": Action("agent.attached", "engine attached to the agent"),
    "attempt_started": Action("agent.started", "agent started"),
    "attempt_stopping": Action("agent.stopping", "agent is being stopped"),
    "workflow_started": Action("workflow.started", "workflow run started"),
    "workflow_claimed": Action("workflow.claimed", "workflow run claimed by this engine"),
    "workflow_paused": Action("workflow.paused", "workflow run paused"),
    "step_retried": Action("step.retried", "step failed and is retried", _WARNING),
}
"""Events by their type. `run_ended`, `attempt_ended` and `workflow_ended` are logged by their outcome."""
WORKFLOW_CHANGED = Action("workflow.changed", "workflow run stopped, its code has changed", _WARNING)
WORKFLOW_LOST = Action("workflow.claim_lost", "workflow run was claimed by another engine", _WARNING)
STEP_FAILED = Action("step.failed", "step failed", _WARNING)
STEP_UNKNOWN = Action("step.unknown", "the outcome of a step is unknown; a person must resolve it", _WARNING)
UNAVAILABLE = Action("store.unavailable", "store unavailable; waiting until it is back", _WARNING)
AVAILABLE = Action("store.available", "store available again")
BACKUP_BEHIND = Action("backup.unavailable", "backup cannot be written; trying again", _WARNING)
BACKUP_UNMERGED = Action("backup.unmerged", "small segments of the backup cannot be merged; trying again", _WARNING)
NOTICE_UNSENT = Action("backup.unnoticed", "a notification about the backup was not sent", _WARNING)
_ENDINGS = {
    "run_ended": ("run", "run"),
    "attempt_ended": ("agent.exited", "agent exited"),
    "workflow_ended": ("workflow", "workflow run"),
}
_LOGGERS = {"run": RUNS, "attempt": ENGINE, "workflow": WORKFLOWS}


def recorded(kind: str, id: str, events: Iterable[Event | EventBase]) -> None:
    """Log events of a run, an attempt or a workflow run that are on disk."""
    logger = _LOGGERS.get(kind, ENGINE)
    for event in events:
        found = ACTIONS.get(event.type) or _ending(event)
        if found is not None and logger.isEnabledFor(found.level):
            data: Any = event
            write(
                logger,
                found,
                run=id if kind == "run" else "",
                task=getattr(data, "task", "") if kind == "run" else "",
                agent=id.rpartition(".")[0] if kind == "attempt" else "",
                workflow=id if kind == "workflow" else "",
                by=getattr(data, "by", ""),
                reason=str(getattr(data, "why", "") or getattr(data, "message", "") or ""),
            )


def write(logger: logging.Logger, action: Action, error: BaseException | None = None, /, **names: str) -> None:
    """Log an action with the names of what it is about, and the traceback of an error."""
    extra = {**dict.fromkeys(KEYS, ""), "action": action.action, **names}
    about = " ".join(f"{name}={value}" for name, value in names.items() if value and name != "reason")
    reason = f": {extra['reason'].partition(chr(10))[0]}" if extra["reason"] else ""  # the record has all of it
    said = f"{action.message} {about}" if about else action.message
    logger.log(action.level, "%s%s", said, reason, extra=extra, exc_info=error)


def _ending(event: Event | EventBase) -> Action | None:
    """How the end of a run, an attempt or a workflow run is logged; None for other events."""
    if event.type not in _ENDINGS:
        return None
    name, words = _ENDINGS[event.type]
    status = str(getattr(event, "status", ""))
    level = _WARNING if status == "failed" else _INFO
    return Action(name if "." in name else f"{name}.{status}", f"{words} {status}", level)
