"""Whether a workflow run makes further calls: it may be asked to pause or to end, or be unable to continue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from maos.model.workflow import CANCELLED, DONE, FAILED, LEFT, PAUSED, UNKNOWN, Step
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
        self.leaving = ""
        """PAUSED or CANCELLED, if that is to be done with the run."""
        self.why = ""
        self.inbox_version = 0
        """Of the command that said so."""
        self.is_told = False
        """Whether the function was cancelled because the run is to be paused or cancelled."""
        self.is_closing = False

    def begin(self, main: asyncio.Task[Any]) -> None:
        """Set the task of the function; a command to leave may have come before it."""
        self._main = main
        self._leave_if_idle()

    def leave(self, leaving: str, why: str, inbox_version: int = 0) -> None:
        """Have the run paused, or ended as cancelled, once the steps that run have ended."""
        if not self.leaving:
            self.leaving, self.why, self.inbox_version = leaving, why, inbox_version
        self._leave_if_idle()

    def _leave_if_idle(self) -> None:
        if self.leaving and not self.is_told and not self._busy and self._main is not None:
            self.is_told = self._main.cancel()  # False when it has just ended

    def abort(self) -> None:
        """Cancel the function: nothing can be recorded any more."""
        if self._main is not None:
            self._main.cancel()

    @property
    def is_stopping(self) -> bool:
        """Whether a call that is cancelled now is cancelled by the engine, and not by the function."""
        return (
            self.is_closing
            or self.is_told
            or self._record.trouble is not None
            or self._record.broken is not None
        )  # fmt: skip

    @property
    def gives_up(self) -> bool:
        """Whether a child or an agent whose call is cancelled now is not wanted any more, by this or a later run."""
        return self.leaving == CANCELLED or not (self.is_stopping or self.leaving)

    # --- steps that run --------------------------------------------------------------------------------------

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Around a step that runs, or whose beginning is being written: the run is not left before it has ended."""
        self._busy += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()
                if self.leaving:  # when the caller of the step has had a turn
                    asyncio.get_running_loop().call_soon(self._leave_if_idle)

    async def idle(self) -> None:
        """Return when no step runs."""
        while self._busy:
            await self._idle.wait()

    # --- calls -----------------------------------------------------------------------------------------------

    async def recorded(self, step_id: str, kind: str, name: str, digest: str = "") -> Step | None:
        """Return the call that was made at this place before; raise Changed when it was another one.

        Once the run is to be left, no new call is made.
        """
        call = self._record.find(step_id, kind, name, digest)
        if call is not None:
            await asyncio.sleep(0)
            if call.status == LEFT:  # the function did not wait for its end, and will not now
                await asyncio.get_running_loop().create_future()
        is_ended = call is not None and call.status in (DONE, FAILED)
        if (self.leaving or self._record.broken or self._record.trouble) and not is_ended:
            await self._stay()
        return call

    async def _stay(self) -> None:
        if self._record.trouble is not None:
            raise self._record.trouble
        if self._record.broken is not None:
            raise self._record.broken
        await self.idle()
        raise asyncio.CancelledError

    @contextmanager
    def waiting(self, step_id: str) -> Iterator[None]:
        """Record that the function stopped waiting for a call, so that it does so again when it runs again."""
        try:
            yield
        except asyncio.CancelledError:
            if not (self.is_stopping or self.leaving):
                self._record.note_abandoned(step_id)
                self._record.flush_soon()
            raise

    async def stay_unknown(self, step_id: str) -> None:
        """Pause the run when the function stops waiting for a step whose outcome is unknown (I31)."""
        if self.is_stopping:
            return
        call = self._record.flow.steps[step_id]
        if call.status != UNKNOWN:
            self._record.note_unknown(step_id)
        self.leave(PAUSED, f"nobody knows what became of call {step_id}, the step {call.name}: settle it, then resume")
        await asyncio.get_running_loop().create_future()
