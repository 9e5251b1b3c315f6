"""Steps of a running workflow: begun, tried, and found out about when they were interrupted."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from maos.clock import MICROSECONDS
from maos.errors import InvalidInput
from maos.faults import crash_point
from maos.model.workflow import DONE, FAILED, STEP, UNKNOWN, Step
from maos.workflows import scopes, values
from maos.workflows.definition import NOT_DONE, FoundWorkflow, StepDefinition, called
from maos.workflows.errors import StepFailed

if TYPE_CHECKING:
    from maos.workflows.running import WorkflowExecution


AGAIN = "again"
"""What is to be done about a step in doubt: try it, or hear what a try says that has ended after all."""


class Overdue(Exception):
    """A step took longer than it may."""


class Stepping:
    """What a running workflow does about steps."""

    def __init__(self, running: WorkflowExecution) -> None:
        self._running = running
        self._notes = running.notes
        self._threads: dict[str, asyncio.Task[Any]] = {}
        """Those of plain functions, by the keys of their calls, until somebody has heard what became of them."""
        self._idle = asyncio.Event()
        self._idle.set()
        self.busy = 0
        """How many run right now, or are about to."""

    async def idle(self) -> None:
        """Return when no step runs."""
        while self.busy:
            await self._idle.wait()

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """A step that runs, or whose beginning is being written: nobody lets go of the workflow before it has run."""
        self.busy += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.busy -= 1
            if not self.busy:
                self._idle.set()
                self._running.step_ended()

    async def step(
        self, step_id: str, step: StepDefinition[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The outcome of a step: the recorded one, or that of calling it now."""
        digest = values.digest(args, kwargs, f"an argument of {step.name}")
        call = await self._running.known(step_id, STEP, step.name, digest)
        if call is not None and call.status in (DONE, FAILED):
            return self._outcome(call, step)
        with self._running.waiting(step_id):
            if call is None:
                await self._begin(step_id, step, digest, args, kwargs)
            elif call.until_us:  # it had failed, and was to be tried again
                await self._begin_again(step_id, step, call.until_us)
            elif call.status == UNKNOWN or not step.idempotent:
                found = await self._find_out(step_id, step, args, kwargs)
                if isinstance(found, Step):
                    return self._outcome(found, step)
                if found == NOT_DONE:
                    await self._begin_again(step_id, step)
            return await self._do(step_id, step, call.failures if call else 0, args, kwargs)

    async def _begin(
        self, step_id: str, step: StepDefinition[..., Any], digest: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        data: dict[str, Any] = {"step_id": step_id, "kind": STEP, "name": step.name}
        if digest:
            data["digest"] = digest
        if step.idempotent and not self._running.checkpoints.policy.every_step:
            self._notes.note("step_started", **data)
            with self._at_work():
                await self._running.recall.settle()
        else:
            if not step.idempotent and (args or kwargs):  # for whoever may have to find out what became of it
                data["about"] = {"given": values.shown(args, kwargs)}
            self._notes.note("step_started", **data)
            with self._at_work():
                await self._notes.flush()
        crash_point(f"flow:before {step.name}")

    async def _begin_again(self, step_id: str, step: StepDefinition[..., Any], until_us: int = 0) -> None:
        await self._running.until(until_us)
        self._notes.note("step_started", step_id=step_id, kind=STEP, name=step.name)
        with self._at_work():
            await self._notes.flush()

    async def _do(
        self, step_id: str, step: StepDefinition[..., Any], failures: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        while True:
            found: Step | str = NOT_DONE
            try:
                result = await self._try(step_id, step, args, kwargs)
                break
            except Overdue as error:
                failed: Exception = TimeoutError(str(error))
                if not step.idempotent:  # it may have taken effect, or may yet
                    self._running.mail.reopen(step_id)
                    found = await self._find_out(step_id, step, args, kwargs, failed)
            except Exception as error:  # noqa: BLE001 - told to the workflow, or tried again
                failed = error
            if isinstance(found, Step):
                return self._outcome(found, step)
            if found == AGAIN:
                continue
            failures += 1
            if failures > step.retries:
                raise await self._failed(step_id, step, failed) from failed
            until_us = self._running.clock.now_us() + int(step.pause_s(failures) * MICROSECONDS)
            self._notes.note("step_retried", step_id=step_id, error=values.told(failed), until_us=until_us)
            await self._notes.flush()
            await self._begin_again(step_id, step, until_us)
        crash_point(f"flow:after {step.name}")
        try:
            plain = values.plain(result, f"what the step {step.name} returns")
            found = values.typed(plain, step.returns, f"what the step {step.name} returns")
        except InvalidInput as error:  # trying again would not help, and do it again
            raise await self._failed(step_id, step, error) from error
        self._notes.note("step_completed", step_id=step_id, result=plain)
        await self._running.ended(step_id)
        return found

    async def _failed(self, step_id: str, step: StepDefinition[..., Any], error: Exception) -> StepFailed:
        told = values.told(error)
        self._notes.note("step_failed", step_id=step_id, error=told)
        await self._running.ended(step_id)
        return StepFailed(step.name, told)

    async def _try(
        self, step_id: str, step: StepDefinition[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        outside = scopes.enter(None)
        key = self._key(step_id)
        token = scopes.enter_step(key)
        try:
            with self._at_work():
                if not step.timeout_s:
                    return await self._called(key, step, args, kwargs)
                async with asyncio.timeout(step.timeout_s) as limit:
                    return await self._called(key, step, args, kwargs)
        except TimeoutError as error:
            if step.timeout_s and limit.expired():
                raise Overdue(f"it took longer than {step.timeout_s:g} s") from error
            raise
        finally:
            scopes.leave_step(token)
            scopes.leave(outside)

    def _key(self, step_id: str) -> str:
        return f"{self._running.id}/{step_id}"

    async def _called(
        self, key: str, step: StepDefinition[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call the function. A thread cannot be stopped: while one is at work for this call, its end is awaited."""
        if inspect.iscoroutinefunction(step.function):
            return await step.function(*args, **kwargs)
        thread = self._thread(key)
        if thread is None:
            thread = asyncio.create_task(asyncio.to_thread(step.function, *args, **kwargs))
            thread.add_done_callback(_hear)
            self._threads[key] = self._running.workflows.threads[key] = thread
        if not thread.done():
            await asyncio.wait([thread])
        self._threads.pop(key, None)
        self._running.workflows.threads.pop(key, None)
        result = thread.result()
        return await result if inspect.isawaitable(result) else result

    def _thread(self, key: str) -> asyncio.Task[Any] | None:
        """The one that was begun for a call, in this run of the workflow or an earlier one in this process."""
        return self._threads.get(key) or self._running.workflows.threads.get(key)

    def _outcome(self, call: Step, step: StepDefinition[..., Any]) -> Any:
        if call.status == FAILED:
            raise StepFailed(step.name, call.error or {})
        try:
            return values.typed(call.result, step.returns, f"what the step {step.name} returned")
        except InvalidInput as error:  # of another type when it was recorded
            raise self._running.changed(error.what) from error

    async def _find_out(
        self,
        step_id: str,
        step: StepDefinition[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        error: Exception | None = None,
    ) -> Step | str:
        """What became of a step that was begun: its outcome, NOT_DONE, or AGAIN.

        A time limit around it does not end this: nobody would know more, and the workflow would go on regardless.
        """
        doubt = {} if error is None else {"error": values.told(error)}
        try:
            return await self._found(step_id, step, args, kwargs, doubt)
        except asyncio.CancelledError:
            await self._running.stay_in_doubt(step_id)
            raise

    async def _found(
        self,
        step_id: str,
        step: StepDefinition[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        doubt: dict[str, Any],
    ) -> Step | str:
        mail, flow = self._running.mail, self._running.flow
        thread = self._thread(self._key(step_id))
        if step.probe is not None and thread is None and not mail.has_said(step_id):
            try:
                said = await self._probe(step_id, step, args, kwargs)
                if isinstance(said, FoundWorkflow):
                    said = FoundWorkflow(values.plain(said.result, f"what the probe of {step.name} found"))
            except Exception as error:  # noqa: BLE001 - told to the person who is asked in its place
                said, doubt = None, {"error": values.told(error)}
            if (isinstance(said, FoundWorkflow) or said == NOT_DONE) and not mail.has_said(step_id):
                mail.close(step_id)
                if said == NOT_DONE:
                    return NOT_DONE
                self._notes.note("step_completed", step_id=step_id, result=said.result)
                await self._notes.flush()
                return flow.steps[step_id]
        if flow.steps[step_id].status != UNKNOWN and not mail.has_said(step_id):
            self._notes.note("step_unknown", step_id=step_id, **doubt)
            await self._notes.flush()

        async def wait(settled: asyncio.Future[None]) -> None:
            await asyncio.wait([settled] if thread is None else [settled, thread], return_when=asyncio.FIRST_COMPLETED)

        await mail.settled(step_id, wait)
        if not mail.has_said(step_id) and thread is not None:
            self._threads[self._key(step_id)] = thread
            mail.close(step_id)
            return AGAIN
        with self._at_work():
            await self._notes.flush()
        return flow.steps[step_id] if mail.is_settled(step_id) else AGAIN

    async def _probe(
        self, step_id: str, step: StepDefinition[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """What the step's own probe says, called with the step's arguments and key."""
        assert step.probe is not None
        outside = scopes.enter(None)
        token = scopes.enter_step(self._key(step_id))
        try:
            return await called(step.probe, args, kwargs)
        finally:
            scopes.leave_step(token)
            scopes.leave(outside)


def _hear(thread: asyncio.Task[Any]) -> None:
    """Whoever stopped waiting for a thread does not want to hear what it raised; nor does asyncio."""
    if not thread.cancelled():
        thread.exception()
