"""The status of a workflow run: what is recorded, and whether the process that executes it is alive."""

from __future__ import annotations

from maos.engine import ownership
from maos.model import workflow as model
from maos.model.workflow import INTERRUPTED, WorkflowRun
from maos.tuples import NamedTuple

STATUSES = (*model.OPEN, INTERRUPTED, *model.ENDED)

ANSWER, RESOLVE = "answer", "resolve"


class Status(NamedTuple):
    """The status of one workflow run."""

    run: WorkflowRun
    name: str
    """One of STATUSES."""

    @classmethod
    def of(cls, run: WorkflowRun) -> Status:
        """Find out whether the process that executes a run lives, as far as this machine can tell."""
        is_interrupted = run.status == model.RUNNING and ownership.liveness(run.owner).has_ended
        return cls(run, INTERRUPTED if is_interrupted else run.status)

    @property
    def needs_resume(self) -> bool:
        """Whether it stopped without a command, and does not continue until it is resumed."""
        return self.name in (INTERRUPTED, model.CHANGED)

    @property
    def needs_person(self) -> str:
        """RESOLVE when the outcome of a step is unknown, ANSWER when it asks something; else empty."""
        if self.run.unknown and self.run.is_open:
            return RESOLVE
        is_asking = any(step.kind == model.GATE for step in self.run.waiting.values())
        return ANSWER if self.run.status == model.RUNNING and is_asking else ""

    @property
    def unknown(self) -> list[str]:
        """Ids of steps that may or may not have taken effect: recorded so, or begun by a process that has ended."""
        begun = [step_id for step_id, step in self.run.steps.items() if step.kind == model.STEP]
        interrupted = [each for each in begun if self.run.steps[each].status == model.STARTED]
        return [*self.run.unknown, *(interrupted if self.name == INTERRUPTED else ())]
