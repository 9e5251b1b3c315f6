"""The ledger of effects outside the journal: what was about to be done, what became of it, and what nobody knows (I31).

Nothing is recorded for it. Tools that agents ran and steps of workflows are events already; this reads them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from maos.engine import ownership
from maos.engine.attempt_reader import AttemptReader
from maos.engine.orchestration import ENDED_BY_ITSELF, REPEATABLE
from maos.engine.types import WORKFLOW_RUN
from maos.errors import NotFound
from maos.journal.journal import Journal
from maos.model.attempt import Attempt, stream
from maos.model.run import stream as run_stream
from maos.model.workflow import AGENT, STEP, WorkflowRun
from maos.model.workflow import stream as flow_stream

DONE = "done"
"""It was begun and has a result. For good."""
FAILED = "failed"
"""It was begun and has an error. A step may be tried again; each try is an effect of its own in the outside."""
UNKNOWN = "unknown"
"""It was begun and nobody knows whether it took effect. `maos workflow settle`; an agent is told when it goes on."""
RUNNING = "running"
"""It was begun, and whoever began it lives. Done, failed or unknown."""
GIVEN_CHARS_MAX = 400


class Effect(NamedTuple):
    """Something that was to happen outside."""

    owner: str
    """The attempt, or the workflow."""
    id: str
    what: str
    given: str
    """The beginning of what it was given."""
    outcome: str
    said: str = ""
    """The beginning of what came of it."""
    begun_us: int = 0
    ended_us: int = 0


async def find(attempts: AttemptReader, id: str = "", *, unknown: bool = False) -> list[Effect]:
    """What a run, an agent or a workflow did outside, or everybody, in the order it was begun.

    With `unknown`, only what nobody knows the outcome of.
    """
    journal = attempts.journal
    agents, flows = await _owners(attempts, id)
    found = [effect for agent in agents async for effect in of_agent(journal, attempts, agent)]
    for each in flows:
        flow = await WORKFLOW_RUN.load(journal, each)
        if flow is not None:
            found += of_workflow(flow, is_running=flow.status == "running" and not ownership.is_gone(flow.owner))
    return sorted((each for each in found if not unknown or each.outcome == UNKNOWN), key=lambda each: each.begun_us)


async def _owners(attempts: AttemptReader, id: str) -> tuple[list[str], list[str]]:
    """The agents and the workflows of an id; NotFound when there are none."""
    everybody = [attempt.agent async for attempt in attempts.all()]
    prefix = flow_stream("")
    if not id:
        return everybody, [name.removeprefix(prefix) async for name in attempts.journal.streams(prefix)]
    if id in everybody:
        return [id], []
    flows = [id] if await attempts.journal.version(flow_stream(id)) else []
    if not flows and not await attempts.journal.version(run_stream(id)):
        hint = "`maos orchestration list`, `maos workflow list` and `maos agent list` show what there is"
        raise NotFound(f"there is no run, workflow or agent {id!r}", hint=hint)
    return [agent for agent in everybody if agent.startswith(f"{id}.")], flows


async def of_agent(journal: Journal, reader: AttemptReader, agent: str) -> AsyncIterator[Effect]:
    """The tools that an agent ran in all its attempts, in order."""
    for attempt in await reader.history(agent):
        async for effect in _of_attempt(journal, attempt):
            yield effect


async def _of_attempt(journal: Journal, attempt: Attempt) -> AsyncIterator[Effect]:
    if attempt.kind in REPEATABLE:
        yield _of_command(attempt)
        return
    found: dict[str, Effect] = {}
    async for record in journal.read(stream(attempt.id)):
        for fact in record.data["facts"] if record.type == "attempt_output" else ():
            id = str(fact.get("id", ""))
            at_us = int(record.data.get("at_us", 0))
            if fact["kind"] == "tool_use":
                begun_us = found[id].begun_us if id in found else at_us
                outcome = RUNNING if ownership.is_at_work(attempt) else UNKNOWN
                found[id] = Effect(attempt.id, id, fact.get("name", ""), _short(fact.get("input")), outcome,
                                   begun_us=begun_us)  # fmt: skip
            elif fact["kind"] == "tool_result" and id in found:
                outcome = FAILED if fact.get("failed") else DONE
                found[id] = found[id]._replace(outcome=outcome, said=_short(fact.get("output")), ended_us=at_us)
    for effect in found.values():
        yield effect


def _of_command(attempt: Attempt) -> Effect:
    """A command or a function in a process of its own: nobody knows what it did unless it has ended by itself."""
    outcome = RUNNING if ownership.is_at_work(attempt) else UNKNOWN
    if not attempt.is_open and attempt.failure in ENDED_BY_ITSELF:
        outcome = FAILED if attempt.failure else DONE
    given = _short(shlex.join(map(str, attempt.order.get("argv") or ())) or attempt.task)
    said = _short(attempt.message or attempt.result)
    return Effect(attempt.id, "", attempt.kind, given, outcome, said, attempt.planned_us, attempt.ended_us)


def of_workflow(flow: WorkflowRun, *, is_running: bool) -> list[Effect]:
    """The steps of a workflow, in the order of their calls."""
    found = []
    for step_id, call in flow.steps.items():
        if call.kind in (STEP, AGENT):
            outcome = call.status if call.status in (DONE, FAILED, UNKNOWN) else RUNNING if is_running else UNKNOWN
            if call.until_us and outcome == UNKNOWN:
                outcome = FAILED  # it waited for the next try
            said = call.error["message"] if call.error else _short(call.result)
            given = str(call.about.get("given") or call.about.get("task") or "")
            found.append(Effect(flow.id, step_id, call.name, given, outcome, said, call.at_us, call.ended_us))
    return found


def _short(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= GIVEN_CHARS_MAX else text[: GIVEN_CHARS_MAX - 1] + "…"
