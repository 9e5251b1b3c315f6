"""Whether a workflow run executes further steps, and the commands that it receives: to pause or to end, signals,
answers, and the outcomes of steps whose outcome was unknown.

Each command is recorded with its version in the inbox when it comes; so a crash neither loses nor repeats one, however
far the function is by then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from maos.journal.journal import Record
from maos.model.events.commands import CancelRequested, PauseRequested, ResolveRequested, SignalSent
from maos.model.events.run import QuestionAnswered
from maos.model.events.workflow import (
    StepAbandoned,
    StepCompleted,
    StepFailure,
    StepStarted,
    StepUnknown,
    WorkflowSignalled,
)
from maos.model.workflow import ABANDONED, CANCELLED, DONE, FAILED, GATE, PAUSED, STARTED, STEP, UNKNOWN, Step
from maos.workflows.record import RunRecord

Wait = Callable[["asyncio.Future[None]"], Awaitable[None]]


class Control:
    """Receives the commands to one workflow run, and stops its function once the steps that run have ended."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self._main: asyncio.Task[Any] | None = None
        self._busy = 0
        """How many steps run right now, or are about to."""
        self._idle = asyncio.Event()
        self._idle.set()
        self.stop_as = ""
        """PAUSED or CANCELLED, if the run is to be stopped."""
        self.why = ""
        self.by = ""
        self.inbox_version = 0
        """Of the command to stop it."""
        self.has_cancelled = False
        """Whether the function was cancelled because the run is to be stopped."""
        self.is_closing = False
        self._signals = {name: deque(map(tuple, found)) for name, found in record.run.signals.items()}
        self._listeners: dict[str, deque[asyncio.Future[None]]] = {}
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self.resolved: set[str] = set()
        """Ids of steps that have an outcome, by a command or otherwise: further commands about them are ignored."""
        self._again: set[str] = set()
        """Ids of steps that a command said to execute again."""

    def begin(self, main: asyncio.Task[Any]) -> None:
        """Set the task of the function; a command to stop may have come before it."""
        self._main = main
        self._stop_if_idle()

    def stop(self, status: str, why: str, inbox_version: int = 0, *, by: str = "") -> None:
        """Have the run paused, or ended as cancelled, once the steps that run have ended."""
        if not self.stop_as:
            self.stop_as, self.why, self.by, self.inbox_version = status, why, by, inbox_version
        self._stop_if_idle()

    async def pause(self, why: str) -> NoReturn:
        """Have the run paused, and wait to be cancelled."""
        self.stop(PAUSED, why)
        await asyncio.get_running_loop().create_future()
        raise AssertionError("that future has no result")

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
        record = self.record
        return self.is_closing or self.has_cancelled or record.trouble is not None or record.broken is not None

    @property
    def abandons(self) -> bool:
        """Whether a child or an agent whose step is cancelled now is of no use to this or a later execution."""
        return self.stop_as == CANCELLED or not (self.is_stopping or self.stop_as)

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

    async def recorded(self, step_id: str, kind: str, name: str, digest: str = "") -> Step | None:
        """Return the step that is recorded under an id; raise WorkflowChanged when it was another one.

        Once the run is to be stopped, no new step begins.
        """
        step = self.record.find(step_id, kind, name, digest)
        if step is not None:
            await asyncio.sleep(0)
            if step.status == ABANDONED:  # the function did not wait for its end, and will not now
                await asyncio.get_running_loop().create_future()
        has_ended = step is not None and step.status in (DONE, FAILED)
        if (self.stop_as or self.record.broken or self.record.trouble) and not has_ended:
            self.record.check()
            if self.record.broken is not None:
                raise self.record.broken
            await self.idle()
            raise asyncio.CancelledError
        return step

    @contextmanager
    def waiting(self, step_id: str) -> Iterator[None]:
        """Record that the function stopped waiting for a step, so that it does so again when it runs again."""
        try:
            yield
        except asyncio.CancelledError:
            if not (self.is_stopping or self.stop_as):
                self.record.add(StepAbandoned, step_id=step_id)
                self.record.flush_soon()
            raise

    async def stay_unknown(self, step_id: str) -> None:
        """Pause the run when the function stops waiting for a step whose outcome is unknown (I31)."""
        if self.is_stopping:
            return
        step = self.record.run.steps[step_id]
        if step.status != UNKNOWN:
            self.record.add(StepUnknown, step_id=step_id)
        await self.pause(f"the outcome of step {step_id}, {step.name}, is unknown: resolve it, then resume")

    # --- commands --------------------------------------------------------------------------------------------

    def receive(self, record: Record) -> None:
        """Record a command that came into the inbox, and wake what waits for it."""
        version = record.version
        match record.event:
            case SignalSent(name=name, value=value, by=by):
                self.record.add(WorkflowSignalled, name=name, value=value, by=by, inbox_version=version)
                self.record.flush_soon()
                self._signals.setdefault(name, deque()).append((version, value))
                self._wake_listener(name)
            case QuestionAnswered():
                self._receive_answer(record.event, version)
            case ResolveRequested():
                self._receive_outcome(record.event, version)
            case CancelRequested(why=why, by=by) if version > self.record.run.uncancelled:
                self.stop(CANCELLED, why, version, by=by)
            case PauseRequested(why=why, by=by) if version > self.record.run.overruled:
                self.stop(PAUSED, why, version, by=by)

    async def signal(self, name: str, wait: Wait) -> tuple[int, Any]:
        """Return the next signal of a name, with its version in the inbox; `wait` may stop waiting for the future."""
        while not self._signals.get(name):
            listener: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            listeners = self._listeners.setdefault(name, deque())
            listeners.append(listener)
            try:
                await wait(listener)
            except BaseException:
                listeners.remove(listener)
                self._wake_listener(name)  # this one may have been woken
                raise
            listeners.remove(listener)
        version, value = self._signals[name].popleft()
        return version, value

    def _wake_listener(self, name: str) -> None:
        if self._signals.get(name):
            listener = next((each for each in self._listeners.get(name, ()) if not each.done()), None)
            if listener is not None:
                listener.set_result(None)

    async def wait_for(self, step_id: str, wait: Wait) -> None:
        """Return when a command has given the outcome of a step, or said to execute it again."""
        if not self.has_heard_of(step_id):
            self._waiting[step_id] = asyncio.get_running_loop().create_future()
            try:
                await wait(self._waiting[step_id])
            finally:
                del self._waiting[step_id]

    def has_heard_of(self, step_id: str) -> bool:
        """Whether a command gave the outcome of a step, or said to execute it again."""
        return step_id in self.resolved or step_id in self._again

    def reopen(self, step_id: str) -> None:
        """Accept commands about a step again, whatever was said of an earlier try."""
        self.resolved.discard(step_id)
        self._again.discard(step_id)

    def _receive_answer(self, answered: QuestionAnswered, version: int) -> None:
        step_id, result, by = answered.id, answered.answer, answered.by
        step = self.record.run.steps.get(step_id)
        if step is not None and (step.kind, step.status) == (GATE, STARTED) and step_id not in self.resolved:
            self.record.add(StepCompleted, step_id=step_id, result=result, by=by, inbox_version=version)
            self.resolved.add(step_id)
            self._wake(step_id)

    def _receive_outcome(self, command: ResolveRequested, version: int) -> None:
        step_id = command.step_id
        step = self.record.run.steps.get(step_id)
        if step is None or step.kind != STEP or self.has_heard_of(step_id):
            return
        if step.status != UNKNOWN and not (step.status == STARTED and step_id in self.record.unseen):
            return  # it has an outcome, or runs right now
        if command.tries not in (None, step.tries):
            return  # the command is about an earlier try, or came twice
        common: dict[str, Any] = {"step_id": step_id, "by": command.by, "inbox_version": version}
        if command.outcome == "again":
            self.record.add(StepStarted, kind=STEP, name=step.name, **common)
            self._again.add(step_id)
        elif command.outcome == "done":
            self.record.add(StepCompleted, result=command.value, **common)
            self.resolved.add(step_id)
        else:
            error = {"type": "", "message": command.why or "a person said that it failed"}
            self.record.add(StepFailure, error=error, **common)
            self.resolved.add(step_id)
        self._wake(step_id)

    def _wake(self, step_id: str) -> None:
        self.record.flush_soon()
        waiting = self._waiting.get(step_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
