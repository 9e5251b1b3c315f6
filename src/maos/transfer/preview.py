"""What going on with a run that came from elsewhere would have done here: shown to a person before they agree to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from maos.engine import agent_types
from maos.model.attempt import Attempt
from maos.model.plan import Task
from maos.model.run import DONE, Run, TaskState

TASKS_ASKED = "tasks_requested"
REVIEWS = "ask"
"""What an agent that reviews may do unasked: nothing."""


class Action(NamedTuple):
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


def of_run(run: Run, newest: Mapping[str, Attempt], wishes: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Action]:
    """Everything that is left to do, as it would be done: by the newest attempt of an agent, where there is one.

    `wishes` are types and data of what is in the run's inbox and nobody has carried out: it can be more tasks.
    """
    left = [task for task in run.tasks.values() if task.status != DONE]
    return [act for task in (*left, *asked(run, wishes)) for act in _of_task(run, task, newest)]


def asked(run: Run, wishes: Iterable[tuple[str, Mapping[str, Any]]]) -> list[TaskState]:
    """Tasks that somebody wants a run to have; what cannot be a task, or is one already, the run refuses as well."""
    found = []
    for type_, data in wishes:
        for each in data["tasks"] if type_ == TASKS_ASKED else ():
            try:
                plan = msgspec.convert(each, Task)
                agent_types.of_task(run.options, plan.agent)
            except msgspec.ValidationError:
                continue
            if plan.name not in run.tasks:
                found.append(TaskState(name=plan.name, plan=dict(each), needs=list(plan.needs)))
    return found


def _of_task(run: Run, task: TaskState, newest: Mapping[str, Attempt]) -> Iterator[Action]:
    plan = msgspec.convert(task.plan, Task)
    role = agent_types.of_task(run.options, plan.agent)
    begun = newest.get(run.agent(task.name))
    may = role.permission or str(run.options.get("permission", "ask"))
    if begun is None:
        kind, command = agent_types.kind_of(run.options, task.plan), tuple(plan.command)
        permission, tools = may, tuple(plan.tools or role.tools)
    else:
        kind, command = begun.kind, tuple(begun.order["argv"])
        permission, tools = str(begun.order["permission"]), tuple(begun.order["tools_allowed"])
    words = "" if command else plan.task if begun is None else begun.task
    yield Action(task.name, "task", kind, command, words, permission, tools)
    for gate in plan.gates:  # those that it has passed too: when it is done again, they look again
        if gate.command:
            yield Action(task.name, "gate", "shell", tuple(gate.command), "", "", ())
        elif gate.review:
            yield Action(task.name, "review", str(run.options.get("kind", "")), (), gate.review, REVIEWS, ())
