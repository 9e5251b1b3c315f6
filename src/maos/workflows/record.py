"""What is recorded of one workflow run: looked up when its function runs again, and written when something happens.

Events are noted at once and written in order by one task, as many at a time as there are. That only one task ever
writes is what makes it safe to cancel a branch at any moment: a write that was begun is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from maos.clock import Clock
from maos.engine.recorder import Recorder
from maos.errors import Corrupt, InvalidInput, MaosError
from maos.journal.codec import Event
from maos.journal.journal import Journal
from maos.model.workflow import PATCH, VALUE, Step, WorkflowRun, stream
from maos.workflows import values
from maos.workflows.errors import WorkflowChanged
from maos.workflows.policy import CheckpointPolicy

CLOSE_S_MAX = 5.0
"""How long the last events may take when the store is away: what is lost is only that a step has ended."""


class EventBuffer:
    """The events of one workflow run on their way to the journal."""

    def __init__(self, recorder: Recorder[WorkflowRun], clock: Clock) -> None:
        self._recorder = recorder
        self._clock = clock
        self._on_trouble: Callable[[], object] = lambda: None
        self._pending: list[Event] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._written: list[asyncio.Future[None]] | None = None
        """The flushes that wait for what is being written; None when nothing is."""
        self._wake = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self.trouble: BaseException | None = None
        """Why nothing can be written any more."""
        self.version = recorder.fold.version
        """Up to which everything is on disk; the fold is ahead of it while something is being written."""

    def open(self, on_trouble: Callable[[], object]) -> None:
        """Start the task that writes; `on_trouble` is called when nothing can be written any more."""
        self._on_trouble = on_trouble
        self._writer = asyncio.create_task(self._write())

    def note(self, type_: str, /, **data: Any) -> None:
        """Have an event written with the next flush."""
        data["at_us"] = self._clock.now_us()
        self._pending.append(Event(type_, data))

    def flush_soon(self) -> None:
        """Have what is noted written, together with everything else that is noted until the writer's turn comes."""
        self._wake.set()

    async def flush(self) -> None:
        """Return when everything noted so far is on disk; several branches share one commit."""
        if self.trouble is not None:
            raise self.trouble
        if not self._pending and self._written is None:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._pending or self._written is None:
            self._waiters.append(waiter)
            self._wake.set()
        else:
            self._written.append(waiter)
        await waiter

    def give_up(self, error: MaosError) -> MaosError:
        """Let nothing more be written, whatever the function does about the error."""
        self.trouble = self.trouble or error
        self._on_trouble()
        return error

    async def close(self) -> None:
        """Write what is left, if that can be, and write no more."""
        if self.trouble is None:
            with contextlib.suppress(Exception):  # it is in `trouble`, or the store is away for long
                async with asyncio.timeout(CLOSE_S_MAX):
                    await self.flush()
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)
        for each in self._waiters:
            each.cancel()

    async def _write(self) -> None:
        while self.trouble is None:
            await self._wake.wait()
            self._wake.clear()
            while self._pending and self.trouble is None:
                await self._write_pending()

    async def _write_pending(self) -> None:
        events, self._pending = self._pending, []
        self._written, self._waiters = self._waiters, []
        try:
            await self._recorder.append(*events)
        except Exception as error:  # noqa: BLE001 - raised by every flush, now or later
            self.trouble = error
            for each in (*self._written, *self._waiters):
                if not each.done():
                    each.set_exception(error)
            self._on_trouble()
        else:
            self.version = self._recorder.fold.version
            for each in self._written:
                if not each.done():
                    each.set_result(None)
        finally:
            for each in self._written:  # cancelled: it is unknown whether the events were written
                each.cancel()
            self._written = None


