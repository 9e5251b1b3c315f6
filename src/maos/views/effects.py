"""The ledger of effects outside the journal: what was begun, what came of it, and what is unknown (I31).

Nothing is recorded for it. Tools that agents ran and steps of workflows are events already; this reads them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator
from typing import Any

from msgspec.structs import replace

from maos import ids
from maos.engine import ownership
from maos.engine.streams import WORKFLOW_RUN, AttemptReader
from maos.engine.workflow_status import Status
from maos.journal.journal import Journal
from maos.model.attempt import Attempt, stream
from maos.model.events.attempt import AttemptOutput
from maos.model.events.facts import ToolResult, ToolUse
from maos.model.failure import ENDED_BY_ITSELF, REPEATABLE
from maos.model.read_models import EffectOutcome, ExternalEffect
from maos.model.workflow import AGENT, RUNNING, STEP, WorkflowRun
from maos.views.ids import Ids

GIVEN_CHARS_MAX = 400


async def find(attempts: AttemptReader, id: str = "", *, unknown: bool = False) -> list[ExternalEffect]:
    """What a run, an agent or a workflow did outside, or all of them, in the order it was begun.

    `id` may be the beginning of the id of a run or a workflow. With `unknown`, only what has no known outcome.
    """
    agents, flows = await _owners(attempts, id)
    found = [effect for agent in agents async for effect in of_agent(attempts, agent)]
    for each in flows:
        flow = await WORKFLOW_RUN.load(attempts.journal, each)
        if flow is not None:
            found += of_workflow(flow)
    chosen = (each for each in found if not unknown or each.outcome is EffectOutcome.UNKNOWN)
    return sorted(chosen, key=lambda each: each.begun_us)


async def _owners(attempts: AttemptReader, given: str) -> tuple[list[str], list[str]]:
    """The agents and the workflows that are meant; NotFound when there are none."""
    if not given:
        flows = [id async for id in WORKFLOW_RUN.ids(attempts.journal)]
        return sorted([agent async for agent in attempts.names()]), flows
    found = await Ids(attempts.journal).find(given)
    if found.kind in (ids.AGENT, ids.TASK):
        return [found.id], []
    agents = sorted([agent async for agent in attempts.names(f"{found.id}.")])
    return agents, [found.id] if found.kind == ids.WORKFLOW else []


async def of_agent(reader: AttemptReader, agent: str) -> AsyncIterator[ExternalEffect]:
    """The tools that an agent ran in all its attempts, in order."""
    for attempt in await reader.history(agent):
        is_command = attempt.kind in REPEATABLE
        for effect in [_of_command(attempt)] if is_command else await _of_tools(reader.journal, attempt):
            yield effect


async def _of_tools(journal: Journal, attempt: Attempt) -> list[ExternalEffect]:
    found: dict[str, ExternalEffect] = {}
    async for record in journal.read(stream(attempt.id)):
        if not isinstance(record.event, AttemptOutput):
            continue
        at_us = record.event.at_us
        for fact in record.event.facts:
            match fact:
                case ToolUse(id=id):
                    begun_us, outcome = found[id].begun_us if id in found else at_us, _outcome_of_open(attempt)
                    given = _short(fact.input)
                    found[id] = ExternalEffect(attempt.id, id, fact.name, given, outcome, begun_us=begun_us)
                case ToolResult(id=id) if id in found:
                    outcome = EffectOutcome.FAILED if fact.failed else EffectOutcome.DONE
                    found[id] = replace(found[id], outcome=outcome, said=_short(fact.output or None), ended_us=at_us)
    return list(found.values())


def _of_command(attempt: Attempt) -> ExternalEffect:
    """A command or a function in a process of its own: what it did is unknown unless it has ended by itself."""
    outcome = _outcome_of_open(attempt)
    if not attempt.is_open and attempt.failure in ENDED_BY_ITSELF:
        outcome = EffectOutcome.FAILED if attempt.failure else EffectOutcome.DONE
    given = _short(shlex.join(map(str, attempt.order.get("argv") or ())) or attempt.task)
    said = _short(attempt.message or attempt.result)
    return ExternalEffect(
        attempt.id, "", attempt.kind, given, outcome, said, attempt.planned_us, attempt.ended_us or None
    )


def of_workflow(flow: WorkflowRun) -> list[ExternalEffect]:
    """The steps of a workflow, in the order of their calls."""
    found, is_running = [], Status.of(flow).name == RUNNING
    for step_id, call in flow.steps.items():
        if call.kind in (STEP, AGENT):
            outcome = EffectOutcome.RUNNING if is_running else EffectOutcome.UNKNOWN
            if call.status in (EffectOutcome.DONE, EffectOutcome.FAILED, EffectOutcome.UNKNOWN):
                outcome = EffectOutcome(call.status)
            if call.until_us and outcome is EffectOutcome.UNKNOWN:
                outcome = EffectOutcome.FAILED  # it waited for the next try
            said = call.error["message"] if call.error else _short(call.result)
            given = str(call.about.get("given") or call.about.get("task") or "")
            found.append(
                ExternalEffect(flow.id, step_id, call.name, given, outcome, said, call.at_us, call.ended_us or None)
            )
    return found


def _outcome_of_open(attempt: Attempt) -> EffectOutcome:
    """What came of something that an attempt began and has no result of."""
    has_ended = not attempt.is_open or ownership.agent_liveness(attempt).has_ended
    return EffectOutcome.UNKNOWN if has_ended else EffectOutcome.RUNNING


def _short(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= GIVEN_CHARS_MAX else text[: GIVEN_CHARS_MAX - 1] + "…"
