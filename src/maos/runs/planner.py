"""Asks an agent for a plan: what it answers is checked like any other plan, and the agent may correct it once.

The answer comes from a model, and a repository may have told that model what to say. So a plan can only name
tasks, their texts and types of agents: no commands, no tools and no limits, which only a person can set.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from maos.engine.attempts import Attempts
from maos.engine.live import LiveAttempt
from maos.errors import InvalidInput, MaosError, NotFound
from maos.model.attempt import Attempt
from maos.model.failure import TABLE
from maos.model.plan import BadPlan, Plan, Problem, Task, checked
from maos.plans import source
from maos.plans.parser import Priority
from maos.runs.agent_types import AgentType

TOOLS = ("Read", "Grep", "Glob")
"""What the planner may use: it looks, and changes nothing."""
TASKS_MAX = 50
GRACE_S = 2.0

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

REPAIR = """\
Your plan cannot be used:

{problems}

Answer with the whole plan again, corrected, as one JSON object in a ```json block. Do nothing else.
"""

REVISE = """\
The person wants this change of the plan:

{change}

Answer with the whole plan again, changed, as one JSON object in a ```json block.
"""

_BLOCK = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n[ \t]*```", re.S)


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


class PlanningFailed(MaosError):
    """The agent that should plan did not come to an end; `failure` says why, as in the failure table."""

    def __init__(self, attempt: Attempt) -> None:
        known = TABLE.get(attempt.failure)
        meaning = known.meaning if known else "the reason is unknown"
        said = f" ({attempt.message})" if attempt.message and attempt.message != meaning else ""
        super().__init__(
            f"there is no plan: {meaning}{said}",
            hint=(known.hint if known else "") or f"`maos agent logs {attempt.agent}` shows what happened",
        )
        self.failure = attempt.failure


def planner_of(run: str) -> str:
    """The agent that plans a run. No task can have this name: theirs begin with the run's id and a dot."""
    return f"{run}-plan"


async def ask(
    attempts: Attempts,
    request: str,
    *,
    run: str,
    folder: Path,
    options: Mapping[str, Any],
    types: Mapping[str, AgentType],
    change: str = "",
) -> Plan:
    """A plan for a request, made by an agent as the options of its run say; BadPlan if it is still wrong after the
    agent corrected it. With `change`, the plan that the agent made before, as a person wants it changed.

    An agent that was asked before, by an engine that has exited, is adopted, or has answered already.
    """
    kind = options["kind"]
    if not attempts.takes_words(kind):
        raise InvalidInput(f"an agent of kind {kind} cannot plan", hint="choose another --kind, or give a --plan FILE")
    agent = planner_of(run)
    if change:
        running = await attempts.resume(agent, task=REVISE.format(change=change))
        return await _settled(attempts, await _answered(running), request, types)
    try:
        known = await attempts.get(agent)
    except NotFound:
        running = await attempts.start(
            prompt(request, types),
            kind=kind,
            name=agent,
            cwd=folder,
            in_place=True,
            model=options["model"],
            tools_allowed=TOOLS,
            permission="deny",
            time_limit_s=options["time_limit_s"],
        )
        return await _settled(attempts, await _answered(running), request, types)
    if known.is_open:
        taken_up = await attempts.adopt(agent)
        known = await attempts.get(agent) if taken_up is None else await _answered(taken_up)
    if known.failure:
        known = await _answered(await attempts.resume(agent))
    return await _settled(attempts, known, request, types)


async def _settled(attempts: Attempts, attempt: Attempt, request: str, types: Mapping[str, AgentType]) -> Plan:
    """The plan in what an agent answered; what is wrong with it, the agent may correct once."""
    try:
        return understand(_answer_of(attempt), request, types)
    except BadPlan as error:
        problems = "\n".join(f"- {each}" for each in error.problems)
        running = await attempts.resume(attempt.agent, task=REPAIR.format(problems=problems))
        return understand(_answer_of(await _answered(running)), request, types)


def _answer_of(attempt: Attempt) -> str:
    if attempt.failure:
        raise PlanningFailed(attempt)
    return attempt.result or attempt.last_text


async def _answered(running: LiveAttempt) -> Attempt:
    """The attempt when it has ended. Its plan is of use here alone, so it is stopped when this is cancelled."""
    try:
        return await running.wait()
    except asyncio.CancelledError:
        await running.stop(grace_s=GRACE_S)
        await running.wait()
        raise


def prompt(request: str, types: Mapping[str, AgentType]) -> str:
    """The prompt of the planner."""
    schema = json.dumps(msgspec.json.schema(Planned), indent=1)
    known = "\n".join(f"- {each.name}: {each.description}" for each in types.values())
    return PROMPT.format(request=request, schema=schema, types=known, tasks_max=TASKS_MAX)


def understand(answer: str, request: str, types: Mapping[str, AgentType]) -> Plan:
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
    tasks = [Task(**msgspec.structs.asdict(task)) for task in planned.tasks]
    return checked(Plan(tasks=tasks, request=request, summary=planned.summary), agents=types)


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
