"""Durable workflows: plain async functions whose steps are recorded.

Here is what a workflow's function can call besides its steps: each is recorded, so after a crash it is not begun again.
"""

from __future__ import annotations

import asyncio
import logging
import random as chance
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from functools import partial
from types import UnionType
from typing import Any, Literal, TypeVar, overload

from maos.clock import MICROSECONDS, Clock, SystemClock, to_datetime
from maos.errors import InvalidInput
from maos.model.events.workflow import StepCompleted, StepFailure, StepStarted, WorkflowPublished
from maos.model.workflow import AGENT, BRANCHES, CHILD, DONE, FAILED, GATE, PATCH, SIGNAL, SLEEP, VALUE, WorkflowChanged
from maos.workflows import values
from maos.workflows.children import name_of
from maos.workflows.definition import (
    NOT_DONE,
    Found,
    Handle,
    NotWaiting,
    StartRequest,
    StepDefinition,
    StepFailed,
    Workflow,
    WorkflowFailed,
    executor,
    find,
    step,
    workflow,
)
from maos.workflows.engine import Scope, current_scope, need_scope
from maos.workflows.record import RunRecord, until
from maos.workflows.steps import key

logging.getLogger("maos.workflows").addHandler(logging.NullHandler())  # without it, Python would print warnings

__all__ = [
    "NOT_DONE",
    "Found",
    "Handle",
    "NotWaiting",
    "StepDefinition",
    "StepFailed",
    "Workflow",
    "WorkflowChanged",
    "WorkflowFailed",
    "agent",
    "checkpoint",
    "child",
    "find",
    "gate",
    "gather",
    "key",
    "now",
    "parallel",
    "patched",
    "publish",
    "random",
    "signal",
    "sleep",
    "step",
    "unique",
    "workflow",
]

T = TypeVar("T")
R = TypeVar("R")

PARALLEL_MAX = 16


async def sleep(seconds: float) -> None:
    """Wait, for seconds or for weeks, until a time that is recorded: a restart does not extend it.

    Example::

        await maos.workflows.sleep(0.01)  # or three weeks
    """
    scope = current_scope()
    if scope is None:
        await asyncio.sleep(seconds)
        return
    step_id, control, record = scope.next_id(), scope.execution.control, scope.execution.record
    step = await control.recorded(step_id, SLEEP, "sleep")
    if step is not None and step.status == DONE:
        return
    until_us = step.until_us if step else record.clock.now_us() + int(seconds * MICROSECONDS)
    with control.waiting(step_id):
        if step is None:
            record.add(StepStarted, step_id=step_id, kind=SLEEP, name="sleep", until_us=until_us)
            await record.flush()
        await until(record.clock, until_us)
        record.add(StepCompleted, step_id=step_id)
        await record.write_outcome(step_id)


class Expired(TimeoutError):
    """A signal or an answer did not come in time."""


def _deadline(record: RunRecord, timeout_s: float) -> int:
    return record.clock.now_us() + int(timeout_s * MICROSECONDS) if timeout_s else 0


async def _wait(record: RunRecord, step_id: str, future: asyncio.Future[None]) -> None:
    """Wait for a future, or raise Expired when the time of the step is over."""
    until_us = record.run.steps[step_id].until_us

    async def expire() -> None:
        await until(record.clock, until_us)
        if not future.done():
            future.set_exception(Expired("it did not come in time"))

    timer = asyncio.create_task(expire()) if until_us else None
    try:
        await future
    finally:
        if timer is not None:
            timer.cancel()


@overload
async def signal(name: str, *, type: type[T], timeout_s: float = 0.0) -> T: ...
@overload
async def signal(name: str, *, type: UnionType = ..., timeout_s: float = 0.0) -> Any: ...


