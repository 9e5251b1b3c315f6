"""What is recorded of one workflow run: looked up when its function runs again, and written when something happens.

Events are added at once and written in order by one task, as many at a time as there are. Because only one task ever
writes, a branch can be cancelled at any time: a write that has begun is completed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta

from maos.clock import MICROSECONDS, Clock
from maos.engine.recorder import Recorder
from maos.engine.streams import WORKFLOW_RUN
from maos.errors import Corrupt, InvalidInput, MaosError, NotFound
from maos.journal.journal import Append, Journal
from maos.model.events import workflow as events
from maos.model.events.parts import Replaced
from maos.model.events.state import Compacted
from maos.model.workflow import VALUE, Step, WorkflowChanged, WorkflowRun, stream
from maos.settings.schema import CheckpointSettings, Frequency
from maos.store import chain
from maos.store.contract import Replacement

CLOSE_S_MAX = 5.0
"""How long the last events may take while the store is unavailable: only the end of a step could be lost."""
NAP_S_MAX = 5.0
"""How long a sleeper sleeps before it looks at the clock again, which may be set meanwhile."""
FREQUENCIES: tuple[str, ...] = get_args(Frequency)


async def find_run(journal: Journal, id: str) -> WorkflowRun:
    """Return a workflow run by its id; raise NotFound when there is none."""
    found = await WORKFLOW_RUN.load(journal, id)
    if found is None:
        raise NotFound(f"there is no workflow {id!r}", hint="`maos workflow list` lists them")
    return found


async def until(clock: Clock, time_us: int) -> None:
    """Wait until the clock shows a time."""
    while (left_us := time_us - clock.now_us()) > 0:  # noqa: ASYNC110 - no clock calls back
        await asyncio.sleep(min(left_us / MICROSECONDS, NAP_S_MAX))


class CheckpointPolicy(msgspec.Struct, forbid_unknown_fields=True):
    """When outcomes are written, and when a checkpoint is made (R-1002): after every step by default.

    With any other policy the outcomes of idempotent steps are written in groups; after a crash those of the last group
    are executed again. A step that is not idempotent is always recorded before it begins and when it has ended.
    """

    frequency: Frequency = "every_step"
    every: Annotated[int, Meta(ge=1)] = 10
    interval_s: Annotated[float, Meta(gt=0)] = 30.0
    enabled: bool = True

    def __post_init__(self) -> None:
        if not self.enabled:
            self.frequency = "manual"

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> CheckpointPolicy:
        """The policy that a workflow run was started with."""
        given = options.get("checkpoints", {})
        try:
            return msgspec.convert(given, cls)
        except msgspec.ValidationError as error:
            hint = f"use {', '.join(cls.__struct_fields__)}; a frequency is {', '.join(FREQUENCIES)}"
            raise InvalidInput(f"checkpoints cannot be {given!r}: {error}", hint=hint) from error

    @staticmethod
    def as_set(checkpoint: CheckpointSettings) -> dict[str, Any]:
        """The policy in the settings, as a workflow run records it; empty when it is the default."""
        found = {"every": checkpoint.steps, "interval_s": checkpoint.interval_s, "frequency": checkpoint.frequency}
        if not checkpoint.enabled:
            found["frequency"] = "manual"
        return {} if found["frequency"] == "every_step" else found

    @property
    def every_step(self) -> bool:
        """Whether an outcome is on disk before anything else begins."""
        return self.frequency == "every_step"

    def due(self, steps: int, passed_us: int) -> str:
        """Why a checkpoint is due after so many steps, and so long after the last one; empty when none is."""
        if self.frequency == "every_n_steps" and steps % self.every == 0:
            return "steps"
        return "time" if self.frequency == "time_based" and passed_us >= self.interval_s * MICROSECONDS else ""


class RunRecord:
    """The events of one workflow run as its function needs them: those of earlier executions, and new ones on their way
    to the journal."""

    def __init__(self, recorder: Recorder[WorkflowRun], clock: Clock, code_before: str | None = None) -> None:
        self.run = recorder.fold
        self.code_before = self.run.code if code_before is None else code_before
        """The digest of the definition that it was executed with before this one."""
        self.policy = CheckpointPolicy.of(self.run.options)
        self.unseen = set(self.run.steps)
        """Ids of recorded steps that this execution has not come to yet."""
        self.broken: WorkflowChanged | None = None
        """Set when the function executed other steps than before: it executes no more."""
        self.progress = float(self.run.published.get("progress") or 0)
        """As last published, in percent."""
        self._checkpoints = len(self.run.checkpoints)
        self._steps = 0
        self._saved_us = clock.steady_us()
        """When this execution began, or a checkpoint was last due."""
        self._last_step = ""
        """The id of the step that ended last."""
        self._checked = self.run.version
        self._fresh = 0
        """How many events have to be on disk before a step depends on what is in the last of them."""
        self._recorder = recorder
        self.codec = recorder.journal.codec
        self.clock = clock
        self._on_trouble: Callable[[], object] = lambda: None
        self._pending: list[events.WorkflowEvent] = []
        self._added = 0
        self._written = 0
        """How many of the events that were added are on disk."""
        self._advanced = asyncio.Event()
        """Set when more are on disk, or no more will be; then replaced by a new one."""
        self._is_closed = False
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

    def add(self, event: Callable[..., events.WorkflowEvent], /, **fields: Any) -> None:
        """Have an event that happens now written with the next flush: its class, and its fields."""
        self._pending.append(event(at_us=self.clock.now_us(), **fields))
        self._added += 1

    def flush_soon(self) -> None:
        """Have what was added written, together with everything else that is added until the writer's turn comes."""
        self._wake.set()

    async def flush(self) -> None:
        """Return when everything added so far is on disk; several branches share one commit."""
        self.check()
        needed = self._added
        while self._written < needed:
            if self._pending:
                self._wake.set()
            await self._advanced.wait()
            if self._written < needed:
                self.check()
                if self._is_closed:
                    raise asyncio.CancelledError

    def check(self) -> None:
        """Raise why nothing can be written any more, if that is so."""
        if self.trouble is not None:
            raise self.trouble

    def give_up(self, error: MaosError) -> MaosError:
        """Let nothing more be written, whatever the function does about the error."""
        self.trouble = self.trouble or error
        self._on_trouble()
        return error

    async def close(self) -> None:
        """Write what is left, if the store accepts it, and write no more."""
        if self.trouble is None:
            with contextlib.suppress(Exception):  # it is in `trouble`, or the store stays unavailable
                async with asyncio.timeout(CLOSE_S_MAX):
                    await self.flush()
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)
        self._is_closed = True
        self._advance()

    async def _write(self) -> None:
        while self.trouble is None:
            await self._wake.wait()
            self._wake.clear()
            while self._pending and self.trouble is None:
                pending, self._pending = self._pending, []
                try:
                    await self._recorder.append(*pending)
                except Exception as error:  # noqa: BLE001 - raised by every flush, now or later
                    self.trouble = error
                    self._on_trouble()
                else:
                    self.version = self._recorder.fold.version
                    self._written += len(pending)
                self._advance()

    def _advance(self) -> None:
        self._advanced.set()
        self._advanced = asyncio.Event()

    # --- steps of earlier executions -------------------------------------------------------------------------

    def find(self, step_id: str, kind: str, name: str, digest: str = "") -> Step | None:
        """Return the step that is recorded under an id, or None; raise WorkflowChanged when it was another one."""
        step = self.run.steps.get(step_id)
        if step is None:
            return None
        self.unseen.discard(step_id)
        if (step.kind, step.name) != (kind, name):
            raise self.changed(f"step {step_id} was the {step.kind} {step.name!r}, and is the {kind} {name!r} now")
        if digest and step.digest and step.digest != digest:
            raise self.changed(f"step {step_id}, the {kind} {name!r}, was given other arguments before")
        return step

    def changed(self, what: str) -> WorkflowChanged:
        """Return the error to raise in the function; even if the function catches it, the run stops here."""
        self.broken = self.broken or WorkflowChanged(
            f"the workflow {self.run.name} does not do what it did before: {what}",
            hint="what differs between executions (time, random values, external data) belongs in a step; "
            "`patched()` and versions let older runs continue after a change",
        )
        return self.broken

    # --- when they are written -------------------------------------------------------------------------------

    def add_value(self, step_id: str, name: str, made: Any) -> None:
        """A value was made that would differ in another execution."""
        self.add(events.StepCompleted, step_id=step_id, result=made, kind=VALUE, name=name)
        self.mark_new()

    def mark_new(self) -> None:
        """Note that the last event that was added would differ in another execution."""
        self._fresh = self._added

    async def flush_new(self) -> None:
        """Have what chance, the clock and other processes said on disk, before a step depends on it."""
        if self._written < self._fresh:
            await self.flush()
        else:
            await asyncio.sleep(0)

    async def write_outcome(self, step_id: str) -> None:
        """Have the outcome of a step written, at once or as the checkpoint policy says."""
        self._last_step = step_id
        self._steps += 1
        now_us = self.clock.steady_us()
        if trigger := self.policy.due(self._steps, now_us - self._saved_us):
            self._saved_us = now_us
            await self.checkpoint(trigger)
        elif self.policy.every_step:
            self.flush_soon()

    async def write_question(self, step_id: str) -> None:
        """Have a question on disk, with a checkpoint if the policy makes one there."""
        if self.policy.frequency == "on_gates":
            self._last_step = step_id
            await self.checkpoint("gate")
        else:
            await self.flush()

    async def checkpoint(self, trigger: str, name: str = "") -> None:
        """Have everything so far on disk, under a name, and read it back (R-1002)."""
        self._checkpoints += 1
        name = name or f"{trigger}-{self._checkpoints}"
        step, progress = self._last_step, self.progress
        self.add(events.WorkflowCheckpointed, name=name, trigger=trigger, step=step, progress=progress)
        await self.flush()
        until, found = self.version, self._checked
        try:
            async for record in self._recorder.journal.read(stream(self.run.id), after=self._checked, until=until):
                found = record.version  # whose hash, and that of the one before, has been compared
            if found < until:
                name = stream(self.run.id)
                raise Corrupt(f"{name}@{until} was written and is not there", stream=name, version=until)
        except Corrupt as error:
            raise self.give_up(error) from error
        self._checked = until


async def compact(journal: Journal, run: WorkflowRun) -> int:
    """Replace the events of a run that has ended by one that has its result; return how many were removed."""
    name = stream(run.id)
    last = await journal.event(name, run.version)
    assert last is not None
    kept = msgspec.to_builtins(msgspec.structs.replace(run, steps={}, signals={}, version=0))
    raw = journal.codec.encode_sealed(events.WorkflowCompacted(workflow=kept, at_us=run.changed_us))
    seal = Replaced(first=1, last=run.version, seal=chain.seal(*raw).hex(), time_us=last.time_us, token=last.token)
    compacted = Compacted(ops=[], replaced=[seal], meta={"strategy": "workflow"})
    await journal.append_all(
        [Append(name, [compacted], run.version)],
        documents=[WORKFLOW_RUN.nothing(run.id, run.version)],
        replacing=[Replacement(name, 1, run.version, raw)],
    )
    return run.version - 1
