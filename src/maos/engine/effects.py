"""The ledger of effects outside the journal: what was about to be done, what became of it, and what nobody knows (I31).

Nothing is recorded for it. Tools that agents ran and steps of workflows are events already; this reads them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from maos.engine.attempt_reader import AttemptReader
from maos.journal.journal import Journal
from maos.model.attempt import Attempt, stream
from maos.model.flow import AGENT, STEP, Flow

DONE, FAILED, UNKNOWN, RUNNING = "done", "failed", "unknown", "running"
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


async def of_agent(journal: Journal, reader: AttemptReader, agent: str) -> AsyncIterator[Effect]:
    """The tools that an agent ran in all its attempts, in order."""
    for attempt in await reader.history(agent):
        async for effect in _of_attempt(journal, attempt):
            yield effect


async def _of_attempt(journal: Journal, attempt: Attempt) -> AsyncIterator[Effect]:
    found: dict[str, Effect] = {}
    async for record in journal.read(stream(attempt.id)):
        for fact in record.data["facts"] if record.type == "attempt_heard" else ():
            id = str(fact.get("id", ""))
            at_us = int(record.data.get("at_us", 0))
            if fact["kind"] == "tool_use":
                begun_us = found[id].begun_us if id in found else at_us
                outcome = RUNNING if attempt.is_open else UNKNOWN
                found[id] = Effect(attempt.id, id, fact.get("name", ""), _short(fact.get("input")), outcome,
                                   begun_us=begun_us)  # fmt: skip
            elif fact["kind"] == "tool_result" and id in found:
                outcome = FAILED if fact.get("failed") else DONE
                found[id] = found[id]._replace(outcome=outcome, said=_short(fact.get("output")), ended_us=at_us)
    for effect in found.values():
        yield effect


def of_flow(flow: Flow, *, is_running: bool) -> list[Effect]:
    """The steps of a workflow, in the order of their calls."""
    found = []
    for place, call in flow.calls.items():
        if call.kind in (STEP, AGENT):
            outcome = call.status if call.status in (DONE, FAILED, UNKNOWN) else RUNNING if is_running else UNKNOWN
            if call.until_us and outcome == UNKNOWN:
                outcome = FAILED  # it waited for the next try
            said = call.error["message"] if call.error else _short(call.result)
            given = str(call.about.get("given") or call.about.get("task") or "")
            found.append(Effect(flow.id, place, call.name, given, outcome, said, call.at_us, call.ended_us))
    return found


def _short(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= GIVEN_CHARS_MAX else text[: GIVEN_CHARS_MAX - 1] + "…"
