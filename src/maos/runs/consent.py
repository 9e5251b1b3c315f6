"""Consent to a run that came with a file: what resuming it would start here, which a person sees first, and the
worktrees that are made on this machine once the person agrees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from maos import workspaces
from maos.clock import Clock
from maos.engine import consent
from maos.engine.attempt_spec import preparation_of
from maos.engine.attempts import Attempts
from maos.errors import InvalidInput
from maos.journal.journal import Journal
from maos.model import tool_calls
from maos.model.attempt import Attempt, last_saved
from maos.model.events.commands import TasksRequested
from maos.model.events.core import EventBase
from maos.model.events.run import PlanProposed
from maos.model.plan import Task
from maos.model.preparation import Preparation
from maos.model.run import ProposedPlan, Run, TaskState
from maos.runs import agent_types, planner
from maos.runs.worker import prepared, terms
from maos.travel.points_in_time import workspace_of
from maos.travel.relocation import merged_work
from maos.tuples import NamedTuple
from maos.workspaces import Workspace

REVIEWS = "ask"
"""What an agent that reviews may do without asking: nothing."""


class Act(NamedTuple):
    """Something that would be started."""

    task: str
    what: str
    """task: what does it · setup: a command that prepares its workspace · gate: a command that checks it · review: an
    agent that does."""
    kind: str
    command: tuple[str, ...]
    words: str
    """The prompt of an agent."""
    permission: str
    tools: tuple[str, ...]
    """What it may do without asking."""
    env: tuple[str, ...] = ()
    """Its variables: NAME=VALUE, or NAME for one of the person's that is passed on."""
    project: tuple[str, ...] = ()
    """What of the project reaches its program."""
    servers: tuple[tuple[str, ...], ...] = ()
    """The commands of MCP servers that it is given."""
    folder: str = ""
    """Where it works; empty when that is a worktree of its own."""


def of_attempt(attempt: Attempt, name: str) -> Iterator[Act]:
    """What resuming the agent of an attempt starts: everything that is recorded of how it was started."""
    order, place = attempt.order, attempt.workspace
    command, wanted = tuple(order["argv"]), preparation_of(attempt)
    yield from _setup(name, wanted)
    yield Act(
        name,
        "task",
        attempt.kind,
        command,
        "" if command else attempt.task,
        str(order["permission"]),
        tuple(order["tools_allowed"]),
        env=tuple(wanted.env),
        project=tuple(order.get("project") or ()),
        servers=tuple(tuple(each["argv"]) for each in order["mcp"] if each["name"] != tool_calls.NAME),
        folder="" if place.get("repository") else str(place.get("path", "")),
    )


def _setup(name: str, wanted: Preparation) -> Iterator[Act]:
    """The commands that prepare a workspace."""
    for command in wanted.setup or ():
        yield Act(name, "setup", "shell", tuple(command), "", "", (), tuple(wanted.of_setup))


def of_run(run: Run, newest: Mapping[str, Attempt], commands: Iterable[EventBase]) -> list[Act]:
    """Everything that is left to do, as it would be done: by the newest attempt of an agent, where there is one.

    `commands` are those in the run's inbox that were not handled yet: they can add tasks.
    """
    left = [task for task in run.tasks.values() if not task.status.is_done]
    commands = list(commands)
    plans = [each for each in (run.proposal, *commands) if isinstance(each, (ProposedPlan, PlanProposed))]
    types = {name: each for plan in plans for name, each in (plan.options.get("agents") or {}).items()}
    run = msgspec.structs.replace(run, options={**run.options, "agents": types | (run.options.get("agents") or {})})
    found = [act for task in (*left, *asked(run, commands)) for act in _of_task(run, task, newest)]
    setups = {(act.command, act.env): act for act in reversed(found) if act.what == "setup"}  # it runs once for all
    return [act for act in found if act.what != "setup" or act is setups[act.command, act.env]]


def asked(run: Run, commands: Iterable[EventBase]) -> list[TaskState]:
    """Tasks that were requested of a run, or are in a plan that may be approved already; what cannot be a task, or is
    one already, the run refuses as well."""
    found = []
    for command in (run.proposal, *commands):
        for each in command.tasks if isinstance(command, (TasksRequested, PlanProposed, ProposedPlan)) else ():
            try:
                plan = msgspec.convert(each, Task)
                agent_types.of_task(run.options, plan.agent)
            except msgspec.ValidationError:
                continue
            if plan.name not in run.tasks:
                found.append(TaskState(name=plan.name, plan=dict(each), needs=list(plan.needs)))
    return found


def _of_task(run: Run, task: TaskState, newest: Mapping[str, Attempt]) -> Iterator[Act]:
    plan = msgspec.convert(task.plan, Task)
    begun = newest.get(run.agent(task.name))
    if begun is not None:
        yield from of_attempt(begun, task.name)
    else:
        order, wanted = terms(run, plan), prepared(run, plan)
        yield from _setup(task.name, wanted)
        may, words = (str(order["permission"]), tuple(order["tools_allowed"])), "" if plan.command else plan.task
        env, project = tuple(wanted.env), tuple(order.get("project_settings") or ())
        yield Act(task.name, "task", order["kind"], tuple(plan.command), words, *may, env, project)
    gates = [*plan.gates, *(planner.checks_of(run.options) if task is run.planner else ())]
    for gate in gates:  # those that it has passed too: when it is done again, they look again
        if gate.command:
            yield Act(task.name, "gate", "shell", tuple(gate.command), "", "", ())
        elif gate.review:
            yield Act(task.name, "review", str(run.options.get("kind", "")), (), gate.review, REVIEWS, ())


async def agree(journal: Journal, clock: Clock, attempts: Attempts, run: Run) -> dict[str, Any]:
    """Make the worktrees of a run that a person agrees to, and record it; the options that the run is resumed with.

    Killed anywhere, it can be done again. `Runs.execute(run.id, options=…)` keeps the options.
    """
    options: dict[str, Any] = {}
    if (own := workspace_of(run, attempts.folder)) is not None:
        options["workspace"] = (await merged_work(Path(run.folder), own, run.commit)).to_data()
    for task in run.tasks.values():
        if not task.status.is_done and await attempts.newest(run.agent(task.name)):  # else it has not begun
            await _of_agent(attempts, Path(run.folder), await attempts.history(run.agent(task.name)), task.commit)
    await consent.agree(journal, clock, run.id)
    return options


async def _of_agent(attempts: Attempts, folder: Path, history: list[Attempt], commit: str) -> None:
    """The worktree of an agent, with its files as they were last saved."""
    before = Workspace.located(history[-1].workspace, attempts.folder)
    if before.in_place:
        return
    start = commit or last_saved(history) or before.base
    was_there = await workspaces.exists(before)
    made = await workspaces.prepare(folder, before.name, root=before.tree.parent, base=before.base, start=start)
    if made[:5] != before[:5]:
        raise InvalidInput(
            f"the worktree of {before.name} is at {made.tree} for {made.gitdir}, and should be at {before.tree} for "
            f"{before.gitdir}",
            hint="another copy of this run works in the repository; import it with a clone: --cwd CLONE",
        )
    if was_there and start is not None:
        await workspaces.restore(made, start)
