"""Checkpoints of a running workflow: made when its policy says so, and read back before they count (R-1002)."""

from __future__ import annotations

from maos.clock import Clock
from maos.errors import Corrupt
from maos.journal.journal import Journal
from maos.model.workflow import WorkflowRun, stream
from maos.workflows.notes import RecordWriter
from maos.workflows.policy import CheckpointPolicy


class Checkpoints:
    """When one is due, and how it is made."""

    def __init__(self, flow: WorkflowRun, notes: RecordWriter, journal: Journal, clock: Clock) -> None:
        self.policy = CheckpointPolicy.of(flow.options)
        self.progress = float(flow.published.get("progress") or 0)
        self._flow = flow
        self._notes = notes
        self._journal = journal
        self._clock = clock
        self._count = len(flow.checkpoints)
        self._place = ""
        """Of the call that ended last."""
        self._checked = flow.version

    async def ended(self, step_id: str) -> None:
        """Have the outcome of a call written, at once or as the policy says."""
        self._place = step_id
        trigger = self.policy.after_step(self._clock.steady_us())
        if trigger:
            await self.make(trigger)
        elif self.policy.every_step:
            self._notes.flush_soon()

    async def asked(self, step_id: str) -> None:
        """Have a question on disk, with a checkpoint if the policy wants one there."""
        if self.policy.on_gates:
            self._place = step_id
            await self.make("gate")
        else:
            await self._notes.flush()

    async def make(self, trigger: str, name: str = "") -> None:
        """Have everything so far on disk, under a name, and see that it can be read."""
        self._count += 1
        made = {"name": name or f"{trigger}-{self._count}", "trigger": trigger, "step": self._place}
        self._notes.note("workflow_checkpointed", **made, progress=self.progress)
        await self._notes.flush()
        until = self._notes.version
        found = self._checked
        async for record in self._journal.read(stream(self._flow.id), after=self._checked, until=until):
            found = record.version  # whose hash, and that of the one before, has been compared
        if found < until:
            name = stream(self._flow.id)
            raise Corrupt(f"{name}@{until} was written and is not there", stream=name, version=until)
        self._checked = until
