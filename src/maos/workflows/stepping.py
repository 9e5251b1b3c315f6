"""Steps of a running workflow: begun, tried, and found out about when they were interrupted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from maos.clock import MICROSECONDS
from maos.errors import InvalidInput
from maos.faults import crash_point
from maos.model.flow import DONE, FAILED, STEP, UNKNOWN, Call
from maos.workflows import scopes, values
from maos.workflows.definition import NOT_DONE, Found, Step, called
from maos.workflows.errors import StepFailed

if TYPE_CHECKING:
    from maos.workflows.running import RunningFlow


class Stepping:
    """What a running workflow does about steps."""

    def __init__(self, running: RunningFlow) -> None:
        self._running = running
        self._notes = running.notes
        self._idle = asyncio.Event()
        self._idle.set()
        self.busy = 0
        """How many run right now."""

    async def idle(self) -> None:
        """Return when no step runs."""
        await self._idle.wait()

    async def step(self, place: str, step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The outcome of a step: the recorded one, or that of calling it now."""
        digest = values.digest(args, kwargs, f"an argument of {step.name}")
        call = await self._running.known(place, STEP, step.name, digest)
        if call is not None and call.status in (DONE, FAILED):
            return self._outcome(call, step)
        with self._running.waiting(place):
            if call is None:
                await self._begin(place, step, digest, args, kwargs)
            elif call.until_us:  # it had failed, and was to be tried again
                await self._begin_again(place, step, call.until_us)
            elif call.status == UNKNOWN or not step.idempotent:
                settled = await self._find_out(place, step, args, kwargs)
                if settled is not None:
                    return self._outcome(settled, step)
            return await self._do(place, step, call.failures if call else 0, args, kwargs)

    async def _begin(
        self, place: str, step: Step[..., Any], digest: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        data: dict[str, Any] = {"place": place, "kind": STEP, "name": step.name}
        if digest:
            data["digest"] = digest
        if step.idempotent and not self._running.checkpoints.policy.every_step:
            self._notes.note("call_started", **data)
            await self._running.recall.settle()
        else:
            if not step.idempotent and (args or kwargs):  # for whoever may have to find out what became of it
                data["about"] = {"given": self._running.workflows.without_secrets(values.shown(args, kwargs))}
            self._notes.note("call_started", **data)
            await self._notes.flush()
        crash_point(f"flow:before {step.name}")

    async def _begin_again(self, place: str, step: Step[..., Any], until_us: int) -> None:
        await self._running.until(until_us)
        self._notes.note("call_started", place=place, kind=STEP, name=step.name)
        await self._notes.flush()

    async def _do(
        self, place: str, step: Step[..., Any], failures: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        while True:
            try:
                result = await self._try(place, step, args, kwargs)
                break
            except Exception as error:
                failures += 1
                if failures > step.retries:
                    raise await self._failed(place, step, error) from error
                until_us = self._running.clock.now_us() + int(step.pause_s(failures) * MICROSECONDS)
                self._notes.note("call_tried", place=place, error=values.told(error), until_us=until_us)
                await self._notes.flush()
                await self._begin_again(place, step, until_us)
        crash_point(f"flow:after {step.name}")
        try:
            plain = values.plain(result, f"what the step {step.name} returns")
            found = values.typed(plain, step.returns, f"what the step {step.name} returns")
        except InvalidInput as error:  # trying again would not help, and do it again
            raise await self._failed(place, step, error) from error
        self._notes.note("call_done", place=place, result=plain)
        await self._running.ended(place)
        return found

    async def _failed(self, place: str, step: Step[..., Any], error: Exception) -> StepFailed:
        told = values.told(error)
        self._notes.note("call_failed", place=place, error=told)
        await self._running.ended(place)
        return StepFailed(step.name, told)

    async def _try(self, place: str, step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.busy += 1
        self._idle.clear()
        outside = scopes.enter(None)
        key = scopes.enter_step(f"{self._running.id}/{place}")
        try:
            if not step.timeout_s:
                return await called(step.function, args, kwargs)
            async with asyncio.timeout(step.timeout_s) as limit:
                return await called(step.function, args, kwargs)
        except TimeoutError as error:
            if step.timeout_s and limit.expired():
                raise TimeoutError(f"it took longer than {step.timeout_s:g} s") from error
            raise
        finally:
            scopes.leave_step(key)
            scopes.leave(outside)
            self.busy -= 1
            if not self.busy:
                self._idle.set()
                self._running.step_ended()

    def _outcome(self, call: Call, step: Step[..., Any]) -> Any:
        if call.status == FAILED:
            raise StepFailed(step.name, call.error or {})
        return values.typed(call.result, step.returns, f"what the step {step.name} returned")

    async def _find_out(
        self, place: str, step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Call | None:
        """What became of a step that was begun: its outcome, or None when it is to be done (again)."""
        mail, flow = self._running.mail, self._running.flow
        doubt: dict[str, Any] = {}
        if step.probe is not None and not (mail.is_settled(place) or mail.is_again(place)):
            try:
                said = await self._probe(place, step, args, kwargs)
            except Exception as error:  # noqa: BLE001 - told to the person who is asked in its place
                said, doubt = None, {"error": values.told(error)}
            if isinstance(said, Found):
                result = values.plain(said.result, f"what the probe of {step.name} found")
                self._notes.note("call_done", place=place, result=result)
                await self._notes.flush()
                return flow.calls[place]
            if said == NOT_DONE:
                self._notes.note("call_started", place=place, kind=STEP, name=step.name)
                await self._notes.flush()
                return None
        if flow.calls[place].status != UNKNOWN and not (mail.is_settled(place) or mail.is_again(place)):
            self._notes.note("call_doubted", place=place, **doubt)
            await self._notes.flush()
        await mail.settled(place, _wait_for)
        await self._notes.flush()
        return flow.calls[place] if mail.is_settled(place) else None

    async def _probe(self, place: str, step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the step's own probe says, called with the step's arguments and key."""
        assert step.probe is not None
        outside = scopes.enter(None)
        key = scopes.enter_step(f"{self._running.id}/{place}")
        try:
            return await called(step.probe, args, kwargs)
        finally:
            scopes.leave_step(key)
            scopes.leave(outside)


async def _wait_for(future: asyncio.Future[None]) -> None:
    await future
