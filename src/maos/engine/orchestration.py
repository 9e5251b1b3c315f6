"""A run as a person orders it: a workspace for the merged work, what its agents are, and what will happen next."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from maos.engine import agent_types, ownership
from maos.engine.agent_types import AgentType
from maos.engine.attempts import Attempts
from maos.engine.runs import Runs, new_id
from maos.engine.workplace import Workplace
from maos.errors import InvalidInput, NotFound
from maos.model.attempt import Attempt
from maos.model.plan import BadPlan, Plan, Problem, Task, check
from maos.model.run import DONE, GATED, RUNNING, Run, TaskState

ENDED_BY_ITSELF = ("", "failed", "start_failed")
"""Failures of a command that leave no doubt about whether it did its work."""
REPEATABLE = ("shell", "python")
"""Kinds whose program is named by the task, and may only come to be while the run goes on."""

_MORE = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9_-]{0,39})(?: after (?P<needs>[A-Za-z0-9_,\- ]+))?: (?P<task>.+)", re.S
)


async def order(
    attempts: Attempts,
    runs: Runs,
    plan: Plan,
    *,
    folder: Path,
    options: Mapping[str, Any],
    types: Mapping[str, AgentType],
    id: str = "",
) -> Run:
    """Make a run of a plan that a person has approved: with a workspace of its own, unless it works in place."""
    wrong = agent_types.problems(plan, types)
    if wrong:
        raise BadPlan(wrong)
    kept = {**options, "agents": agent_types.to_data(plan, types)}
    for kind in sorted(set(kinds(plan, kept).values()) - set(REPEATABLE)):
        attempts.program(kind)
    id = id or new_id()
    if not kept.get("in_place"):
        into = await Workplace.prepare(folder, id, root=attempts.folder / "workspaces", in_place=False)
        if into.workspace.in_place:
            kept |= {"in_place": True, "notes": list(into.notes)}
        else:
            kept |= {"workspace": into.to_data(), "notes": list(into.notes)}
    return await runs.create(plan, request=plan.request, folder=folder, options=kept, id=id)


def kinds(plan: Plan, options: Mapping[str, Any]) -> dict[str, str]:
    """What kind of agent does each task."""
    found = {}
    for task in plan.tasks:
        role = agent_types.of_task(options, task.agent)
        found[task.name] = task.kind or ("shell" if task.command else role.kind or str(options.get("kind", "")))
    return found


# --- going on ----------------------------------------------------------------------------------------------------


def more(run: Run, texts: Sequence[str]) -> Plan:
    """More tasks for a run, each given as TEXT, `NAME: TEXT` or `NAME after A, B: TEXT`."""
    tasks = []
    taken = set(run.tasks)
    for text in texts:
        match = _MORE.fullmatch(text.strip())
        name, needs, said = (match["name"], match["needs"] or "", match["task"]) if match else ("", "", text)
        if not name:
            number = next(each for each in range(1, len(taken) + 2) if f"more-{each}" not in taken)
            name = f"more-{number}"
        taken.add(name)
        needed = [each for each in re.split(r"[,\s]+", needs) if each]
        if run.options.get("kind") == "shell":
            tasks.append(Task(name=name, task=said.strip(), command=["sh", "-c", said.strip()], needs=needed))
        else:
            tasks.append(Task(name=name, task=said.strip(), needs=needed))
    return with_more(run, Plan(tasks=tasks))


def with_more(run: Run, plan: Plan) -> Plan:
    """A plan that adds to a run, checked together with what the run has; BadPlan speaks of the new tasks."""
    before = [msgspec.convert(task.plan, Task) for task in run.tasks.values()]
    new = {task.name.lower() for task in plan.tasks}
    problems = [
        Problem(f"task {number} ({task.name})", "the run has a task of that name already")
        for number, task in enumerate(plan.tasks, 1)
        if task.name.lower() in {each.name.lower() for each in before}
    ]
    if not problems:
        problems = [
            Problem(re.sub(r"task (\d+)", lambda found: f"task {int(found[1]) - len(before)}", each.where), *each[1:])
            for each in check(Plan(tasks=[*before, *plan.tasks]))
        ]
    if problems or not new:
        raise BadPlan(problems or [Problem("plan", "there is nothing to add")])
    return plan


async def unfinished(runs: Runs) -> list[Run]:
    """Runs with something left to do, the newest first."""
    found = [run async for run in runs.all() if run.status != "completed"]
    return sorted(found, key=lambda run: run.updated_us, reverse=True)


class NextAction(NamedTuple):
    """What going on with a run means for one of its tasks."""

    task: str
    what: str
    """kept: it is done and is not run again · taken_up: its agent still works · recorded: its agent has ended, and only
    that must be recorded · resumed: it goes on · checked: its gates are next · begun: it has not begun."""
    agent: str
    words: str = ""
    """What its agent is told, word for word."""
    unknown: Sequence[Mapping[str, Any]] = ()
    """Tools of which nobody knows whether they took effect (I31)."""
    why: str = ""


async def preview(attempts: Attempts, run: Run) -> list[NextAction]:
    """What going on with a run would do, task by task."""
    return [await _next(attempts, run, task) for task in run.tasks.values()]


async def _next(attempts: Attempts, run: Run, task: TaskState) -> NextAction:
    agent = run.agent(task.name)
    if task.status == DONE:
        return NextAction(task.name, "kept", agent)
    if task.status == GATED:
        return NextAction(task.name, "checked", agent)
    try:
        attempt: Attempt = await attempts.get(agent)
    except NotFound:
        return NextAction(task.name, "begun", agent, str(task.plan.get("task", "")))
    unknown = [_command(attempt)] if attempt.kind in REPEATABLE else list(attempt.tools_open.values())
    if task.status == RUNNING and attempt.number == task.attempts:
        if attempt.is_open and ownership.holder_lives(attempt):
            return NextAction(task.name, "taken_up", agent, why=attempt.activity)
        if not attempt.is_open and not attempt.failure:
            return NextAction(task.name, "recorded", agent)
    if attempt.kind in REPEATABLE and not attempt.is_open and attempt.failure in ENDED_BY_ITSELF:
        unknown = []
    words = await attempts.words_on_resume(agent)
    why = task.why or attempt.message or ("its agent is gone" if attempt.is_open else "")
    return NextAction(task.name, "resumed", agent, words, unknown, why)


def _command(attempt: Attempt) -> dict[str, Any]:
    """A command as if it were the one tool of its agent."""
    return {"name": attempt.kind, "input": {"command": shlex.join(map(str, attempt.order.get("argv") or ()))}}


async def wake(runs: Runs, run: Run) -> bool:
    """Have a run not wait for the end of a rate limit; whether an engine that may live carries it out already."""
    return await runs.wake(run.id) and run.status == RUNNING and not ownership.is_gone(run.owner)


def check_resumable(run: Run) -> None:
    """InvalidInput when there is nothing left to do; NotFound when what it works on is not where it was."""
    if run.status == "completed":
        raise InvalidInput(
            f"orchestration {run.id} is completed",
            hint=f'`maos orchestration resume {run.id} --task "…"` gives it more to do',
        )
    check_places(run)


def check_places(run: Run) -> None:
    """NotFound when what a run works on is not where it was."""
    workspace = run.options.get("workspace") or {}
    missing = [place for place in (run.folder, workspace.get("tree")) if place and not Path(place).is_dir()]
    if not missing and workspace and not Path(workspace["repository"]).is_dir():
        missing = [workspace["repository"]]
    if missing:
        where = run.folder if missing[0] != run.folder else "NEW"
        raise NotFound(
            f"orchestration {run.id} cannot go on: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} gone",
            hint="put back what was moved or removed, or a link to where it is now; or say where the folder is: "
            f"`maos resume {run.id} --cwd {where}`",
        )
