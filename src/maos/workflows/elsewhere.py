"""Calls whose own record lies elsewhere, children and agents: begun once, and taken up after anything."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any

from maos.clock import MICROSECONDS, Clock
from maos.errors import NotFound
from maos.model.attempt import Attempt
from maos.model.failure import FRESH, RESUME, RETRY, TABLE, WAIT
from maos.model.flow import CANCELLED, CHANGED, COMPLETED, PAUSED
from maos.workflows import moments
from maos.workflows.definition import Workflow
from maos.workflows.errors import Changed, StepFailed

if TYPE_CHECKING:
    from maos.engine.attempts import Attempts
    from maos.workflows.running import RunningFlow

AGAIN_S_MAX = 300
NAME_CHARS_MAX = 64


def name_of(parent: str, place: str) -> str:
    """What the child or the agent of a call is named: the same whenever the call is looked at again."""
    name = f"{parent}.{place.replace(':', '-').replace('~', '_')}"
    if len(name) > NAME_CHARS_MAX:
        name = f"{parent[:40]}.{hashlib.sha256(name.encode()).hexdigest()[:20]}"
    return name


async def child(
    parent: RunningFlow, place: str, workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    id: str,
) -> Any:  # fmt: skip
    """Begin, or take up, a child, and wait for it; it is paused and cancelled with its parent."""
    id = id or name_of(parent.id, place)
    try:
        handle = await parent.workflows.start_child(parent, workflow, args, kwargs, id)
    except Changed as error:
        raise parent.changed(f"its child {id} cannot go on: {error.what}") from error
    try:
        flow = await handle.wait()
    except asyncio.CancelledError:
        if parent.leaving in (PAUSED, CANCELLED):
            handle.let_go(parent.leaving, f"{parent.id} was {parent.leaving}")
            await handle.wait()
        raise
    if flow.status == COMPLETED:
        return flow.result
    if flow.status == CHANGED:
        raise parent.changed(f"its child {id} has changed: {flow.why}")
    if flow.status == PAUSED:
        parent.let_go(PAUSED, f"its child {id} was paused: {flow.why}".rstrip(": "))
        await asyncio.get_running_loop().create_future()
    raise StepFailed(workflow.name, flow.error or {"type": "Cancelled", "message": f"{id} was {flow.status}"})


async def agent(attempts: Attempts, clock: Clock, name: str, task: str, given: dict[str, Any]) -> str:
    """Begin, take up or resume an agent, and wait for it."""
    try:
        attempt = await attempts.get(name)
    except NotFound:
        attempt = await (await attempts.start(task, name=name, **given)).wait()
    while attempt.is_open or _goes_on(attempt):
        await _wait_for(attempt, clock)
        attempt = await (await attempts.resume(name)).wait()
    if attempt.failure:
        raise StepFailed(name, {"type": attempt.failure, "message": attempt.message})
    return attempt.result or attempt.last_text


def _goes_on(attempt: Attempt) -> bool:
    """Whether an agent that failed is to try again, by the table of failures."""
    failure = TABLE.get(attempt.failure)
    if failure is None:
        return False
    again = failure.action == WAIT or (failure.action in (RESUME, RETRY, FRESH) and attempt.number <= failure.tries_max)
    return again or attempt.failure == "stopped"


async def _wait_for(attempt: Attempt, clock: Clock) -> None:
    action = TABLE[attempt.failure].action if attempt.failure else ""
    until_us = attempt.reset_us if action == WAIT else 0
    if action == RETRY:
        until_us = clock.now_us() + min(2**attempt.number, AGAIN_S_MAX) * MICROSECONDS
    await moments.until(clock, until_us)
