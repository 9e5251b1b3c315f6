"""What a workflow's function can call besides its steps: each is recorded, so after a crash it is not begun again."""

from __future__ import annotations

import asyncio
import random as chance
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from types import UnionType
from typing import Any, TypeVar, overload

from maos.clock import SystemClock, to_datetime
from maos.errors import InvalidInput
from maos.model.workflow import VALUE
from maos.workflows.definition import Workflow, WorkflowChanged, executor
from maos.workflows.engine import Scope, current_scope, need_scope

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
    else:
        await scope.execution.waits.sleep(scope.next_id(), seconds)


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
    return await scope.execution.waits.signal(scope.next_id(), name, timeout_s, type)


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
    return await scope.execution.waits.gate(scope.next_id(), question, list(choices), context, default, timeout_s)


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
        recorded = scope.execution.record.skipped_branches(step_id) if scope is not None else None
    except WorkflowChanged:
        for number in left:
            close(number)
        raise

    def is_skipped(number: int) -> bool:
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
        scope.execution.record.add_value(step_id, "branches", skipped)
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
    result: R = await scope.execution.children.child(scope.next_id(), workflow, args, kwargs, id)
    return result


async def agent(task: str = "", *, kind: str = "shell", argv: Sequence[str] = (), **options: Any) -> str:
    """Run a coding agent or a command and return its answer. It survives a crash of the engine, and is then resumed.

    `options` are those of `m.agents.start`. StepFailed when it fails.

    Example::

        said = await maos.workflows.agent(argv=["echo", "all tests pass"], cwd="/tmp", in_place=True)
    """
    scope = need_scope("agent()")
    given = {"kind": kind, "argv": list(argv), **options}
    return await scope.execution.children.agent(scope.next_id(), task, given)


def now() -> datetime:
    """The time; the same in every execution of the run.

    Example::

        started = maos.workflows.now()
    """
    scope = current_scope()
    if scope is None:
        return to_datetime(SystemClock().now_us())
    return to_datetime(scope.execution.record.value(scope.next_id(), "now", scope.execution.record.now_us))


def unique() -> str:
    """A new id; the same in every execution of the run.

    Example::

        order = f"order-{maos.workflows.unique()}"
    """
    scope = current_scope()
    if scope is None:
        return uuid.uuid4().hex
    return str(scope.execution.record.value(scope.next_id(), "unique", lambda: uuid.uuid4().hex))


def random() -> float:
    """A random number between 0 and 1; the same in every execution of the run.

    Example::

        is_sample = maos.workflows.random() < 0.1
    """
    roll = chance.SystemRandom().random
    scope = current_scope()
    return roll() if scope is None else float(scope.execution.record.value(scope.next_id(), "random", roll))


def publish(**published: Any) -> None:
    """Let other processes see values, with `m.workflows.get(id).published`; `progress` is in percent.

    Example::

        maos.workflows.publish(progress=50, phase="building")
    """
    scope = current_scope()
    if scope is not None:
        scope.execution.record.publish(scope.next_id(), published)


def patched(name: str) -> bool:
    """Whether to do what was changed: False in runs that were past this point before the change.

    Example::

        if maos.workflows.patched("also-tell-sales"):
            await fetch("sales")
    """
    scope = current_scope()
    if scope is None:
        return True
    found = scope.execution.record.patched(scope.prefix, scope.count, name)
    scope.count += found  # else the id is that of the next step
    return found


async def checkpoint(name: str) -> None:
    """Write everything so far to disk, under a name.

    Example::

        await maos.workflows.checkpoint("before-publishing")
    """
    scope = current_scope()
    if scope is not None:
        step_id, record = scope.next_id(), scope.execution.record
        if await scope.execution.control.recorded(step_id, VALUE, "checkpoint") is None:
            record.add_completed(step_id, kind=VALUE, name="checkpoint")
            await record.checkpoint("manual", name)
