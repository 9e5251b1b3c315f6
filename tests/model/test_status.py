"""Which status can follow which: the tables say exactly what the folds do."""

from typing import Any

import pytest

from maos.model.attempt import Attempt
from maos.model.run import Run, TaskState
from maos.model.status import (
    ATTEMPT_TRANSITIONS,
    RUN_TRANSITIONS,
    TASK_TRANSITIONS,
    AttemptStatus,
    RunStatus,
    TaskStatus,
)
from tests.events import event

OWNER: dict[str, Any] = {}
TASK_EVENTS: dict[TaskStatus, list[Any]] = {
    TaskStatus.WAITING: [
        event("task_started", task="a", number=1, at_us=1),
        event("task_failed", task="a", failure="cancelled", why="", at_us=1),
        event("task_skipped", task="a", at_us=1),
    ],
    TaskStatus.RUNNING: [
        event("task_released", task="a", at_us=1),
        event("task_gated", task="a", passed=0, at_us=1),
        event("task_finished", task="a", at_us=1),
        event("task_failed", task="a", failure="failed", why="", at_us=1),
        event("task_stopping", task="a", then="skipped", at_us=1),
        event("task_skipped", task="a", at_us=1),
    ],
    TaskStatus.GATED: [
        event("task_gated", task="a", passed=1, at_us=1),
        event("task_released", task="a", at_us=1),
        event("task_finished", task="a", at_us=1),
        event("task_failed", task="a", failure="merge_conflict", why="", at_us=1),
        event("task_stopping", task="a", then="failed", at_us=1),
        event("task_skipped", task="a", at_us=1),
    ],
    TaskStatus.DONE: [],
    TaskStatus.FAILED: [
        event("run_resumed", at_us=1),
        event("task_retried", task="a", at_us=1),
        event("task_skipped", task="a", at_us=1),
    ],
    TaskStatus.SKIPPED: [],
}
"""What an engine can record of a task in each status."""


def task_in(status: TaskStatus, **more: Any) -> Run:
    task = TaskState(name="a", plan={"name": "a"}, needs=[], status=status, **more)
    return Run(id="r", status=RunStatus.RUNNING, tasks={"a": task}, running=status == TaskStatus.RUNNING)


@pytest.mark.parametrize("status", TaskStatus)
def test_tasks(status: TaskStatus) -> None:
    found = set()
    for each in TASK_EVENTS[status]:
        for more in ({}, {"failure": "merge_conflict", "commit": "c"}):
            run = task_in(status, **more)
            run.apply(each)
            found.add(run.tasks["a"].status)
            assert run.running == (run.tasks["a"].status == TaskStatus.RUNNING)
    assert found - {status} == TASK_TRANSITIONS[status]


def run_events(status: RunStatus) -> list[Any]:
    """What can be recorded of a run in a status; a rollback or a join can find it in any."""
    if status == RunStatus.PLANNING:
        return [event("run_planned", tasks=[], at_us=1), *endings()]
    if status == RunStatus.RUNNING:
        return [event("run_paused", at_us=1), *endings()]
    more = [event("run_resumed", at_us=1), event("run_planned", tasks=[], at_us=1), restored(RunStatus.PAUSED)]
    if status == RunStatus.PAUSED:
        more += [restored(RunStatus.COMPLETED), restored(RunStatus.FAILED)]
        more.append(event("run_ended", status="cancelled", at_us=1))
    return more


def endings() -> list[Any]:
    ended = [event("run_ended", status=each, at_us=1) for each in ("completed", "failed", "cancelled")]
    return [*ended, event("run_paused", at_us=1)]


def restored(status: RunStatus) -> Any:
    state = {
        "status": status.value, "request": "", "folder": "", "options": {}, "tasks": {}, "questions": {}, "ended_us": 0,
        "summary": "", "why": "", "done": 0, "running": 0, "cost_usd": 0.0, "estimated_usd": 0.0, "tokens": 0,
        "unpriced_tokens": 0, "sleeping": {}, "commit": "", "needed_by": {}, "proposal": None,
    }  # fmt: skip
    return event("run_rolled_back", to=1, position=1, branch=1, state=state, at_us=1)


@pytest.mark.parametrize("status", RunStatus)
def test_runs(status: RunStatus) -> None:
    found = set()
    for each in run_events(status):
        run = Run(id="r", status=status)
        run.apply(each)
        found.add(run.status)
    assert found - {status} == RUN_TRANSITIONS[status]


@pytest.mark.parametrize("status", AttemptStatus)
def test_attempts(status: AttemptStatus) -> None:
    ended = [event("attempt_ended", status=each, at_us=1) for each in ("done", "failed", "stopped")]
    stopping = event("attempt_stopping", why="asked")
    can = {
        AttemptStatus.PLANNED: [event("attempt_started", pid=1, at_us=1), stopping, *ended],
        AttemptStatus.RUNNING: [stopping, *ended],
        AttemptStatus.STOPPING: ended,
    }
    found = set()
    for each in can.get(status, ()):
        attempt = Attempt(id="a.1", status=status)
        attempt.apply(each)
        found.add(attempt.status)
        assert attempt.is_open == (attempt.status in can)
    assert found == ATTEMPT_TRANSITIONS[status]