async def signal(name: str, *, type: Any = Any, timeout_s: float = 0.0) -> Any:
    """The next signal of that name, sent before or after; TimeoutError when none comes in time.

    Example::

        payment = await maos.workflows.signal("paid", timeout_s=3600)  # m.workflows.signal(id, "paid", 7)
    """
    scope = need_scope("signal()")
    step_id, control, record = scope.next_id(), scope.execution.control, scope.execution.record
    step = await control.recorded(step_id, SIGNAL, name)
    if step is not None and step.status == FAILED:
        raise Expired(f"no signal {name!r} came in time")
    if step is not None and step.status == DONE:
        value = step.result
    else:
        with control.waiting(step_id):
            if step is None:
                until_us = _deadline(record, timeout_s)
                record.add(StepStarted, step_id=step_id, kind=SIGNAL, name=name, until_us=until_us)
                await record.flush()
            try:
                # Nothing is awaited once its event is added: else a time limit could end just then, and the record
                # would say that the function received a signal which it did not.
                version, value = await control.signal(name, partial(_wait, record, step_id))
            except Expired as error:
                record.add(StepFailure, step_id=step_id, error=values.error_data(error, record.codec))
                raise Expired(f"no signal {name!r} came in time") from error
            else:
                record.add(StepCompleted, step_id=step_id, result=value, signal=name, signal_version=version)
            finally:
                record.mark_new()
                record.flush_soon()
    return values.typed(value, type, f"the signal {name!r}")


async def gate(
    question: str,
    *,
    choices: Sequence[str] = (),
    context: str = "",
    default: str | None = None,
    timeout_s: float = 0.0,
) -> str:
    """Ask a person and return the answer (`maos answer`, `m.workflows.answer`), or the default if none comes in time.

    Example::

        answer = await maos.workflows.gate("Publish it?", choices=["yes", "no"])
    """
    scope = need_scope("gate()")
    if default is not None and choices and default not in choices:
        raise InvalidInput(f"the default {default!r} is not one of the choices")
    step_id, control, record = scope.next_id(), scope.execution.control, scope.execution.record
    step = await control.recorded(step_id, GATE, question)
    if step is None or step.status not in (DONE, FAILED):
        with control.waiting(step_id):
            if step is None:
                given = {"choices": list(choices) or None, "context": context or None, "default": default}
                about = {name: value for name, value in given.items() if value is not None}
                until_us = _deadline(record, timeout_s)
                record.add(StepStarted, step_id=step_id, kind=GATE, name=question, until_us=until_us, about=about)
                await record.write_question(step_id)
            try:
                await control.wait_for(step_id, partial(_wait, record, step_id))
            except Expired:
                if step_id in control.resolved:
                    pass  # an answer came at the same time
                elif default is None:
                    error = {"type": "Expired", "message": "no answer came in time"}
                    record.add(StepFailure, step_id=step_id, error=error)
                else:
                    record.add(StepCompleted, step_id=step_id, result=default)
            await record.flush()
            step = record.run.steps[step_id]
    if step.status == FAILED:
        raise Expired(f"no answer to {question!r} came in time")
    return str(step.result)


async def gather(*branches: Coroutine[Any, Any, Any]) -> list[Any]:
    """Several branches at once; all end before the first failure, if there is one, is raised.

    Example::

        first, second = await maos.workflows.gather(fetch("a"), fetch("b"))
    """
    scope = current_scope()
    if scope is None:
        return await asyncio.gather(*branches)
    return await _all(scope, _given, branches, len(branches) or 1)


def _given(branch: Awaitable[Any]) -> Awaitable[Any]:
    return branch


async def parallel(function: Callable[[T], Awaitable[R]], items: Iterable[T], *, limit: int = PARALLEL_MAX) -> list[R]:
    """A step, or any async function, for each item, so many at once; the results in the order of the items.

    Example::

        pages = await maos.workflows.parallel(fetch, ["a", "b", "c"], limit=2)
    """
    if limit < 1:
        raise InvalidInput("at least one must be allowed at once")
    return await _all(current_scope(), function, list(items), limit)


