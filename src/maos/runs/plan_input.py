"""Plans as they are given to runs: read, checked together with the types of agents they name, completed from the
settings; and more tasks for a run, checked together with those that it has."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from maos.model import preparation
from maos.model.plan import BadPlan, Plan, Problem, Task, checked, from_data
from maos.model.run import Run
from maos.patterns import regex
from maos.plans import parser, source
from maos.plans.parser import ParsedPlan
from maos.plans.source import Source
from maos.runs import agent_types
from maos.runs.agent_types import AgentType
from maos.settings.schema import Settings
from maos.tuples import NamedTuple

_MORE = regex(r"(?P<name>[A-Za-z0-9][A-Za-z0-9_-]{0,39})(?: after (?P<needs>[A-Za-z0-9_,\- ]+))?: (?P<task>.+)", re.S)


class ValidPlan(NamedTuple):
    """A plan that was checked, with the types of agents that it was checked against."""

    plan: Plan
    types: Mapping[str, AgentType]
    parsed: ParsedPlan | None = None
    """The text that it is from."""

    @property
    def options(self) -> Mapping[str, Any]:
        """What the text says about the whole run."""
        return self.parsed.options if self.parsed else {}


class RunOptions(TypedDict, total=False):
    """Options of a new run; those that are not given are those of its plan, then of the settings."""

    kind: str
    """The kind of agents, unless a task or its type names one."""
    model: str
    permission: str
    in_place: bool
    """Whether agents work in the folder itself, without worktrees."""
    concurrency: int
    time_limit_s: float
    """For each agent; 0: none."""
    budget: Mapping[str, float]
    """Limits of the run: `cost_usd`, `tokens` and `time_s`."""
    setup: Sequence[Sequence[str]]
    """Commands that prepare the workspaces, once for all agents that need the same."""
    setup_inputs: Sequence[str]
    copy_ignored: Sequence[str]
    """Patterns of ignored files that the workspaces get copies of."""
    include_uncommitted: bool | Sequence[str]
    env: Mapping[str, str | None] | Sequence[str]
    """Variables: values, or None (in a list: a name alone) to pass one of this process on."""
    project_settings: Sequence[str]
    """What of the project reaches the agents' programs: instructions, skills, mcp, settings, hooks or all."""
    gates: Sequence[Sequence[str]]
    """Of a request: commands that the work of each planned task must pass before the task is done."""


PlanInput = Plan | Source | Mapping[str, Any] | str | os.PathLike[str]
"""A plan: as it is, as text, as data in the form of a plan file, or the path of a file."""


def validate(given: PlanInput, types: Mapping[str, AgentType] | None = None) -> ValidPlan:
    """Check a plan, and the types of agents that it names if they are given; BadPlan has everything that is wrong."""
    known = types or {}
    if isinstance(given, Plan):
        return ValidPlan(from_data(msgspec.to_builtins(given), types), known)
    if isinstance(given, Mapping):
        parsed = parser.parse_data(msgspec.to_builtins(given), types)
    else:
        text = given if isinstance(given, Source) else source.load(given)
        parsed = parser.parse(text, agents=types)
    return ValidPlan(parsed.plan, known, parsed)


def with_defaults(values: Settings, given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a new run: as given, else as the settings say.

    How many agents work at once is kept only if it is given: else a run applies the setting as it changes.
    """
    usual = values.orchestrate
    kind = given.get("kind", usual.kind)
    defaults = {
        "kind": kind,
        "permission": usual.permission,
        "model": usual.model if kind == usual.kind else "",
        "in_place": False,
        "time_limit_s": usual.time_limit_s,
    }
    budget = {name: limit for name, limit in msgspec.structs.asdict(values.budget).items() if limit}
    return {**defaults, **given, "budget": {**budget, **given.get("budget", {})}}


def workspace_options(values: Settings, plan: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """How the workspaces of a new run are prepared: as its settings, its plan and its options say, the later ones
    taking precedence, and what of the project reaches its agents."""
    usual = values.workspace
    parts = preparation.of_settings(usual), preparation.of_options(plan), preparation.of_options(given)
    uncommitted = given.get("include_uncommitted") or plan.get("include_uncommitted") or usual.include_uncommitted
    from_project = preparation.project_settings(given.get("project_settings") or usual.project_settings)
    return {
        **preparation.to_options(preparation.checked(preparation.combine(parts))),
        **({"include_uncommitted": uncommitted is True or list(uncommitted)} if uncommitted else {}),
        **({"project_settings": from_project} if from_project else {}),
    }


class Addition(NamedTuple):
    """Tasks that fit a run, and the options that the run needs for them."""

    plan: Plan
    options: Mapping[str, Any]


def known_types(run: Run) -> dict[str, AgentType]:
    """The types of agents that new tasks can name: those the run has recorded, and those there are now."""
    recorded = {name: agent_types.of_task(run.options, name) for name in run.options.get("agents") or {}}
    return agent_types.known(Path(run.folder)) | recorded


def addition(run: Run, texts: Sequence[str] = (), files: Sequence[ParsedPlan] = ()) -> Addition:
    """Check new tasks, given as text and in files, together with those of the run; BadPlan says what is wrong."""
    said = more(run, texts).tasks if texts else []
    plan = Plan(tasks=[*said, *(task for file in files for task in file.plan.tasks)])
    try:
        return fitted(run, plan)
    except BadPlan as error:
        raise BadPlan([_locate(each, len(said), files) for each in error.problems]) from error


def fitted(run: Run, plan: Plan) -> Addition:
    """Check new tasks together with those of the run; BadPlan says what is wrong."""
    types = known_types(run)
    with_more(run, plan, types)
    return Addition(plan, {"agents": {**agent_types.to_data(plan, types), **(run.options.get("agents") or {})}})


def _locate(problem: Problem, texts: int, files: Sequence[ParsedPlan]) -> Problem:
    """A problem of new tasks at its position, if the task is from a file; the first tasks are given as text."""
    match problem.path:
        case ("tasks", int(index), *field) if index >= texts:
            index -= texts
            for file in files:
                if index < len(file.plan.tasks):
                    return file.locate(problem._replace(path=("tasks", index, *field)))
                index -= len(file.plan.tasks)
    return problem


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
        command = ["sh", "-c", said.strip()] if run.options.get("kind") == "shell" else []
        tasks.append(Task(name=name, task=said.strip(), command=command, needs=needed))
    return with_more(run, Plan(tasks=tasks))


def with_more(run: Run, plan: Plan, agents: Collection[str] | None = None) -> Plan:
    """A plan that adds to a run, checked together with what the run has; BadPlan speaks of the new tasks."""
    return checked(plan, [msgspec.convert(task.plan, Task) for task in run.tasks.values()], agents)
