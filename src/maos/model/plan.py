"""What a run is to do: tasks, and which of them need which.

A plan comes from a person's file or from a model, so nothing in it is believed: `check` finds everything that is wrong
with it at once, and says where. How plans are written in files is in `maos.plans`.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from typing import Any

import msgspec

from maos.errors import InvalidInput
from maos.model import preparation
from maos.patterns import regex
from maos.redact import REDACTED, Redactor
from maos.settings.positions import Path
from maos.settings.positions import Problem as Problem

TASKS_MAX = 100_000
NAME_CHARS_MAX = 64
SHOWN_CHARS_MAX = 60
CIRCLE_SHOWN_MAX = 12
ASK, BY_AGENT = "ask", "agent"
"""What is done when the work of two tasks cannot be merged: a person is asked, or an agent tries first."""
AGENT_FIELDS = ("name", "task", "agent", "needs")
"""What an agent may say of a task that it adds to its run; the rest of a task is for a person to say."""
FUNCTION = regex(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
"""How a function is named: `module:function`."""
_NAME = regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_REDACTOR = Redactor({})
_RERUN_HINT = "have the command read it from a file, so that it can be run again after a crash"


class Gate(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a task must pass before it counts as done: a command, a person, or an agent that reviews."""

    command: list[str] = []
    person: str = ""
    """The question a person answers with yes or no."""
    review: str = ""
    """The prompt of the reviewing agent."""


class Task(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One piece of work for one agent."""

    name: str
    task: str = ""
    """The prompt of the agent."""
    agent: str = ""
    """The type of agent that does it, such as developer; it gives what is not said here."""
    kind: str = ""
    command: list[str] = []
    """The command itself, for tasks of kind shell."""
    mcp: bool = False
    """Whether a command knows for which agent it acts, so that it can use `maos mcp`; a model always can."""
    needs: list[str] = []
    priority: int = 0
    """Among tasks that could begin, the highest first."""
    time_limit_s: float = 0.0
    budget_usd: float = 0.0
    tokens_max: int = 0
    gates: list[Gate] = []
    model: str = ""
    tools: list[str] = []
    setup: list[list[str]] | None = None
    """Commands that prepare its workspace; None: those of the run."""
    setup_inputs: list[str] = []
    copy_ignored: list[str] = []
    env: list[str] = []
    """Variables, as NAME=VALUE, or NAME for one of the person's that is passed on."""


class Plan(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Tasks in the order they were written down."""

    tasks: list[Task]
    request: str = ""
    summary: str = ""
    conflicts: str = ASK
    """Who resolves conflicts between the files of tasks: ask, a person; agent, the task's agent, then a person."""


class BadPlan(InvalidInput):
    """A plan that is not valid; `problems` has everything that is wrong with it, in the order of the file."""

    hint = "fix the plan and retry"

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda each: each.position or (0, 0)))
        first = self.problems[0]
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        super().__init__(f"{'' if first.position else 'the plan is not valid: '}{first}{more}")


def from_data(data: Any, agents: Collection[str] | None = None) -> Plan:
    """The plan in data as a run records it, checked; BadPlan says where it is wrong."""
    try:
        plan = msgspec.convert(data, Plan)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `")
        raise BadPlan([Problem(_spoken(where.rstrip("`")), what)]) from error
    return checked(plan, agents=agents)


def checked(plan: Plan, known: Sequence[Task] = (), agents: Collection[str] | None = None) -> Plan:
    """The plan itself if nothing is wrong with it; else BadPlan with what `check` finds."""
    problems = check(plan, known, agents)
    if problems:
        raise BadPlan(problems)
    return plan


