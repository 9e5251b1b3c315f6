"""The planner: the first task of a run that was started from a request. Its agent looks at the folder and answers with
a plan, which is checked like any other; the tasks of the plan are added to the run when a person has approved it.

The answer comes from a model, and a repository may have told that model what to say. So a plan can only name
tasks, their texts and types of agents: no commands, no tools and no limits, which only a person can set. The commands
that check each task are options of the run, which a person gave it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from maos.errors import InvalidInput
from maos.model.events.run import PlanProposed
from maos.model.plan import BadPlan, Gate, Plan, Problem, Task, check, checked
from maos.model.run import ProposedPlan, Run
from maos.patterns import regex
from maos.plans import source
from maos.plans.parser import Priority
from maos.runs import agent_types
from maos.runs.agent_types import AgentType
from maos.runs.plan_input import ValidPlan, with_more

NAME = "plan"
"""The task that plans. No other task of its run can have this name."""
APPROVAL = "Run this plan? Answer yes, no, or what to change."
TOOLS = ("Read", "Grep", "Glob")
"""What the planner may use: it looks, and changes nothing."""
TASKS_MAX = 50

PROMPT = """\
Plan this piece of work for several agents. Do not do the work itself, and change nothing.

The request:

{request}

Look at the folder as far as you need to. Then answer with one JSON object in a ```json block that fits this schema:

{schema}

Each task is done by one agent on its own. It sees the files of the tasks it needs, and their results, but not this \
conversation: `task` must contain everything. Tasks that do not need each other run at the same time, so they must \
not change the same files. Use as few tasks as possible, one for each independent part of the work, at most {tasks_max}.

`agent` is one of these types:

{types}
"""
CHECKED = """
Each task must leave the folder in a state in which these commands succeed; maos runs them when its agent has ended:

{commands}
"""

REVISE = """\
Your plan cannot be used as it is:

{why}

Answer with the whole plan again, changed, as one JSON object in a ```json block. Do nothing else.
"""

_BLOCK = regex(r"```(?:json)?[ \t]*\n(.*?)\n[ \t]*```", re.S)


class PlannedTask(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One piece of work for one agent."""

    name: str
    task: str
    agent: str
    needs: list[str] = []
    priority: Priority = 0


class Planned(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a planner may say."""

    summary: str
    tasks: list[PlannedTask]


def first_plan(request: str, *, is_approved: bool) -> ValidPlan:
    """The plan that a run of a request starts with: its only task makes the plan, which a person approves unless that
    was done in advance."""
    gates = [] if is_approved else [Gate(person=APPROVAL)]
    return ValidPlan(checked(Plan(tasks=[Task(name=NAME, task=request, gates=gates)], request=request)), {})


def prompt(request: str, types: Mapping[str, AgentType], checks: Sequence[Gate] = ()) -> str:
    """The prompt of the planner."""
    schema = json.dumps(msgspec.json.schema(Planned), indent=1)
    known = "\n".join(f"- {each.name}: {each.description}" for each in types.values())
    text = PROMPT.format(request=request, schema=schema, types=known, tasks_max=TASKS_MAX)
    commands = "\n".join(f"    {shlex.join(each.command)}" for each in checks)
    return text + CHECKED.format(commands=commands) if checks else text


def checks_of(options: Mapping[str, Any]) -> list[Gate]:
    """What the work of each task of a planned request must pass; InvalidInput when it cannot be a check."""
    gates = [Gate(command=list(command)) for command in options.get("gates") or ()]
    problems = check(Plan(tasks=[Task(name=NAME, task=NAME, gates=gates)]))
    if problems:
        hint = problems[0].hint or "give a command, such as 'make test'"
        raise InvalidInput(f"a gate cannot be used: {problems[0].what}", hint=hint)
    return gates


def understand(answer: str, run: Run, types: Mapping[str, AgentType]) -> Plan:
    """The plan in an answer; BadPlan has everything that is wrong with it, said so that the agent can correct it."""
    data = _json_in(answer)
    if data is None:
        raise BadPlan([Problem("answer", "there is no JSON object in it", "put it into a ```json block")])
    source.of_data(data)
    try:
        planned = msgspec.convert(data, Planned)
    except msgspec.ValidationError as error:
        raise BadPlan([Problem("answer", str(error))]) from error
    if len(planned.tasks) > TASKS_MAX:
        raise BadPlan([Problem("plan", f"{len(planned.tasks)} tasks are too many", f"at most {TASKS_MAX}")])
    gates = checks_of(run.options)
    tasks = [Task(**msgspec.structs.asdict(task), gates=gates) for task in planned.tasks]
    return with_more(run, Plan(tasks=tasks, request=run.request, summary=planned.summary), types)


def propose(found: ValidPlan, at_us: int, *, by: str = "") -> PlanProposed:
    """The event that proposes a plan, with the types of agents that it was checked against."""
    tasks = [msgspec.to_builtins(task) for task in found.plan.tasks]
    options = {"agents": agent_types.to_data(found.plan, found.types)}
    return PlanProposed(tasks=tasks, summary=found.plan.summary, options=options, by=by, at_us=at_us)


def proposed(run: Run) -> ValidPlan | None:
    """The plan of a run that waits to be approved."""
    if run.proposal is None:
        return None
    options = run.proposal.options
    types = {name: agent_types.of_task(options, name) for name in options.get("agents") or {}}
    return ValidPlan(_plan_of(run.proposal, run.request), types)


def check_again(run: Run) -> None:
    """BadPlan when the plan that was approved does not fit tasks that the run was given meanwhile."""
    assert run.proposal is not None
    with_more(run, _plan_of(run.proposal, run.request))


def _plan_of(proposal: ProposedPlan, request: str) -> Plan:
    tasks = msgspec.convert(proposal.tasks, list[Task])
    return Plan(tasks=tasks, request=request, summary=proposal.summary)


def _json_in(answer: str) -> Any:
    """The last JSON object in a text: in a block of its own, or among words."""
    for text in reversed(_BLOCK.findall(answer)):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    start = answer.find("{")
    if start >= 0:
        try:
            return json.JSONDecoder().raw_decode(answer, start)[0]
        except (ValueError, RecursionError):
            pass
    return None
