"""Commands to a running workflow: signals, answers, and the outcomes of steps that were unknown.

Each is written down, with its place in the inbox, when it comes; so a crash loses and repeats none of them, however
far the function is by then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from maos.journal.journal import Record
from maos.model.workflow import CANCELLED, GATE, PAUSED, STARTED, STEP, UNKNOWN
from maos.workflows.control import Control
from maos.workflows.record import RunRecord

Wait = Callable[["asyncio.Future[None]"], Any]


class WorkflowInbox:
    """The inbox of one running workflow."""

    def __init__(self, record: RunRecord, control: Control) -> None:
        self._record = record
        self._flow = record.flow
        self._control = control
        self._signals = {name: deque(map(tuple, found)) for name, found in record.flow.signals.items()}
        self._listeners: dict[str, deque[asyncio.Future[None]]] = {}
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._settled: set[str] = set()
        """Places whose outcome came, by mail or otherwise."""
        self._again: set[str] = set()

    def deliver(self, record: Record) -> None:
        """Record what came into the inbox, and wake what waits for it."""
        data, version = record.data, record.version
        if record.type == "signal_sent":
            name, value = data["name"], data.get("value")
            self._record.note_signal(name, value, version)
            self._signals.setdefault(name, deque()).append((version, value))
            self._wake_listener(name)
        elif record.type == "question_answered":
            self._hear_answer(data["id"], data["answer"], version)
        elif record.type == "resolve_requested":
            self._hear_settled(data["step_id"], data, version)
        elif record.type == "cancel_requested":
            self._control.leave(CANCELLED, data.get("why", ""), version)
        elif record.type == "pause_requested" and version > self._flow.overruled:
            self._control.leave(PAUSED, data.get("why", ""), version)

    # --- signals ---------------------------------------------------------------------------------------------

    async def signal(self, name: str, wait: Wait) -> tuple[int, Any]:
        """The next signal of a name, with its place in the inbox; `wait` waits for a future, and may give up."""
        while not self._signals.get(name):
            listener: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            listeners = self._listeners.setdefault(name, deque())
            listeners.append(listener)
            try:
                await wait(listener)
            except BaseException:
                listeners.remove(listener)
                self._wake_listener(name)  # it may be us who was woken
                raise
            listeners.remove(listener)
        version, value = self._signals[name].popleft()
        return version, value

    def _wake_listener(self, name: str) -> None:
        if self._signals.get(name):
            listener = next((each for each in self._listeners.get(name, ()) if not each.done()), None)
            if listener is not None:
                listener.set_result(None)

    # --- answers ---------------------------------------------------------------------------------------------

    async def settled(self, step_id: str, wait: Wait) -> None:
        """Return when the call at a place has an outcome, or is to be made again, by a command."""
        if step_id not in self._settled and step_id not in self._again:
            self._waiting[step_id] = asyncio.get_running_loop().create_future()
            try:
                await wait(self._waiting[step_id])
            finally:
                del self._waiting[step_id]

    def is_settled(self, step_id: str) -> bool:
        """Whether the outcome of a call has come by mail."""
        return step_id in self._settled

    def close(self, step_id: str) -> None:
        """Hear no more of a call: its outcome came otherwise."""
        self._settled.add(step_id)

    def reopen(self, step_id: str) -> None:
        """Hear of a call again, whatever was said of an earlier try."""
        self._settled.discard(step_id)
        self._again.discard(step_id)

    def has_said(self, step_id: str) -> bool:
        """Whether a command gave the outcome of a call, or said that it is to be made again."""
        return step_id in self._settled or step_id in self._again

    def _hear_answer(self, step_id: str, answer: str, version: int) -> None:
        call = self._flow.steps.get(step_id)
        if call is None or (call.kind, call.status) != (GATE, STARTED) or step_id in self._settled:
            return
        self._record.note_done(step_id, answer, inbox_version=version)
        self._settle(step_id)

    def _hear_settled(self, step_id: str, data: dict[str, Any], version: int) -> None:
        call = self._flow.steps.get(step_id)
        if call is None or call.kind != STEP or step_id in self._settled or step_id in self._again:
            return
        if call.status != UNKNOWN and not (call.status == STARTED and step_id in self._record.unseen):
            return  # it has an outcome, or runs right now
        if data.get("tries", call.tries) != call.tries:
            return  # the command is about an earlier try, or came twice
        outcome = data["outcome"]
        if outcome == "again":
            self._record.note_started(step_id, STEP, call.name, inbox_version=version)
            self._again.add(step_id)
            self._record.flush_soon()
            self._wake(step_id)
            return
        if outcome == "done":
            self._record.note_done(step_id, data.get("value"), inbox_version=version)
        else:
            error = {"type": "", "message": data.get("why") or "a person said that it failed"}
            self._record.note_failed(step_id, error, inbox_version=version)
        self._settle(step_id)

    def _settle(self, step_id: str) -> None:
        self._settled.add(step_id)
        self._record.flush_soon()
        self._wake(step_id)

    def _wake(self, step_id: str) -> None:
        waiting = self._waiting.get(step_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