class RunRecord(EventBuffer):
    """The events of one workflow run as its function needs them: those of earlier runs, and new ones."""

    def __init__(self, recorder: Recorder[WorkflowRun], journal: Journal, clock: Clock, code_before: str = "") -> None:
        super().__init__(recorder, clock)
        self.flow = recorder.fold
        self.policy = CheckpointPolicy.of(self.flow.options)
        self.unseen = set(self.flow.steps)
        """Places of calls that were made before and not again yet."""
        self.broken: WorkflowChanged | None = None
        """Set when the function made other calls than before: it goes no further."""
        self._journal = journal
        self._code_before = code_before or self.flow.code
        self._progress = float(self.flow.published.get("progress") or 0)
        self._checkpoints = len(self.flow.checkpoints)
        self._last_place = ""
        """Of the call that ended last."""
        self._checked = self.flow.version
        self._new = 0
        """How many events hold something that no step may be told of before it is on disk."""
        self._safe = 0
        """How many of these are on disk."""

    # --- calls that were made before -------------------------------------------------------------------------

    def find(self, step_id: str, kind: str, name: str, digest: str = "") -> Step | None:
        """Return the call that is recorded at this place, or None; raise Changed when it was another one."""
        call = self.flow.steps.get(step_id)
        if call is None:
            return None
        self.unseen.discard(step_id)
        if (call.kind, call.name) != (kind, name):
            raise self.changed(f"call {step_id} was the {call.kind} {call.name!r}, and is the {kind} {name!r} now")
        if digest and call.digest and call.digest != digest:
            raise self.changed(f"call {step_id}, the {kind} {name!r}, was made with other arguments before")
        return call

    def changed(self, what: str) -> WorkflowChanged:
        """Return what is raised in the function; whatever it does about it, the workflow run stops here."""
        self.broken = self.broken or WorkflowChanged(
            f"the workflow {self.flow.name} does not do what it did before: {what}",
            hint="what differs from run to run (time, chance, the outside) belongs into a step; "
            "`patched()` and versions let old ones go on after a change",
        )
        return self.broken

    # --- calls that only remember something; none of them is awaited -----------------------------------------

    def value(self, step_id: str, name: str, make: Callable[[], Any]) -> Any:
        """Return something that would be different in another run; the first one counts."""
        call = self.find(step_id, VALUE, name)
        if call is not None:
            return call.result
        made = make()
        self.note_value(step_id, name, made)
        return made

    def publish(self, step_id: str, published: Mapping[str, Any]) -> None:
        """Let other processes see values while it runs."""
        if self.find(step_id, VALUE, "publish") is not None:
            return
        said = values.plain(dict(published), "what is published")
        progress = said.get("progress", self._progress)
        if progress.__class__ not in (int, float):
            raise InvalidInput(f"progress cannot be {progress!r}", hint="it is in percent, as a number")
        self._progress = float(progress)
        self.note("step_completed", step_id=step_id, kind=VALUE, name="publish")
        self.note("workflow_published", values=said)
        self.flush_soon()

    def patched(self, prefix: str, count: int, name: str) -> bool:
        """Whether the next call of a branch is that of a patch: not if the run was past this place before the change.

        `prefix` and `count` are those of the branch: it has made so many calls.
        """
        step_id = f"{prefix}{count + 1}"
        call = self.flow.steps.get(step_id)
        if call is None and any(_number(each, prefix) > count for each in self.unseen):
            return False
        if call is not None and (call.kind, call.name) != (PATCH, name):
            return False
        self.unseen.discard(step_id)
        if call is None:
            self._new += 1
            self.note("step_completed", step_id=step_id, kind=PATCH, name=name)
        return True

    def skipped_branches(self, step_id: str) -> set[int] | None:
        """Return which of several branches were not begun because another one had failed; None if unknown yet."""
        call = self.find(step_id, VALUE, "branches")
        return None if call is None else set(call.result)

    def has_begun(self, prefix: str) -> bool:
        """Whether calls of a branch are recorded."""
        return any(step_id.startswith(prefix) for step_id in self.flow.steps)

    # --- events ----------------------------------------------------------------------------------------------

    def note_started(self, step_id: str, kind: str, name: str, **more: Any) -> None:
        """A call begins, or is made again; `more`: digest, until_us, about, inbox_version."""
        self.note("step_started", step_id=step_id, kind=kind, name=name, **more)

    def note_tried(self, step_id: str, error: BaseException, until_us: int) -> None:
        """A try of a step has failed, and the next one begins at a time."""
        self.note("step_retried", step_id=step_id, error=values.told(error), until_us=until_us)

    def note_unknown(self, step_id: str, error: BaseException | None = None) -> None:
        """Whether a step took effect is unknown."""
        self.note("step_unknown", step_id=step_id, **({} if error is None else {"error": values.told(error)}))

    def note_abandoned(self, step_id: str) -> None:
        """The function stopped waiting for a call."""
        self.note("step_abandoned", step_id=step_id)

    def note_done(self, step_id: str, *result: Any, **more: Any) -> None:
        """A call has a result, or only an end; `more`: signal and signal_version, inbox_version."""
        self.note("step_completed", step_id=step_id, **({"result": result[0]} if result else {}), **more)

    def note_failed(self, step_id: str, error: Mapping[str, Any], **more: Any) -> None:
        """A call has failed for good; `more`: inbox_version."""
        self.note("step_failed", step_id=step_id, error=error, **more)

    def note_value(self, step_id: str, name: str, made: Any) -> None:
        """Something was made that would be different in another run."""
        self._new += 1
        self.note("step_completed", step_id=step_id, kind=VALUE, name=name, result=made)

    def note_signal(self, name: str, value: Any, inbox_version: int) -> None:
        """A signal came."""
        self.note("workflow_signalled", name=name, value=value, inbox_version=inbox_version)
        self.flush_soon()

    def note_paused(self, why: str, inbox_version: int) -> None:
        """The run stops, and can be resumed."""
        self.note("workflow_paused", why=why, inbox_version=inbox_version)

    def note_changed(self, error: WorkflowChanged) -> None:
        """The run stops, because its code makes other calls than before."""
        self.note("workflow_changed", why=error.what, code=self._code_before)

    def note_ended(self, status: str, **more: Any) -> None:
        """The run has ended; `more`: its result, or the error, or why it was cancelled and inbox_version."""
        self.note("workflow_ended", status=status, **more)

    # --- when they are written -------------------------------------------------------------------------------

    def mark_new(self) -> None:
        """Note that something was noted which would be different in another run."""
        self._new += 1

    async def flush_new(self) -> None:
        """Have what chance, the clock and other processes said on disk, before a step is told of it."""
        new = self._new
        if new > self._safe:
            await self.flush()
            self._safe = max(self._safe, new)  # what other branches noted meanwhile may not be there yet
        else:
            await asyncio.sleep(0)

    async def write_outcome(self, step_id: str) -> None:
        """Have the outcome of a call written, at once or as the checkpoint policy says."""
        self._last_place = step_id
        trigger = self.policy.after_step(self._clock.steady_us())
        if trigger:
            await self.checkpoint(trigger)
        elif self.policy.every_step:
            self.flush_soon()

    async def write_question(self, step_id: str) -> None:
        """Have a question on disk, with a checkpoint if the policy wants one there."""
        if self.policy.on_gates:
            self._last_place = step_id
            await self.checkpoint("gate")
        else:
            await self.flush()

    async def checkpoint(self, trigger: str, name: str = "") -> None:
        """Have everything so far on disk, under a name, and read it back (R-1002)."""
        self._checkpoints += 1
        name = name or f"{trigger}-{self._checkpoints}"
        self.note(
            "workflow_checkpointed", name=name, trigger=trigger, step=self._last_place, progress=self._progress
        )  # fmt: skip
        await self.flush()
        until, found = self.version, self._checked
        try:
            async for record in self._journal.read(stream(self.flow.id), after=self._checked, until=until):
                found = record.version  # whose hash, and that of the one before, has been compared
            if found < until:
                name = stream(self.flow.id)
                raise Corrupt(f"{name}@{until} was written and is not there", stream=name, version=until)
        except Corrupt as error:
            raise self.give_up(error) from error
        self._checked = until


def _number(step_id: str, prefix: str) -> int:
    """The number, in a branch, of the call that a place belongs to; 0 when it belongs to another branch."""
    if not step_id.startswith(prefix):
        return 0
    rest = step_id[len(prefix) :]
    digits = len(rest) - len(rest.lstrip("0123456789"))
    return int(rest[:digits]) if digits and not rest[digits:].startswith("~") else 0