def check(plan: Plan, known: Sequence[Task] = (), agents: Collection[str] | None = None) -> list[Problem]:
    """Everything that is wrong with a plan.

    `known` are tasks that its run has already, `agents` the types of agents that there are, if that is to be checked.
    """
    if not plan.tasks:
        return [Problem("plan", "there is nothing to do", "give it at least one task", ("tasks",))]
    if len(known) + len(plan.tasks) > TASKS_MAX:
        return [Problem("plan", f"{len(plan.tasks)} tasks are too many", f"at most {TASKS_MAX}", ("tasks",))]
    problems = list(_check_plan(plan))
    names = {task.name.lower(): 0 for task in known}
    exact = {task.name for task in (*known, *plan.tasks)}
    guesses = Guesses()
    for index, task in enumerate(plan.tasks):
        problems += _check_task(index, task, names.get(task.name.lower()))
        names.setdefault(task.name.lower(), index + 1)
        for number, need in enumerate(task.needs):
            if need not in exact:
                path: Path = ("tasks", index, "needs", number)
                problems.append(Problem(_where(index, task), unknown_need(need), guesses.hint(need, exact), path))
        if agents is not None and task.agent and task.agent not in agents:
            hint = guesses.hint(task.agent, agents, f"there are {', '.join(sorted(agents))}")
            what = f"there is no type of agent called {shown(task.agent)}"
            problems.append(Problem(_where(index, task), what, hint, ("tasks", index, "agent")))
    return problems or _check_order(plan, known)


def not_for_agents(tasks: Sequence[Task]) -> list[str]:
    """The fields of tasks that an agent may not give, such as command and tools, if they differ from their defaults."""
    given = {field for task in tasks for field in msgspec.to_builtins(task)}
    return sorted(given - set(AGENT_FIELDS))


def _where(index: int, task: Task) -> str:
    """A task of a plan, in words."""
    return f"task {index + 1}" + (f" ({task.name})" if _NAME.fullmatch(task.name) else "")


def unknown_need(need: str) -> str:
    """What is wrong with a task that needs another one which does not exist."""
    return f"needs {shown(need)}, which does not exist"


def _check_plan(plan: Plan) -> Iterator[Problem]:
    if plan.conflicts not in (ASK, BY_AGENT):
        what = f"conflicts cannot be resolved by {shown(plan.conflicts)}"
        yield Problem("plan", what, "use ask or agent", ("conflicts",))
    if not _can_be_recorded((plan.request, plan.summary)):
        yield Problem("plan", "the request or the summary cannot be written as UTF-8")


def _check_task(index: int, task: Task, same: int | None) -> Iterator[Problem]:
    """What is wrong with one task; `same` is the number of one before it with the same name, 0 is one of the run."""
    where, path = _where(index, task), ("tasks", index)
    if not _NAME.fullmatch(task.name):
        hint = "up to 40 letters, digits, - and _"
        yield Problem(where, f"{shown(task.name)} cannot name a task", hint, (*path, "name"))
    elif same is not None:
        what = f"task {same} has the same name" if same else "the run has a task of that name already"
        yield Problem(where, what, "", (*path, "name"))
    if not task.task.strip() and not task.command:
        yield Problem(where, "nothing says what to do", "give it a `task` or a `command`", path)
    elif task.kind == "python" and not (len(task.command) == 1 and FUNCTION.fullmatch(task.command[0])):
        named = f"{shown(' '.join(task.command))} does not name a function" if task.command else "it names no function"
        field = "command" if task.command else "kind"
        yield Problem(where, named, "write `python: module:function`, and its arguments into `with`", (*path, field))
    limits = (task.time_limit_s, task.budget_usd, task.tokens_max)
    if not all(0 <= each < math.inf for each in limits):
        yield Problem(where, "a limit is below zero, or is not a number", "leave it out for no limit", path)
    if secret := _secret_in(task.command):
        yield Problem(where, f"its command contains {secret}", _RERUN_HINT, (*path, "command"))
    for field, what, hint in preparation.check(preparation.of_options(msgspec.structs.asdict(task))):
        yield Problem(where, what, hint, (*path, field))
    for number, gate in enumerate(task.gates):
        if secret := _secret_in(gate.command):
            yield Problem(where, f"the command of a gate contains {secret}", _RERUN_HINT, (*path, "gates", number))
        if sum(map(bool, (gate.command, gate.person, gate.review))) != 1:
            yield Problem(where, "a gate is one of command, person and review", "", (*path, "gates", number))
    if not _can_be_recorded(task):
        yield Problem(where, "it has text that cannot be written as UTF-8, or a number of more than 64 bits", "", path)


