"""Calls that only remember something: what time and chance said, what was published, which way was taken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from maos.errors import InvalidInput
from maos.model.workflow import PATCH, VALUE
from maos.workflows import values
from maos.workflows.scopes import Scope

if TYPE_CHECKING:
    from maos.workflows.running import WorkflowExecution


class Recall:
    """What a running workflow remembers from run to run; none of it is awaited."""

    def __init__(self, running: WorkflowExecution) -> None:
        self._running = running
        self._notes = running.notes
        self._new = 0
        """How much was noted that no step may be told of before it is on disk."""
        self._safe = 0
        """How much of it is."""

    async def settle(self) -> None:
        """Have what chance and the clock said on disk, before anything outside is told of it."""
        new = self._new
        if new > self._safe:
            await self._notes.flush()
            self._safe = max(self._safe, new)  # what other branches noted meanwhile may not be there yet
        else:
            await asyncio.sleep(0)

    def note_new(self) -> None:
        """Something was noted that would be different in another run."""
        self._new += 1

    def value(self, scope: Scope, name: str, make: Callable[[], Any]) -> Any:
        """Something that would be different in another run; the first one counts."""
        step_id = scope.next_place()
        call = self._running.recorded(step_id, VALUE, name)
        if call is not None:
            return call.result
        made = make()
        self.note_new()
        self._notes.note("step_completed", step_id=step_id, kind=VALUE, name=name, result=made)
        return made

    def publish(self, scope: Scope, published: Mapping[str, Any]) -> None:
        """Let others see values while it runs."""
        step_id = scope.next_place()
        if self._running.recorded(step_id, VALUE, "publish") is not None:
            return
        said = values.plain(dict(published), "what is published")
        progress = said.get("progress", self._running.checkpoints.progress)
        if progress.__class__ not in (int, float):
            raise InvalidInput(f"progress cannot be {progress!r}", hint="it is in percent, as a number")
        self._running.checkpoints.progress = float(progress)
        self._notes.note("step_completed", step_id=step_id, kind=VALUE, name="publish")
        self._notes.note("workflow_published", values=said)
        self._notes.flush_soon()

    def patched(self, scope: Scope, name: str) -> bool:
        """Whether this run is to do what was changed: True unless it has been past this place before the change."""
        step_id = scope.peek_place()
        call = self._running.flow.steps.get(step_id)
        if call is None and any(_number(each, scope.prefix) > scope.count for each in self._running.unseen):
            return False
        if call is not None and (call.kind, call.name) != (PATCH, name):
            return False
        scope.next_place()
        self._running.unseen.discard(step_id)
        if call is None:
            self.note_new()
            self._notes.note("step_completed", step_id=step_id, kind=PATCH, name=name)
        return True

    def branches_begun(self, step_id: str, count: int) -> set[int] | None:
        """Which of several branches had begun when one of them failed, if that is what happened before."""
        call = self._running.recorded(step_id, VALUE, "branches")
        if call is None:
            return None
        skipped = set(call.result)
        return {number for number in range(count) if number not in skipped}

    def has_begun(self, prefix: str) -> bool:
        """Whether calls of a branch are recorded."""
        return any(step_id.startswith(prefix) for step_id in self._running.flow.steps)

    def note_skipped(self, step_id: str, skipped: list[int]) -> None:
        """Note which branches were not begun, because another one had failed."""
        self.note_new()
        self._notes.note("step_completed", step_id=step_id, kind=VALUE, name="branches", result=skipped)


def _number(step_id: str, prefix: str) -> int:
    """The number, in a branch, of the call that a place belongs to; 0 when it belongs to another branch."""
    if not step_id.startswith(prefix):
        return 0
    rest = step_id[len(prefix) :]
    digits = len(rest) - len(rest.lstrip("0123456789"))
    return int(rest[:digits]) if digits and not rest[digits:].startswith("~") else 0