async def _all(
    scope: Scope | None, function: Callable[[Any], Awaitable[Any]], items: Sequence[Any], limit: int
) -> list[Any]:
    step_id = scope.next_id() if scope is not None else ""
    results: list[Any] = [None] * len(items)
    failures: dict[int, Exception] = {}
    skipped: list[int] = []
    left = iter(range(len(items)))

    def close(number: int) -> None:
        """Close a coroutine that will not be awaited, or Python would warn of it."""
        if function is _given and asyncio.iscoroutine(items[number]):
            items[number].close()

    try:
        step = scope.execution.record.find(step_id, VALUE, BRANCHES) if scope is not None else None
    except WorkflowChanged:
        for number in left:
            close(number)
        raise
    recorded = None if step is None else set(step.result)

    def is_skipped(number: int) -> bool:
        """Whether a branch is not begun, or was not, because another one had failed."""
        if recorded is not None:
            return number in recorded
        begun = () if scope is None else scope.execution.run.steps
        return bool(failures) and not any(each.startswith(f"{step_id}:{number + 1}.") for each in begun)

    async def work() -> None:
        for number in left:
            if is_skipped(number):
                skipped.append(number)
                close(number)
                continue
            if scope is not None:
                executor.set(Scope(scope.execution, f"{step_id}:{number + 1}.", asyncio.current_task()))
            try:
                results[number] = await function(items[number])
            except Exception as error:  # noqa: BLE001 - raised below, when the others have ended
                failures[number] = error

    workers = [asyncio.create_task(work()) for _ in range(min(limit, len(items)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        for number in left:  # of workers that were cancelled before they began
            close(number)
        await asyncio.gather(*workers, return_exceptions=True)
    if skipped and recorded is None and scope is not None:
        scope.execution.record.add_value(step_id, BRANCHES, skipped)
    if failures:
        raise failures[min(failures)]
    return results


async def child(workflow: Workflow[..., R], *args: Any, id: str = "", **kwargs: Any) -> R:
    """Another workflow as a part of this one, with a record of its own; StepFailed when it fails.

    Example::

        loud = await maos.workflows.child(shout, "hello")
    """
    scope = current_scope()
    if scope is None:
        return await workflow(*args, **kwargs)
    step_id, children, parent = scope.next_id(), scope.execution.children, scope.execution.run.id
    digest = values.digest(args, kwargs, f"an argument of {workflow.name}")
    request = StartRequest(workflow, args, kwargs, id or name_of(parent, step_id), parent=parent)
    about, work = {"id": id} if id else {}, partial(children.run_child, request)
    result = await children.execute(step_id, CHILD, workflow.name, request.id, digest, about, work)
    typed: R = values.typed(result, workflow.returns, f"what the workflow {workflow.name} returned")
    return typed


@overload
async def agent(
    task: str = "", *, type: type[T], kind: str = "shell", argv: Sequence[str] = (), **options: Any
) -> T: ...
@overload
async def agent(
    task: str = "", *, kind: Literal["python"], argv: Sequence[str] = (), type: UnionType = ..., **options: Any
) -> Any: ...
@overload
async def agent(task: str = "", *, kind: str = "shell", argv: Sequence[str] = (), **options: Any) -> str: ...


async def agent(
    task: str = "", *, kind: str = "shell", argv: Sequence[str] = (), type: Any = Any, **options: Any
) -> Any:
    """Run a coding agent or a command and return its answer. It survives a crash of the engine, and is then resumed.

    The answer is text; that of a Python function (`kind="python"`) is what the function returned. With `type`, an
    answer that is JSON is returned as that type. `options` are those of `m.agents.start`. StepFailed when it fails.

    Example::

        said = await maos.workflows.agent(argv=["echo", "all tests pass"], cwd="/tmp", in_place=True)
    """
    scope = need_scope("agent()")
    step_id, children, given = scope.next_id(), scope.execution.children, {"kind": kind, "argv": list(argv), **options}
    digest = values.digest((task, given), {}, "an argument of agent()")
    name = name_of(scope.execution.run.id, step_id)
    about = {"task": values.beginning(task, scope.execution.record.codec)}

    async def work() -> Any:
        answer, form = await children.run_agent(step_id, name, task, given)
        try:
            return values.answered(answer, form, type)
        except InvalidInput as error:
            raise StepFailed(name, {"type": "InvalidInput", "message": error.what}) from error

    answer = await children.execute(step_id, AGENT, kind, name, digest, about, work)
    return values.typed(answer, type, f"what the agent {name} answered")


def _keep(name: str, make: Callable[[Clock], Any]) -> Any:
    """A value that would differ in another execution of the run; the first one counts."""
    scope = current_scope()
    if scope is None:
        return make(SystemClock())
    step_id, record = scope.next_id(), scope.execution.record
    step = record.find(step_id, VALUE, name)
    if step is not None:
        return step.result
    made = make(record.clock)
    record.add_value(step_id, name, made)
    return made


def now() -> datetime:
    """The time; the same in every execution of the run.

    Example::

        started = maos.workflows.now()
    """
    return to_datetime(_keep("now", lambda clock: clock.now_us()))


def unique() -> str:
    """A new id; the same in every execution of the run.

    Example::

        order = f"order-{maos.workflows.unique()}"
    """
    return str(_keep("unique", lambda _: uuid.uuid4().hex))


def random() -> float:
    """A random number between 0 and 1; the same in every execution of the run.

    Example::

        is_sample = maos.workflows.random() < 0.1
    """
    return float(_keep("random", lambda _: chance.SystemRandom().random()))


def publish(**published: Any) -> None:
    """Let other processes see values, with `m.workflows.get(id).published`; `progress` is in percent.

    Example::

        maos.workflows.publish(progress=50, phase="building")
    """
    scope = current_scope()
    if scope is None:
        return
    step_id, record = scope.next_id(), scope.execution.record
    if record.find(step_id, VALUE, "publish") is None:
        plain = values.plain(published, "what is published", record.codec)
        progress = plain.get("progress", record.progress)
        if progress.__class__ not in (int, float):
            raise InvalidInput(f"progress cannot be {progress!r}", hint="it is in percent, as a number")
        record.progress = float(progress)
        record.add(StepCompleted, step_id=step_id, kind=VALUE, name="publish")
        record.add(WorkflowPublished, values=plain)
        record.flush_soon()


def patched(name: str) -> bool:
    """Whether to do what was changed: False in runs that were past this point before the change.

    Example::

        if maos.workflows.patched("also-tell-sales"):
            await fetch("sales")
    """
    scope = current_scope()
    if scope is None:
        return True
    record, step_id = scope.execution.record, f"{scope.prefix}{scope.count + 1}"
    step = record.run.steps.get(step_id)
    if step is None and any(_number(each, scope.prefix) > scope.count for each in record.unseen):
        return False
    if step is not None and (step.kind, step.name) != (PATCH, name):
        return False
    scope.count += 1  # else the id is that of the next step
    record.unseen.discard(step_id)
    if step is None:
        record.add(StepCompleted, step_id=step_id, kind=PATCH, name=name)
        record.mark_new()
    return True


def _number(step_id: str, prefix: str) -> int:
    """The number, in a branch, of the step that an id belongs to; 0 when it belongs to another branch."""
    if not step_id.startswith(prefix):
        return 0
    rest = step_id[len(prefix) :]
    digits = len(rest) - len(rest.lstrip("0123456789"))
    return int(rest[:digits]) if digits and not rest[digits:].startswith("~") else 0


async def checkpoint(name: str) -> None:
    """Write everything so far to disk, under a name.

    Example::

        await maos.workflows.checkpoint("before-publishing")
    """
    scope = current_scope()
    if scope is not None:
        step_id, record = scope.next_id(), scope.execution.record
        if await scope.execution.control.recorded(step_id, VALUE, "checkpoint") is None:
            record.add(StepCompleted, step_id=step_id, kind=VALUE, name="checkpoint")
            await record.checkpoint("manual", name)
