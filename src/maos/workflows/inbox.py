"""Commands to a workflow run: signals, answers, and the outcomes of steps whose outcome was unknown.

Each is recorded with its version in the inbox when it comes; so a crash neither loses nor repeats one, however far the
function is by then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from maos.journal.journal import Record
from maos.model.events.commands import CancelRequested, PauseRequested, ResolveRequested, SignalSent
from maos.model.events.run import QuestionAnswered
from maos.model.events.workflow import WorkflowSignalled
from maos.model.workflow import CANCELLED, GATE, PAUSED, STARTED, STEP, UNKNOWN
from maos.workflows.control import Control
from maos.workflows.record import RunRecord

Wait = Callable[["asyncio.Future[None]"], Awaitable[None]]


class WorkflowInbox:
    """The inbox of one workflow run that this process executes."""

    def __init__(self, record: RunRecord, control: Control) -> None:
        self._record = record
        self._run = record.run
        self._control = control
        self._signals = {name: deque(map(tuple, found)) for name, found in record.run.signals.items()}
        self._listeners: dict[str, deque[asyncio.Future[None]]] = {}
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._resolved: set[str] = set()
        """Ids of steps that have an outcome, by a command or otherwise."""
        self._again: set[str] = set()
        """Ids of steps that a command said to execute again."""

    def receive(self, record: Record) -> None:
        """Record a command that came into the inbox, and wake what waits for it."""
        version = record.version
        match record.event:
            case SignalSent(name=name, value=value):
                signalled = WorkflowSignalled(
                    name=name, value=value, inbox_version=version, at_us=self._record.now_us()
                )  # fmt: skip
                self._record.add(signalled)
                self._record.flush_soon()
                self._signals.setdefault(name, deque()).append((version, value))
                self._wake_listener(name)
            case QuestionAnswered(id=step_id, answer=answer):
                self._receive_answer(step_id, answer, version)
            case ResolveRequested():
                self._receive_outcome(record.event, version)
            case CancelRequested(why=why):
                self._control.stop(CANCELLED, why, version)
            case PauseRequested(why=why) if version > self._run.overruled:
                self._control.stop(PAUSED, why, version)

    # --- signals ---------------------------------------------------------------------------------------------

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

    # --- outcomes --------------------------------------------------------------------------------------------

    async def wait_for(self, step_id: str, wait: Wait) -> None:
        """Return when a command has given the outcome of a step, or said to execute it again."""
        if not self.has_heard_of(step_id):
            self._waiting[step_id] = asyncio.get_running_loop().create_future()
            try:
                await wait(self._waiting[step_id])
            finally:
                del self._waiting[step_id]

    def is_resolved(self, step_id: str) -> bool:
        """Whether a step has an outcome."""
        return step_id in self._resolved

    def has_heard_of(self, step_id: str) -> bool:
        """Whether a command gave the outcome of a step, or said to execute it again."""
        return step_id in self._resolved or step_id in self._again

    def close(self, step_id: str) -> None:
        """Ignore commands about a step from now on: its outcome came otherwise."""
        self._resolved.add(step_id)

    def reopen(self, step_id: str) -> None:
        """Accept commands about a step again, whatever was said of an earlier try."""
        self._resolved.discard(step_id)
        self._again.discard(step_id)

    def _receive_answer(self, step_id: str, answer: str, version: int) -> None:
        step = self._run.steps.get(step_id)
        if step is not None and (step.kind, step.status) == (GATE, STARTED) and step_id not in self._resolved:
            self._record.add_completed(step_id, answer, inbox_version=version)
            self._resolved.add(step_id)
            self._wake(step_id)

    def _receive_outcome(self, command: ResolveRequested, version: int) -> None:
        step_id = command.step_id
        step = self._run.steps.get(step_id)
        if step is None or step.kind != STEP or self.has_heard_of(step_id):
            return
        if step.status != UNKNOWN and not (step.status == STARTED and step_id in self._record.unseen):
            return  # it has an outcome, or runs right now
        if command.tries not in (None, step.tries):
            return  # the command is about an earlier try, or came twice
        if command.outcome == "again":
            self._record.add_started(step_id, STEP, step.name, inbox_version=version)
            self._again.add(step_id)
        elif command.outcome == "done":
            self._record.add_completed(step_id, command.value, inbox_version=version)
            self._resolved.add(step_id)
        else:
            error = {"type": "", "message": command.why or "a person said that it failed"}
            self._record.add_failed(step_id, error, inbox_version=version)
            self._resolved.add(step_id)
        self._wake(step_id)

    def _wake(self, step_id: str) -> None:
        self._record.flush_soon()
        waiting = self._waiting.get(step_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
