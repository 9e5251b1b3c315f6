"""Steps of a workflow run: executed once, retried, and resolved when it is unknown whether they took effect."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from maos.clock import MICROSECONDS
from maos.engine import log
from maos.errors import InvalidInput
from maos.faults import crash_point
from maos.model.events.workflow import StepCompleted, StepFailure, StepRetried, StepStarted, StepUnknown
from maos.model.workflow import DONE, FAILED, STEP, UNKNOWN, Step
from maos.tuples import NamedTuple
from maos.workflows import values
from maos.workflows.control import Control
from maos.workflows.definition import NOT_DONE, Found, StepDefinition, StepFailed, call, executor
from maos.workflows.record import until

RETURN, BEGIN, RETRY, RESOLVE, REPEAT = "return", "begin", "retry", "resolve", "repeat"
"""What is done about a step: return its recorded outcome, begin it, wait and retry it, find out whether it took effect,
or execute it again, because it is idempotent."""

AGAIN = "again"
"""What is done about a step whose outcome was unknown: execute it again, or use that of a thread that has ended."""

Threads = MutableMapping[str, "asyncio.Task[Any]"]

_key: ContextVar[str] = ContextVar("maos_step_key", default="")


def decide(recorded: Step | None, *, idempotent: bool) -> str:
    """Decide what is done about a step, from what is recorded of it."""
    if recorded is None:
        return BEGIN
    if recorded.status in (DONE, FAILED):
        return RETURN
    if recorded.until_us:
        return RETRY
    if recorded.status == UNKNOWN or not idempotent:
        return RESOLVE
    return REPEAT


def key() -> str:
    """In a step: an idempotency key, the same for every try of this step, also after a crash.

    Example::

        charged = await maos.step(lambda: print("under", maos.workflows.key()))()
    """
    found = _key.get()
    if not found:
        raise InvalidInput("key() works in a step of a workflow only")
    return found


class Overdue(Exception):
    """A step took longer than it may."""


class Invocation(NamedTuple):
    """A step with its id and its arguments."""

    step_id: str
    key: str
    step: StepDefinition[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @contextmanager
    def context(self) -> Iterator[None]:
        """Around the step's own code: it has a key, and is outside of the workflow."""
        outside, key = executor.set(None), _key.set(self.key)
        try:
            yield
        finally:
            _key.reset(key)
            executor.reset(outside)