def _secret_in(command: Sequence[str]) -> str:
    """What a command contains that is not recorded, so that it could not be run again after a crash; or nothing."""
    said = " ".join(command)
    clean = _REDACTOR.text(said)
    if clean == said and REDACTED not in said:
        return ""
    return f"a secret ({clean.partition(REDACTED)[2].partition(']')[0]}), which is never recorded"


def _can_be_recorded(value: Any) -> bool:
    try:
        msgspec.msgpack.encode(value)
    except (UnicodeEncodeError, OverflowError):
        return False
    return True


def _check_order(plan: Plan, known: Sequence[Task]) -> list[Problem]:
    circle = find_circle(Plan(tasks=[*known, *plan.tasks]))
    if not circle:
        return []
    shortened = circle if len(circle) <= CIRCLE_SHOWN_MAX else [*circle[: CIRCLE_SHOWN_MAX - 1], "…"]
    way = " → ".join([*shortened, circle[0]])
    members = set(circle)
    path = ("tasks", next(index for index, task in enumerate(plan.tasks) if task.name in members), "needs")
    return [Problem("plan", f"tasks wait for each other: {way}", "leave out one of these needs", path)]


def _empty_order(plan: Plan) -> TopologicalSorter[str]:
    """The tasks as they stand in the plan, without their needs."""
    return TopologicalSorter({task.name: () for task in plan.tasks})


def batches(plan: Plan) -> list[list[str]]:
    """Names of tasks in groups: each needs only what is in groups before its own."""
    order = _empty_order(plan)
    for task in plan.tasks:
        order.add(task.name, *task.needs)
    with suppress(CycleError):  # tasks in a circle, and those that need them, are in no group
        order.prepare()
    found = []
    while group := order.get_ready():
        found.append(list(group))
        order.done(*group)
    return found


def find_circle(plan: Plan) -> list[str]:
    """Tasks that need each other in a circle, in order; none when there is no circle."""
    order = _empty_order(plan)
    for task in plan.tasks:
        for need in task.needs:
            order.add(need, task.name)  # in reverse: the search then follows what each task needs, as written
    try:
        order.prepare()
    except CycleError as error:
        members = error.args[1][:-1]
        first = next(index for index, task in enumerate(plan.tasks) if task.name in members)
        start = members.index(plan.tasks[first].name)
        return [*members[start:], *members[:start]]
    return []


def _spoken(path: str) -> str:
    """A place in the data as a person would say it: `$.tasks[2].needs` is task 3, needs."""
    if not path or path == "$":
        return "plan"
    match = re.fullmatch(r"\$\.tasks\[(\d+)\]\.?(.*)", path)
    if match is None:
        return path.removeprefix("$.")
    return f"task {int(match[1]) + 1}" + (f", {match[2]}" if match[2] else "")


class Guesses:
    """Hints for one text; the work is bounded, so that many unknown names in a large text take no longer than a few."""

    def __init__(self, comparisons_max: int = 10_000) -> None:
        self._left = comparisons_max

    def hint(self, name: str, known: Collection[str], otherwise: str = "") -> str:
        """`did you mean 'x'?` when a known name is close; else `otherwise`."""
        self._left -= len(known)
        if self._left < 0 or len(name) > NAME_CHARS_MAX:
            return otherwise
        close = difflib.get_close_matches(name, [each for each in known if len(each) <= NAME_CHARS_MAX], n=1)
        return f"did you mean {close[0]!r}?" if close else otherwise


def shown(value: object) -> str:
    """A value in quotes as a message has it, shortened."""
    text = value if isinstance(value, str) else str(value)
    return repr(text if len(text) <= SHOWN_CHARS_MAX else text[: SHOWN_CHARS_MAX - 1] + "…")
