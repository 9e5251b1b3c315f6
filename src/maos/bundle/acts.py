"""What going on with a run that came from elsewhere would have done here: shown to a person before they agree to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from maos.engine import agent_types
from maos.model.attempt import Attempt
from maos.model.plan import Task
from maos.model.run import DONE, Run, TaskState


class Act(NamedTuple):
    """Something that would be started."""

    task: str
    what: str
    """task: what does it · gate: a command that checks it · review: an agent that does."""
    kind: str
    command: tuple[str, ...]
    words: str
    """What an agent would be told."""
    permission: str
    tools: tuple[str, ...]
    """What it may do unasked."""


def of_run(run: Run, newest: Mapping[str, Attempt]) -> list[Act]:
    """Everything that is left to do, as it would be done: by the newest attempt of an agent, where there is one."""
    return [act for task in run.tasks.values() if task.status != DONE for act in _of_task(run, task, newest)]


def _of_task(run: Run, task: TaskState, newest: Mapping[str, Attempt]) -> Iterator[Act]:
    plan = msgspec.convert(task.plan, Task)
    role = agent_types.of_task(run.options, plan.agent)
    begun = newest.get(run.agent(task.name))
    asked = role.permission or str(run.options.get("permission", "ask"))
    if begun is None:
        kind, command = agent_types.kind_of(run.options, task.plan), tuple(plan.command)
        permission, tools = asked, tuple(plan.tools or role.tools)
    else:
        kind, command = begun.kind, tuple(begun.order["argv"])
        permission, tools = str(begun.order["permission"]), tuple(begun.order["tools_allowed"])
    words = "" if command else plan.task or (begun.task if begun is not None else "")
    yield Act(task.name, "task", kind, command, words, permission, tools)
    for gate in plan.gates[task.gate :]:
        if gate.command:
            yield Act(task.name, "gate", "shell", tuple(gate.command), "", "", ())
        elif gate.review:
            yield Act(task.name, "review", str(run.options.get("kind", "")), (), gate.review, asked, ())
