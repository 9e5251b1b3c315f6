"""What others tell a running workflow: signals, answers, and what became of steps whose outcome nobody knew.

Each is written down, with its place in the inbox, when it comes; so a crash loses and repeats none of them, however
far the function is by then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from maos.journal.journal import Record
from maos.model.workflow import CANCELLED, GATE, PAUSED, STARTED, STEP, UNKNOWN, WorkflowRun
from maos.workflows.notes import RecordWriter

Wait = Callable[["asyncio.Future[None]"], Any]


class WorkflowInbox:
    """The inbox of one running workflow."""

    def __init__(
        self,
        flow: WorkflowRun,
        notes: RecordWriter,
        *,
        unreached: Callable[[str], bool],
        let_go: Callable[[str, str, int], None],
    ) -> None:
        self._flow = flow
        self._notes = notes
        self._unreached = unreached
        self._let_go = let_go
        self._heard = flow.inbox_cursor
        self._early: dict[int, Record] = {}
        """What came before something that was sent before it: a reader of old and one of new mail take turns."""
        self._signals = {name: deque(map(tuple, found)) for name, found in flow.signals.items()}
        self._listeners: dict[str, deque[asyncio.Future[None]]] = {}
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._settled: set[str] = set()
        """Places whose outcome came, by mail or otherwise."""
        self._again: set[str] = set()

    def deliver(self, record: Record) -> None:
        """Something from the inbox, in whatever order; delivered twice, it counts once."""
        if record.version <= self._heard:
            return
        self._early[record.version] = record
        while (following := self._early.pop(self._heard + 1, None)) is not None:
            self._heard += 1
            self._hear(following)

    def _hear(self, record: Record) -> None:
        data, version = record.data, record.version
        if record.type == "signal_sent":
            name, value = data["name"], data.get("value")
            self._notes.note("workflow_signalled", name=name, value=value, inbox_version=version)
            self._notes.flush_soon()
            self._signals.setdefault(name, deque()).append((version, value))
            self._wake_listener(name)
        elif record.type == "question_answered":
            self._hear_answer(data["id"], data["answer"], version)
        elif record.type == "resolve_requested":
            self._hear_settled(data["step_id"], data, version)
        elif record.type == "cancel_requested":
            self._let_go(CANCELLED, data.get("why", ""), version)
        elif record.type == "pause_requested" and version > self._flow.overruled:
            self._let_go(PAUSED, data.get("why", ""), version)

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
        """Return when the call at a place has an outcome, or is to be made again, because somebody said so."""
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
        """Whether somebody said what became of a call, or that it is to be made again."""
        return step_id in self._settled or step_id in self._again

    def _hear_answer(self, step_id: str, answer: str, version: int) -> None:
        call = self._flow.steps.get(step_id)
        if call is None or (call.kind, call.status) != (GATE, STARTED) or step_id in self._settled:
            return
        self._notes.note("step_completed", step_id=step_id, result=answer, inbox_version=version)
        self._settle(step_id)

    def _hear_settled(self, step_id: str, data: dict[str, Any], version: int) -> None:
        call = self._flow.steps.get(step_id)
        if call is None or call.kind != STEP or step_id in self._settled or step_id in self._again:
            return
        if call.status != UNKNOWN and not (call.status == STARTED and self._unreached(step_id)):
            return  # it has an outcome, or runs right now
        if data.get("tries", call.tries) != call.tries:
            return  # somebody said so of an earlier try, perhaps twice
        outcome = data["outcome"]
        if outcome == "again":
            self._notes.note("step_started", step_id=step_id, kind=STEP, name=call.name, inbox_version=version)
            self._again.add(step_id)
            self._notes.flush_soon()
            self._wake(step_id)
            return
        if outcome == "done":
            self._notes.note("step_completed", step_id=step_id, result=data.get("value"), inbox_version=version)
        else:
            error = {"type": "", "message": data.get("why") or "a person said that it failed"}
            self._notes.note("step_failed", step_id=step_id, error=error, inbox_version=version)
        self._settle(step_id)

    def _settle(self, step_id: str) -> None:
        self._settled.add(step_id)
        self._notes.flush_soon()
        self._wake(step_id)

    def _wake(self, step_id: str) -> None:
        waiting = self._waiting.get(step_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
