"""What a run is to do: tasks, and which of them need which.

A plan comes from a person's file or from a model, so nothing in it is believed: `check` finds everything that is wrong
with it at once, and says where.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from maos.errors import InvalidInput

TASKS_MAX = 100_000
ASK, BY_AGENT = "ask", "agent"
"""What is done when the work of two tasks cannot be merged: a person is asked, or an agent tries first."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


class Gate(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a task must pass before it counts as done: a command, a person, or an agent that reviews."""

    command: list[str] = []
    person: str = ""
    """The question a person answers with yes or no."""
    review: str = ""
    """What the reviewing agent is told."""


class Task(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One piece of work for one agent."""

    name: str
    task: str = ""
    """What the agent is told."""
    agent: str = ""
    """The type of agent that does it, such as developer; it gives what is not said here."""
    kind: str = ""
    command: list[str] = []
    """The command itself, for tasks of kind shell."""
    mcp: bool = False
    """Whether a command is told whose it is, so that it can use `maos mcp`; a model always has those tools."""
    needs: list[str] = []
    priority: int = 0
    """Among tasks that could begin, the highest first."""
    time_limit_s: float = 0.0
    budget_usd: float = 0.0
    tokens_max: int = 0
    gates: list[Gate] = []
    model: str = ""
    tools: list[str] = []


class Plan(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Tasks in the order they were written down."""

    tasks: list[Task]
    request: str = ""
    summary: str = ""
    conflicts: str = ASK
    """Who resolves conflicts between the files of tasks: ask, a person; agent, the task's agent, then a person."""


class Problem(NamedTuple):
    """Something wrong with a plan."""

    where: str
    what: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" + (f" ({self.hint})" if self.hint else "")


class BadPlan(InvalidInput):
    """A plan that cannot be carried out; `problems` has everything that is wrong with it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        super().__init__(f"the plan cannot be carried out: {problems[0]}{more}", hint="mend the plan and try again")
        self.problems = tuple(problems)


def from_data(data: Any) -> Plan:
    """A plan from plain data, checked; BadPlan says where it is wrong."""
    try:
        plan = msgspec.convert(data, Plan)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `")
        raise BadPlan([Problem(_spoken(where.rstrip("`")), what)]) from error
    problems = check(plan)
    if problems:
        raise BadPlan(problems)
    return plan


def check(plan: Plan) -> list[Problem]:
    """Everything that is wrong with a plan."""
    if not plan.tasks:
        return [Problem("plan", "there is nothing to do", "give it at least one task")]
    if len(plan.tasks) > TASKS_MAX:
        return [Problem("plan", f"{len(plan.tasks)} tasks are too many", f"at most {TASKS_MAX}")]
    problems: list[Problem] = []
    if plan.conflicts not in (ASK, BY_AGENT):
        problems.append(Problem("plan", f"conflicts cannot be resolved by {plan.conflicts!r}", "use ask or agent"))
    names: dict[str, int] = {}
    for number, task in enumerate(plan.tasks, 1):
        where = f"task {number}" + (f" ({task.name})" if task.name else "")
        if not _NAME.fullmatch(task.name):
            problems.append(Problem(where, f"{task.name!r} cannot name a task", "up to 40 letters, digits, - and _"))
        elif task.name.lower() in names:
            problems.append(Problem(where, f"task {names[task.name.lower()]} has the same name"))
        names.setdefault(task.name.lower(), number)
        if not task.task.strip() and not task.command:
            problems.append(Problem(where, "nothing says what to do", "give it a `task` or a `command`"))
        if task.time_limit_s < 0 or task.budget_usd < 0 or task.tokens_max < 0:
            problems.append(Problem(where, "a limit is below zero"))
        for gate in task.gates:
            if sum(map(bool, (gate.command, gate.person, gate.review))) != 1:
                problems.append(Problem(where, "a gate is one of command, person and review"))
    exact = {task.name for task in plan.tasks}
    for number, task in enumerate(plan.tasks, 1):
        for need in task.needs:
            if need not in exact:
                close = difflib.get_close_matches(need, exact, n=1)
                hint = f"did you mean {close[0]!r}?" if close else ""
                problems.append(Problem(f"task {number} ({task.name})", f"needs {need!r}, which does not exist", hint))
    if not problems:
        circle = find_circle(plan)
        if circle:
            way = " → ".join([*circle, circle[0]])
            problems.append(Problem("plan", f"tasks wait for each other: {way}", "leave out one of these needs"))
    return problems


def batches(plan: Plan) -> list[list[str]]:
    """Names of tasks in groups: each needs only what is in groups before its own."""
    needs = {task.name: set(task.needs) for task in plan.tasks}
    needed_by: dict[str, list[str]] = {name: [] for name in needs}
    for name, wanted in needs.items():
        for need in wanted:
            needed_by[need].append(name)
    missing = {name: len(wanted) for name, wanted in needs.items()}
    group = [name for name, count in missing.items() if count == 0]
    found = []
    while group:
        found.append(group)
        following = []
        for name in group:
            for waiting in needed_by[name]:
                missing[waiting] -= 1
                if missing[waiting] == 0:
                    following.append(waiting)
        group = following
    return found


def find_circle(plan: Plan) -> list[str]:
    """Tasks that need each other in a circle, in order; none when there is no circle."""
    free = {name for group in batches(plan) for name in group}
    stuck = {task.name: [need for need in task.needs if need not in free] for task in plan.tasks}
    start = next((name for name, wanted in stuck.items() if name not in free and wanted), None)
    if start is None:
        return []
    way: list[str] = []
    name = start
    while name not in way:
        way.append(name)
        name = stuck[name][0]
    return way[way.index(name) :]


def _spoken(path: str) -> str:
    """A place in the data as a person would say it: `$.tasks[2].needs` is task 3, needs."""
    if not path or path == "$":
        return "plan"
    match = re.fullmatch(r"\$\.tasks\[(\d+)\]\.?(.*)", path)
    if match is None:
        return path.removeprefix("$.")
    return f"task {int(match[1]) + 1}" + (f", {match[2]}" if match[2] else "")
