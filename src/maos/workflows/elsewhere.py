"""Calls whose own record lies elsewhere, children and agents: begun once, and taken up after anything."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from maos.clock import Clock
from maos.engine.claims import Held
from maos.engine.consent import NotAgreed
from maos.engine.outcomes import Outcome, what_follows
from maos.errors import (
    Conflict,
    Corrupt,
    HistoryLost,
    InvalidInput,
    LeaseLost,
    NotFound,
    StoreUnavailable,
    UnknownFormat,
)
from maos.holder.errors import StartFailed
from maos.journal.codec import Event
from maos.model import run
from maos.model.attempt import STOPPED, Attempt
from maos.model.workflow import (
    AGENT,
    CANCELLED,
    CHANGED,
    CHILD,
    COMPLETED,
    LEFT,
    PAUSED,
    RUNNING,
    STARTED,
    WorkflowRun,
)
from maos.workflows import moments, values
from maos.workflows.definition import Workflow
from maos.workflows.errors import NotWaiting, StepFailed, WorkflowChanged

if TYPE_CHECKING:
    from maos.engine.attempts import Attempts, Running
    from maos.workflows.running import WorkflowExecution
    from maos.workflows.workflows import Handle

INFRASTRUCTURE = (StoreUnavailable, LeaseLost, Conflict, Corrupt, HistoryLost, UnknownFormat)
"""What says nothing about a child or an agent itself: the run of the workflow ends, and somebody takes it up."""
HELD_S = 0.25
"""How often a child or an agent is looked at that another process runs."""
NAME_CHARS_MAX = 64

Begin = Callable[[], Coroutine[Any, Any, "Running | None"]]


def name_of(parent: str, step_id: str) -> str:
    """What the child or the agent of a call is named: the same whenever the call is looked at again."""
    name = f"{parent}.{step_id.replace(':', '-').replace('~', '_')}"
    if len(name) > NAME_CHARS_MAX:
        name = f"{parent[:40]}.{hashlib.sha256(name.encode()).hexdigest()[:20]}"
    return name


async def child(
    parent: WorkflowExecution, step_id: str, workflow: Workflow[..., Any], args: tuple[Any, ...],
    kwargs: dict[str, Any], id: str,
) -> Any:  # fmt: skip
    """Begin, or take up, a child, and wait for it; it is paused and cancelled with its parent."""
    id = id or name_of(parent.id, step_id)
    handle: Handle | None = None
    try:
        while True:
            try:
                handle = await _taken_up(parent, workflow, args, kwargs, id)
                flow = await handle.wait()
                break
            except (Held, LeaseLost):  # another process runs it: wait for its end, or for that of the process
                handle = None
                await asyncio.sleep(HELD_S)
                flow = await parent.workflows.get(id)
                if flow.status != RUNNING:
                    break
    except asyncio.CancelledError:
        leaving = CANCELLED if parent.gives_up else parent.leaving
        if leaving:
            why = f"{parent.id} was {leaving}" if parent.leaving else f"{parent.id} wants it no more"
            parent.end(_let_go(parent, id, handle, leaving, why))
        raise
    if flow.status == COMPLETED:
        return flow.result
    if flow.status == CHANGED:
        raise parent.changed(f"its child {id} has changed: {flow.why}")
    if flow.status == PAUSED:
        await _pause(parent, f"its child {id} was paused: {flow.why}".rstrip(": "))
    raise StepFailed(workflow.name, flow.error or {"type": "Cancelled", "message": f"{id} was {flow.status}"})


async def _taken_up(
    parent: WorkflowExecution, workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], id: str
) -> Handle:
    try:
        return await parent.workflows.start_child(parent, workflow, args, kwargs, id)
    except (WorkflowChanged, NotFound) as error:
        raise parent.changed(f"its child {id} cannot go on: {error.what}") from error
    except NotAgreed as error:
        await _pause(parent, error.what)


async def _pause(parent: WorkflowExecution, why: str) -> NoReturn:
    """Have the parent paused, and do nothing more until it is."""
    parent.let_go(PAUSED, why)
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nobody keeps that future")


def names(parent: WorkflowRun, kind: str, *statuses: str) -> list[str]:
    """The children or the agents whose calls stand so."""
    return [
        call.about.get("id") or name_of(parent.id, step_id)
        for step_id, call in parent.steps.items()
        if call.kind == kind and call.status in statuses
    ]


def left_over(parent: WorkflowExecution) -> Iterator[Coroutine[Any, Any, None]]:
    """What ends the children and agents of a workflow that has ended, if any is left: those that its function did not
    wait for, or that it did not come to again before it was cancelled."""
    for name in names(parent.flow, CHILD, STARTED, LEFT):
        why = f"{parent.id} is {parent.flow.status}"
        yield _let_go(parent, name, parent.workflows.handle(name), CANCELLED, why)
    for name in names(parent.flow, AGENT, STARTED, LEFT):
        yield parent.workflows.stop_agent(name)


def is_left(parent: WorkflowRun, id: str) -> bool:
    """Whether a workflow waits for a child no more."""
    return not parent.is_open or id in names(parent, CHILD, LEFT)


async def _let_go(parent: WorkflowExecution, id: str, handle: Handle | None, leaving: str, why: str) -> None:
    """Have a child paused or cancelled, whoever runs it."""
    if handle is not None:
        handle.let_go(leaving, why)
        await handle.wait()
        return
    tell = parent.workflows.cancel if leaving == CANCELLED else parent.workflows.pause
    with contextlib.suppress(NotFound, NotWaiting):  # it was never begun, or has ended
        await tell(id, why=why)


async def agent(
    attempts: Attempts,
    clock: Clock,
    name: str,
    task: str,
    given: dict[str, Any],
    parent: WorkflowExecution | None = None,
) -> str:
    """Begin, take up or resume an agent, and wait for it; it is stopped when its parent is cancelled.

    One that a person stops pauses its parent, and goes on when somebody says that the parent is to go on.
    """
    tries = 0
    try:
        attempt = await attempts.get(name)
    except NotFound:
        attempt = await _ended(attempts, name, partial(attempts.start, task, name=name, **given), parent)
        is_watched = True
    else:
        is_watched = False
        for each in (await attempts.history(name))[:-1]:
            tries += _counts(_following(each, tries, clock.now_us()))
    while attempt.is_open or attempt.failure:
        if attempt.status == STOPPED and parent is not None and (is_watched or not parent.is_insisted):
            await _pause(parent, f"its agent {name} was stopped")
        begin: Begin = partial(attempts.adopt, name)
        if not attempt.is_open:
            following = _following(attempt, tries, clock.now_us())
            if following.type == "task_failed":
                raise StepFailed(name, {"type": attempt.failure, "message": attempt.message})
            tries += _counts(following)
            await moments.until(clock, following.data.get("not_before_us", 0))
            begin = partial(attempts.resume, name, like={**given, "task": task})
        attempt, is_watched = await _ended(attempts, name, begin, parent), True
    return attempt.result or attempt.last_text


def _following(attempt: Attempt, tries: int, now_us: int) -> Event:
    """What follows from how an attempt ended: what would for a task of a run."""
    task = run.TaskState(name=attempt.agent, plan={}, needs=[], status=run.RUNNING, tries=tries)
    outcome = Outcome(
        failure=attempt.failure, message=attempt.message, reset_us=attempt.reset_us, at_us=attempt.ended_us
    )  # fmt: skip
    return what_follows(task, outcome, now_us)


def _counts(following: Event) -> bool:
    return bool(following.data.get("counts"))


async def _ended(attempts: Attempts, name: str, begin: Begin, parent: WorkflowExecution | None) -> Attempt:
    """What became of an agent that is begun, taken up or gone on with; or of one that another process has."""
    begun: asyncio.Task[Running | None] | None = None
    try:
        while True:
            begun = asyncio.create_task(begin())
            try:
                await asyncio.wait([begun])
                running = begun.result()
                return await attempts.get(name) if running is None else await running.wait()
            except (Held, LeaseLost):  # wait for its end, or for that of the process
                begun, begin = None, partial(attempts.adopt, name)
                await asyncio.sleep(HELD_S)
            except NotAgreed as error:
                if parent is None:
                    raise
                await _pause(parent, error.what)
            except (StartFailed, NotFound, InvalidInput) as error:
                raise StepFailed(name, {**values.told(error), "type": "start_failed"}) from error
    except asyncio.CancelledError:
        if parent is not None and parent.gives_up:
            parent.end(_stop(attempts, name, begun))
        elif begun is not None:
            begun.cancel()
            await asyncio.gather(begun, return_exceptions=True)
        raise


async def _stop(attempts: Attempts, name: str, begun: asyncio.Task[Running | None] | None) -> None:
    running = await begun if begun is not None else None
    if running is None:
        await stop(attempts, name)
    else:
        await running.stop()
        await running.wait()


async def stop(attempts: Attempts, name: str) -> None:
    """Have an agent stopped, whoever runs it, or nobody."""
    try:
        if not (await attempts.get(name)).is_open:
            return
        running = await attempts.adopt(name)
    except NotFound:
        return  # it was never begun
    except Held:
        await attempts.stop(name)
        return
    if running is not None:
        await running.stop()
        await running.wait()