class Steps:
    """Executes the steps of one workflow run."""

    def __init__(self, control: Control, threads: Threads) -> None:
        self._control = control
        self._record = control.record
        self._shared_threads = threads
        self._threads: dict[str, asyncio.Task[Any]] = {}
        """Those of plain functions, by the keys of their steps, until their outcome is used."""

    async def run(
        self, step_id: str, step: StepDefinition[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return the outcome of a step: the recorded one, or that of executing it now."""
        digest = values.digest(args, kwargs, f"an argument of {step.name}")
        recorded = await self._control.recorded(step_id, STEP, step.name, digest)
        decision = decide(recorded, idempotent=step.idempotent)
        if recorded is not None and decision == RETURN:
            return self._outcome(step_id, recorded, step)
        it = Invocation(step_id, f"{self._record.run.id}/{step_id}", step, args, kwargs)
        with self._control.waiting(step_id):
            if decision == BEGIN:
                await self._begin(it, digest)
            elif recorded is not None and decision == RETRY:
                await self._begin_again(it, recorded.until_us)
            elif decision == RESOLVE:
                found = await self._find_out(it)
                if isinstance(found, Step):
                    return self._outcome(step_id, found, step)
                if found == NOT_DONE:
                    await self._begin_again(it)
            return await self._call(it, recorded.failures if recorded else 0)

    async def _begin(self, it: Invocation, digest: str) -> None:
        about = {}
        if it.args or it.kwargs:
            # Of a step that is not idempotent, a person may be asked about the outcome. Of others it only tells
            # branches apart, and there can be very many.
            show = values.brief if it.step.idempotent else values.shown
            about = {"given": show(it.args, it.kwargs, self._record.codec)}
        is_late = it.step.idempotent and not self._record.policy.every_step
        write = self._record.flush_new if is_late else self._record.flush
        self._record.add(StepStarted, step_id=it.step_id, kind=STEP, name=it.step.name, digest=digest, about=about)
        with self._control.at_work():
            await write()
        crash_point(f"workflow:before {it.step.name}")

    async def _begin_again(self, it: Invocation, until_us: int = 0) -> None:
        await until(self._record.clock, until_us)
        self._record.add(StepStarted, step_id=it.step_id, kind=STEP, name=it.step.name)
        with self._control.at_work():
            await self._record.flush()

    async def _call(self, it: Invocation, failures: int) -> Any:
        while True:
            found: Step | str = NOT_DONE
            try:
                result = await self._try(it)
                break
            except Overdue as error:
                failed: Exception = TimeoutError(str(error))
                if not it.step.idempotent:  # it may have taken effect, or may yet
                    self._control.reopen(it.step_id)
                    found = await self._find_out(it, failed)
            except Exception as error:  # noqa: BLE001 - raised in the workflow, or retried
                failed = error
            if isinstance(found, Step):
                return self._outcome(it.step_id, found, it.step)
            if found == AGAIN:
                continue
            failures += 1
            if failures > it.step.retries:
                raise await self._fail(it, failed) from failed
            until_us = self._record.clock.now_us() + int(it.step.pause_s(failures) * MICROSECONDS)
            raised = values.error_data(failed, self._record.codec)
            self._record.add(StepRetried, step_id=it.step_id, error=raised, until_us=until_us)
            await self._record.flush()
            await self._begin_again(it, until_us)
        crash_point(f"workflow:after {it.step.name}")
        try:
            plain = values.plain(result, f"what the step {it.step.name} returns", self._record.codec)
            found = values.typed(plain, it.step.returns, f"what the step {it.step.name} returns")
        except InvalidInput as error:  # a retry would not help, and would execute it again
            raise await self._fail(it, error) from error
        self._record.add(StepCompleted, step_id=it.step_id, result=plain)
        await self._record.write_outcome(it.step_id)
        return found

    async def _fail(self, it: Invocation, error: Exception) -> StepFailed:
        error_data = values.error_data(error, self._record.codec)
        self._record.add(StepFailure, step_id=it.step_id, error=error_data)
        await self._record.write_outcome(it.step_id)
        self._warn(log.STEP_FAILED, it, str(error_data["message"]))
        return StepFailed(it.step.name, error_data, step_id=it.step_id)

    def _warn(self, action: log.Action, it: Invocation, reason: str = "") -> None:
        names = {"workflow": self._record.run.id, "step": it.step_id, "step_name": it.step.name}
        log.write(log.WORKFLOWS, action, **names, reason=reason)

    def _outcome(self, step_id: str, recorded: Step, step: StepDefinition[..., Any]) -> Any:
        if recorded.status == FAILED:
            raise StepFailed(step.name, recorded.error or {}, step_id=step_id)
        try:
            return values.typed(recorded.result, step.returns, f"what the step {step.name} returned")
        except InvalidInput as error:  # of another type when it was recorded
            raise self._record.changed(error.what) from error

    async def _try(self, it: Invocation) -> Any:
        try:
            with it.context(), self._control.at_work():
                async with asyncio.timeout(it.step.timeout_s or None) as limit:
                    return await self._call_function(it)
        except TimeoutError as error:
            if limit.expired():
                raise Overdue(f"it took longer than {it.step.timeout_s:g} s") from error
            raise

    async def _call_function(self, it: Invocation) -> Any:
        """Call the function. A thread cannot be stopped: while one runs for this step, its end is awaited."""
        if inspect.iscoroutinefunction(it.step.function):
            return await it.step.function(*it.args, **it.kwargs)
        thread = self._thread(it.key)
        if thread is None:
            thread = asyncio.create_task(asyncio.to_thread(it.step.function, *it.args, **it.kwargs))
            thread.add_done_callback(_retrieve)
            self._threads[it.key] = self._shared_threads[it.key] = thread
        if not thread.done():
            await asyncio.wait([thread])
        self._threads.pop(it.key, None)
        self._shared_threads.pop(it.key, None)
        result = thread.result()
        return await result if inspect.isawaitable(result) else result

    def _thread(self, key: str) -> asyncio.Task[Any] | None:
        """The thread that was started for a step, by this execution or an earlier one in this process."""
        return self._threads.get(key) or self._shared_threads.get(key)

    async def _find_out(self, it: Invocation, error: Exception | None = None) -> Step | str:
        """Find out whether a step that was begun took effect: its outcome, NOT_DONE, or AGAIN.

        A time limit around it does not end this: it would still be unknown, and the workflow would continue regardless.
        """
        thread = self._thread(it.key)  # held here: the shared ones are weak references
        try:
            return await self._probe(it, thread, error) or await self._wait_for_person(it, thread)
        except asyncio.CancelledError:
            await self._control.stay_unknown(it.step_id)
            raise

    async def _probe(
        self, it: Invocation, thread: asyncio.Task[Any] | None, error: Exception | None
    ) -> Step | str | None:
        """Ask the step's own probe; when it does not know, record that the outcome is unknown, and return None."""
        control, recorded = self._control, self._record.run.steps
        if it.step.probe is not None and thread is None and not control.has_heard_of(it.step_id):
            try:
                with it.context():
                    said = await call(it.step.probe, it.args, it.kwargs)
                if isinstance(said, Found):
                    said = Found(
                        values.plain(said.result, f"what the probe of {it.step.name} found", self._record.codec)
                    )
            except Exception as raised:  # noqa: BLE001 - shown to the person who is asked in its place
                said, error = None, raised
            if (isinstance(said, Found) or said == NOT_DONE) and not control.has_heard_of(it.step_id):
                control.resolved.add(it.step_id)
                if said == NOT_DONE:
                    return NOT_DONE
                self._record.add(StepCompleted, step_id=it.step_id, result=said.result)
                await self._record.flush()
                return recorded[it.step_id]
        if recorded[it.step_id].status != UNKNOWN and not control.has_heard_of(it.step_id):
            error_data = None if error is None else values.error_data(error, self._record.codec)
            self._record.add(StepUnknown, step_id=it.step_id, error=error_data)
            await self._record.flush()
            self._warn(log.STEP_UNKNOWN, it)
        return None

    async def _wait_for_person(self, it: Invocation, thread: asyncio.Task[Any] | None) -> Step | str:
        """Wait until a person resolves the step, or the thread that runs it has ended after all."""

        async def wait(resolved: asyncio.Future[None]) -> None:
            futures = [resolved] if thread is None else [resolved, thread]
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)

        await self._control.wait_for(it.step_id, wait)
        if not self._control.has_heard_of(it.step_id) and thread is not None:
            self._threads[it.key] = thread
            self._control.resolved.add(it.step_id)
            return AGAIN
        with self._control.at_work():
            await self._record.flush()
        return self._record.run.steps[it.step_id] if it.step_id in self._control.resolved else AGAIN


def _retrieve(thread: asyncio.Task[Any]) -> None:
    """Retrieve what a thread raised, so that asyncio does not report it when the step stopped waiting for it."""
    if not thread.cancelled():
        thread.exception()
