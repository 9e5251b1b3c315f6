"""The status of workflow runs: what is recorded, whether a process executes them, and what resuming one would do."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from maos.engine.workflow_status import STATUSES as STATUSES
from maos.engine.workflow_status import Status as Status
from maos.errors import InvalidInput, NotFound
from maos.model import workflow as model
from maos.model.workflow import Step, WorkflowRun
from maos.tuples import NamedTuple
from maos.workflows.definition import StepDefinition, Workflow
from maos.workflows.steps import REPEAT, RETRY, decide

ENDED_STEP = (model.DONE, model.FAILED)
SAME, GONE = "same", "gone"


class WorkflowRetry(NamedTuple):
    """What a retry of a workflow run executes again, and what it keeps."""

    id: str
    again: list[str]
    """Ids of the steps that begin again; when there are none, the code of the workflow itself failed."""
    finished: list[str]
    """Those of them that have a result, and are executed again all the same."""
    kept: int
    """How many steps keep their outcome."""

    @classmethod
    def of(cls, run: WorkflowRun, step: str = "") -> WorkflowRetry:
        """Choose the steps; InvalidInput when the run has not failed, or when which ones is for a person to say."""
        if run.status not in (model.FAILED, model.CANCELLED):
            hint = f"`maos workflow resume {run.id}` resumes it" if run.is_open else "only one that failed is retried"
            raise InvalidInput(f"the workflow {run.id} is {run.status}, and nothing of it has failed", hint=hint)
        if run.removed_us:
            raise InvalidInput(f"{run.id} was removed", hint="start another workflow run")
        if step:
            again = model.steps_from(run, step)
            if step not in run.steps and not any(each.startswith((f"{step}:", f"{step}~")) for each in again):
                hint = f"`maos workflow show {run.id}` shows its steps"
                raise NotFound(f"{run.id} has no step {step!r}", hint=hint)
        else:
            again = model.steps_to_retry(run)
            cause = (run.error or {}).get("step", "")
            if cause in run.steps and cause not in again and run.steps[cause].status == model.FAILED:
                after = [each for each in model.steps_from(run, cause) if each != cause]
                name = run.steps[cause].name
                raise InvalidInput(
                    f"step {cause}, {name}, failed, and {run.id} executed more steps after it: {', '.join(after[:5])}",
                    hint=f"`maos retry {run.id}/{cause}` executes step {cause} and all that follow it again",
                )
        finished = [each for each in again if run.steps[each].status == model.DONE]
        return cls(run.id, again, finished, run.done - sum(run.steps[each].status in ENDED_STEP for each in again))


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
