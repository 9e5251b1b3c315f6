"""What resuming a workflow run would do: whether its definition fits, and what happens to calls under way."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from maos.model.workflow import AGENT, CHILD, STARTED, STEP, UNKNOWN, Step, WorkflowRun
from maos.workflows.definition import StepDefinition, Workflow
from maos.workflows.status import Status
from maos.workflows.steps import REPEAT, RETRY, decide

SAME, CHANGED, GONE = "same", "changed", "gone"


class Pending(NamedTuple):
    """A call that has begun and has no outcome."""

    step_id: str
    call: Step
    next: str
    """again: called again, as it is idempotent · probe: its probe is asked · unknown: a person is asked ·
    interrupted: one of these, as the definition of the step is not known · later: retried · settled: as a person
    has resolved it · waits: waited for · taken_up: resumed."""


class Preview(NamedTuple):
    """What resuming a workflow run would do."""

    status: Status
    definition: str
    """SAME, CHANGED since the run was last executed, or GONE."""
    is_refused: bool
    pending: list[Pending]

    @property
    def unknown(self) -> list[str]:
        """Places of steps about which a person is asked."""
        return [each.step_id for each in self.pending if each.next == "unknown"]


def preview(
    flow: WorkflowRun, definition: Workflow[..., Any] | None, on_change: str, resolved: Collection[str]
) -> Preview:
    """Preview a resume; `definition` is None if it was not found, `resolved` are the places that a person resolved."""
    state = GONE if definition is None else SAME if definition.code == flow.code else CHANGED
    is_refused = flow.is_open and (state == GONE or (state == CHANGED and on_change == "refuse"))
    pending = [
        Pending(step_id, call, "settled" if step_id in resolved else _next(call, definition))
        for step_id, call in flow.steps.items()
        if call.status in (STARTED, UNKNOWN)
    ]
    return Preview(Status.of(flow), state, is_refused, pending)


def _next(call: Step, definition: Workflow[..., Any] | None) -> str:
    if call.kind != STEP:
        return "taken_up" if call.kind in (CHILD, AGENT) else "waits"
    if call.status == UNKNOWN:
        return "unknown"
    step = None if definition is None else _step(call.name, definition)
    decision = decide(call, idempotent=step is not None and step.idempotent)
    if decision == RETRY:
        return "later"
    if step is None:
        return "interrupted"
    return "again" if decision == REPEAT else "unknown" if step.probe is None else "probe"


def _step(name: str, definition: Workflow[..., Any]) -> StepDefinition[..., Any] | None:
    """The step of a name that a workflow's function can see; None when there is not exactly one."""
    found = {id(each): each for each in definition.function.__globals__.values() if isinstance(each, StepDefinition)}
    named = [each for each in found.values() if each.name == name]
    return named[0] if len(named) == 1 else None
