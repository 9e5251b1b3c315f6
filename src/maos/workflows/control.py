"""Whether a workflow run executes further steps: it may be asked to pause or to end, or be unable to continue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from maos.model.events.workflow import StepAbandoned, StepUnknown
from maos.model.workflow import ABANDONED, CANCELLED, DONE, FAILED, PAUSED, UNKNOWN, Step
from maos.workflows.record import RunRecord


class Control:
    """Stops the function of one workflow run, once the steps that run have ended."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._main: asyncio.Task[Any] | None = None
        self._busy = 0
        """How many steps run right now, or are about to."""
        self._idle = asyncio.Event()
        self._idle.set()
        self.stop_as = ""
        """PAUSED or CANCELLED, if the run is to be stopped."""
        self.why = ""
        self.inbox_version = 0
        """Of the command to stop it."""
        self.has_cancelled = False
        """Whether the function was cancelled because the run is to be stopped."""
        self.is_closing = False

    def begin(self, main: asyncio.Task[Any]) -> None:
        """Set the task of the function; a command to stop may have come before it."""
        self._main = main
        self._stop_if_idle()

    def stop(self, status: str, why: str, inbox_version: int = 0) -> None:
        """Have the run paused, or ended as cancelled, once the steps that run have ended."""
        if not self.stop_as:
            self.stop_as, self.why, self.inbox_version = status, why, inbox_version
        self._stop_if_idle()

    def _stop_if_idle(self) -> None:
        if self.stop_as and not self.has_cancelled and not self._busy and self._main is not None:
            self.has_cancelled = self._main.cancel()  # False when it has just ended

    def abort(self) -> None:
        """Cancel the function: nothing can be recorded any more."""
        if self._main is not None:
            self._main.cancel()

    @property
    def is_stopping(self) -> bool:
        """Whether a step that is cancelled now is cancelled by the engine, and not by the function."""
        record = self._record
        return self.is_closing or self.has_cancelled or record.trouble is not None or record.broken is not None

    @property
    def abandons(self) -> bool:
        """Whether a child or an agent whose step is cancelled now is of no use to this or a later execution."""
        return self.stop_as == CANCELLED or not (self.is_stopping or self.stop_as)

    # --- steps that run --------------------------------------------------------------------------------------

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Around a step that runs, or whose beginning is being written: the run is not stopped before it has ended."""
        self._busy += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()
                if self.stop_as:  # when the caller of the step has had a turn
                    asyncio.get_running_loop().call_soon(self._stop_if_idle)

    async def idle(self) -> None:
        """Return when no step runs."""
        while self._busy:
            await self._idle.wait()

    # --- recorded steps --------------------------------------------------------------------------------------

    async def recorded(self, step_id: str, kind: str, name: str, digest: str = "") -> Step | None:
        """Return the step that is recorded under an id; raise WorkflowChanged when it was another one.

        Once the run is to be stopped, no new step begins.
        """
        step = self._record.find(step_id, kind, name, digest)
        if step is not None:
            await asyncio.sleep(0)
            if step.status == ABANDONED:  # the function did not wait for its end, and will not now
                await asyncio.get_running_loop().create_future()
        has_ended = step is not None and step.status in (DONE, FAILED)
        if (self.stop_as or self._record.broken or self._record.trouble) and not has_ended:
            await self._refuse()
        return step

    async def _refuse(self) -> None:
        if self._record.trouble is not None:
            raise self._record.trouble
        if self._record.broken is not None:
            raise self._record.broken
        await self.idle()
        raise asyncio.CancelledError

    @contextmanager
    def waiting(self, step_id: str) -> Iterator[None]:
        """Record that the function stopped waiting for a step, so that it does so again when it runs again."""
        try:
            yield
        except asyncio.CancelledError:
            if not (self.is_stopping or self.stop_as):
                self._record.add(StepAbandoned(step_id=step_id, at_us=self._record.now_us()))
                self._record.flush_soon()
            raise

    async def stay_unknown(self, step_id: str) -> None:
        """Pause the run when the function stops waiting for a step whose outcome is unknown (I31)."""
        if self.is_stopping:
            return
        step = self._record.run.steps[step_id]
        if step.status != UNKNOWN:
            self._record.add(StepUnknown(step_id=step_id, at_us=self._record.now_us()))
        self.stop(PAUSED, f"the outcome of step {step_id}, {step.name}, is unknown: resolve it, then resume")
        await asyncio.get_running_loop().create_future()
