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
from maos.model.flow import CANCELLED, GATE, PAUSED, STARTED, STEP, UNKNOWN, Flow
from maos.workflows.notes import Notes

Wait = Callable[["asyncio.Future[None]"], Any]


class Mail:
    """The inbox of one running workflow."""

    def __init__(
        self, flow: Flow, notes: Notes, *, unreached: Callable[[str], bool], let_go: Callable[[str, str, int], None]
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
            self._notes.note("flow_signalled", name=name, value=value, inbox_version=version)
            self._notes.flush_soon()
            self._signals.setdefault(name, deque()).append((version, value))
            self._wake_listener(name)
        elif record.type == "question_answered":
            self._hear_answer(data["id"], data["answer"], version)
        elif record.type == "call_settled":
            self._hear_settled(data["place"], data, version)
        elif record.type == "cancel_asked":
            self._let_go(CANCELLED, data.get("why", ""), version)
        elif record.type == "pause_asked" and version > self._flow.overruled:
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

    async def settled(self, place: str, wait: Wait) -> None:
        """Return when the call at a place has an outcome, or is to be made again, because somebody said so."""
        if place not in self._settled and place not in self._again:
            self._waiting[place] = asyncio.get_running_loop().create_future()
            try:
                await wait(self._waiting[place])
            finally:
                del self._waiting[place]

    def is_settled(self, place: str) -> bool:
        """Whether the outcome of a call has come by mail."""
        return place in self._settled

    def close(self, place: str) -> None:
        """Hear no more of a call: its outcome came otherwise."""
        self._settled.add(place)

    def reopen(self, place: str) -> None:
        """Hear of a call again, whatever was said of an earlier try."""
        self._settled.discard(place)
        self._again.discard(place)

    def has_said(self, place: str) -> bool:
        """Whether somebody said what became of a call, or that it is to be made again."""
        return place in self._settled or place in self._again

    def _hear_answer(self, place: str, answer: str, version: int) -> None:
        call = self._flow.calls.get(place)
        if call is None or (call.kind, call.status) != (GATE, STARTED) or place in self._settled:
            return
        self._notes.note("call_done", place=place, result=answer, inbox_version=version)
        self._settle(place)

    def _hear_settled(self, place: str, data: dict[str, Any], version: int) -> None:
        call = self._flow.calls.get(place)
        if call is None or call.kind != STEP or place in self._settled or place in self._again:
            return
        if call.status != UNKNOWN and not (call.status == STARTED and self._unreached(place)):
            return  # it has an outcome, or runs right now
        if data.get("tries", call.tries) != call.tries:
            return  # somebody said so of an earlier try, perhaps twice
        outcome = data["outcome"]
        if outcome == "again":
            self._notes.note("call_started", place=place, kind=STEP, name=call.name, inbox_version=version)
            self._again.add(place)
            self._notes.flush_soon()
            self._wake(place)
            return
        if outcome == "done":
            self._notes.note("call_done", place=place, result=data.get("value"), inbox_version=version)
        else:
            error = {"type": "", "message": data.get("why") or "a person said that it failed"}
            self._notes.note("call_failed", place=place, error=error, inbox_version=version)
        self._settle(place)

    def _settle(self, place: str) -> None:
        self._settled.add(place)
        self._notes.flush_soon()
        self._wake(place)

    def _wake(self, place: str) -> None:
        waiting = self._waiting.get(place)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
