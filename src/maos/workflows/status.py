"""The status of workflow runs: what is recorded, whether a process executes them, and what resuming one would do."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from maos.engine import ownership
from maos.model import workflow as model
from maos.model.workflow import Step, WorkflowRun
from maos.workflows.definition import StepDefinition, Workflow
from maos.workflows.steps import REPEAT, RETRY, decide

INTERRUPTED = "interrupted"
"""Recorded as running, and the process that executed it has ended. `maos workflow resume`, or `maos workflow serve`."""
STATUSES = (*model.OPEN, INTERRUPTED, *model.ENDED)

ANSWER, RESOLVE = "answer", "resolve"
SAME, GONE = "same", "gone"


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


class PendingStep(NamedTuple):
    """A step that has begun and has no outcome."""

    step_id: str
    step: Step
    next: str
    """again: executed again, as it is idempotent · probe: its probe is asked · unknown: a person is asked ·
    interrupted: one of these, as the definition of the step is not known · later: retried · resolved: as a person
    has resolved it · waits: waited for · resumed: a child or an agent."""


class WorkflowPreview(NamedTuple):
    """What resuming a workflow run would do: whether its definition fits, and what happens to steps under way."""

    status: Status
    definition: str
    """SAME, CHANGED since the run was last executed, or GONE."""
    is_refused: bool
    pending: list[PendingStep]

    @classmethod
    def of(
        cls, run: WorkflowRun, definition: Workflow[..., Any] | None, on_change: str, resolved: Collection[str]
    ) -> WorkflowPreview:
        """Preview a resume; `definition` is None if it was not found, `resolved` are the steps a person resolved."""
        state = GONE if definition is None else SAME if definition.code == run.code else model.CHANGED
        is_refused = run.is_open and (state == GONE or (state == model.CHANGED and on_change == "refuse"))
        pending = [
            PendingStep(step_id, step, "resolved" if step_id in resolved else _next(step, definition))
            for step_id, step in run.steps.items()
            if step.status in (model.STARTED, model.UNKNOWN)
        ]
        return cls(Status.of(run), state, is_refused, pending)

    @property
    def unknown(self) -> list[str]:
        """Ids of steps about which a person is asked."""
        return [each.step_id for each in self.pending if each.next == "unknown"]


def _next(step: Step, definition: Workflow[..., Any] | None) -> str:
    if step.kind != model.STEP:
        return "resumed" if step.kind in (model.CHILD, model.AGENT) else "waits"
    if step.status == model.UNKNOWN:
        return "unknown"
    found = None if definition is None else _find_step(step.name, definition)
    decision = decide(step, idempotent=found is not None and found.idempotent)
    if decision == RETRY:
        return "later"
    if found is None:
        return "interrupted"
    return "again" if decision == REPEAT else "unknown" if found.probe is None else "probe"


def _find_step(name: str, definition: Workflow[..., Any]) -> StepDefinition[..., Any] | None:
    """The step of a name that a workflow's function can see; None when there is not exactly one."""
    found = {id(each): each for each in definition.function.__globals__.values() if isinstance(each, StepDefinition)}
    named = [each for each in found.values() if each.name == name]
    return named[0] if len(named) == 1 else None
