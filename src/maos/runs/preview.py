"""What resuming a run would do, task by task; nothing is changed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from maos.engine.attempts import Attempts
from maos.engine.ownership import is_held
from maos.errors import NotFound
from maos.model.attempt import Attempt, Tool
from maos.model.failure import ENDED_BY_ITSELF, REPEATABLE
from maos.model.run import GATED, RUNNING, Run, TaskState


class Next(NamedTuple):
    """What going on with a run means for one of its tasks."""

    task: str
    what: str
    """kept: it is done and is not run again · taken_up: its agent still works · recorded: its agent has ended, and only
    that must be recorded · resumed: it goes on · checked: its gates are next · begun: it has not begun."""
    agent: str
    words: str = ""
    """What its agent is told, word for word."""
    unknown: Sequence[Tool] = ()
    """Tools of which nobody knows whether they took effect (I31)."""
    why: str = ""


async def preview(attempts: Attempts, run: Run) -> list[Next]:
    """What resuming a run would do, task by task."""
    return [await _next(attempts, run, task) for task in run.tasks.values()]


async def _next(attempts: Attempts, run: Run, task: TaskState) -> Next:
    agent = run.agent(task.name)
    if task.status.is_done:
        return Next(task.name, "kept", agent)
    if task.status == GATED:
        return Next(task.name, "checked", agent)
    try:
        attempt: Attempt = await attempts.get(agent)
    except NotFound:
        return Next(task.name, "begun", agent, str(task.plan.get("task", "")))
    unknown = [_command(attempt)] if attempt.kind in REPEATABLE else list(attempt.tools_open.values())
    if task.status == RUNNING and attempt.number == task.attempts:
        if attempt.is_open and is_held(attempt):
            return Next(task.name, "taken_up", agent, why=attempt.activity)
        if not attempt.is_open and not attempt.failure:
            return Next(task.name, "recorded", agent)
    if attempt.kind in REPEATABLE and not attempt.is_open and attempt.failure in ENDED_BY_ITSELF:
        unknown = []
    words = await attempts.words_on_resume(agent)
    why = task.why or attempt.message or ("its agent is gone" if attempt.is_open else "")
    return Next(task.name, "resumed", agent, words, unknown, why)


def _command(attempt: Attempt) -> Tool:
    """A command as if it were the one tool of its agent."""
    return Tool(attempt.kind, {"command": shlex.join(map(str, attempt.order.get("argv") or ()))})
