"""Events of a workflow run, in the stream `workflow/<id>`.

A step is something that the workflow's function does outside of itself; its id is its number in its branch.
"""

from __future__ import annotations

from typing import Annotated, Any

from maos.model.events.core import EventBase, event
from maos.model.events.parts import Local, LocalPart, Owner
from maos.model.status import WorkflowStatus


class WorkflowEventBase(EventBase, frozen=True, kw_only=True):
    """What all events of a workflow run have."""

    at_us: int
    inbox_version: int = 0
    """The command in its inbox that this event is the outcome of."""
    by: str = ""
    """The principal whose act or decision it is; empty for what the engine decided."""


@event("workflow_started", plain=True)
class WorkflowStarted(WorkflowEventBase, frozen=True, kw_only=True):
    """It begins."""

    name: str
    code: str
    """A digest of the definition."""
    arguments: dict[str, Any]
    owner: Annotated[Owner, Local.OWNER]
    definition: str = ""
    """The version that the author gave the definition."""
    options: Annotated[dict[str, Any], LocalPart("where", Local.DEFINITION)] = {}
    parent: str = ""


@event("workflow_claimed")
class WorkflowClaimed(WorkflowEventBase, frozen=True, kw_only=True):
    """An engine resumes it."""

    owner: Annotated[Owner, Local.OWNER]
    code: str | None = None
    overruled: int | None = None
    """Up to which version of the inbox commands to pause do not count."""


@event("workflow_signalled")
class WorkflowSignalled(WorkflowEventBase, frozen=True, kw_only=True):
    """A signal came."""

    name: str
    value: Any = None


@event("workflow_published")
class WorkflowPublished(WorkflowEventBase, frozen=True, kw_only=True):
    """It shows values to others."""

    values: dict[str, Any]


@event("workflow_checkpointed")
class WorkflowCheckpointed(WorkflowEventBase, frozen=True, kw_only=True):
    """A version got a name."""

    name: str
    trigger: str
    step: str = ""
    progress: float = 0.0


@event("workflow_paused", plain=True)
class WorkflowPaused(WorkflowEventBase, frozen=True, kw_only=True):
    """It was paused."""

    why: str = ""


@event("workflow_changed", plain=True)
class WorkflowCodeChanged(WorkflowEventBase, frozen=True, kw_only=True):
    """Its code executes other steps than those that are recorded."""

    why: str
    code: str


@event("workflow_ended", plain=True)
class WorkflowEnded(WorkflowEventBase, frozen=True, kw_only=True):
    """It is over."""

    status: WorkflowStatus
    result: Any = None
    error: dict[str, Any] | None = None
    why: str = ""


@event("workflow_retried")
class WorkflowRetried(WorkflowEventBase, frozen=True, kw_only=True):
    """A person has it executed again after it failed or was cancelled; steps with an outcome are kept."""

    steps: list[str] = []
    """Ids of the steps that begin again: nothing of their earlier tries counts."""
    overruled: int = 0
    """Up to which version of the inbox commands to pause or cancel do not count."""


@event("workflow_removed", plain=True)
class WorkflowRemoved(WorkflowEventBase, frozen=True, kw_only=True):
    """A person removed it from lists; the worktrees of its agents were removed."""


@event("workflow_compacted")
class WorkflowCompacted(WorkflowEventBase, frozen=True, kw_only=True):
    """It ended long ago and was compacted: stands for all events before."""

    workflow: Annotated[dict[str, Any], LocalPart("owner", Local.OWNER), LocalPart("options.where", Local.DEFINITION)]


class StepEventBase(WorkflowEventBase, frozen=True, kw_only=True):
    """What all events of a step have."""

    step_id: str


@event("step_started")
class StepStarted(StepEventBase, frozen=True, kw_only=True):
    """A step begins, or begins again."""

    kind: str
    name: str
    digest: str = ""
    """Of its arguments."""
    until_us: int = 0
    """When it is over, or given up."""
    about: dict[str, Any] = {}


@event("step_retried")
class StepRetried(StepEventBase, frozen=True, kw_only=True):
    """A try failed, and there will be another."""

    error: dict[str, Any] | None = None
    until_us: int = 0


@event("step_unknown")
class StepUnknown(StepEventBase, frozen=True, kw_only=True):
    """It has begun, and it is unknown whether it took effect."""

    error: dict[str, Any] | None = None


@event("step_abandoned")
class StepAbandoned(StepEventBase, frozen=True, kw_only=True):
    """The function stopped waiting for it."""


class StepEndedBase(StepEventBase, frozen=True, kw_only=True):
    """What the events have that end a step. One that begins and ends in the same event has a kind and a name."""

    kind: str = ""
    name: str = ""
    digest: str = ""


@event("step_completed")
class StepCompleted(StepEndedBase, frozen=True, kw_only=True):
    """It has a result."""

    result: Any = None
    signal: str = ""
    """The signal that it waited for."""
    signal_version: int = 0


@event("step_failed")
class StepFailure(StepEndedBase, frozen=True, kw_only=True):
    """It has raised an error."""

    error: dict[str, Any]


WorkflowEvent = (
    WorkflowStarted | WorkflowClaimed | WorkflowSignalled | WorkflowPublished | WorkflowCheckpointed
    | WorkflowPaused | WorkflowCodeChanged | WorkflowEnded | WorkflowRetried | WorkflowRemoved | WorkflowCompacted
    | StepStarted | StepRetried | StepUnknown | StepAbandoned | StepCompleted | StepFailure
)  # fmt: skip
"""Every event of a workflow run."""
