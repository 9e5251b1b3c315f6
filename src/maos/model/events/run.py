"""Events of a run, in the stream `run/<id>`. Events that are decided together are written in one append."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from maos.model.events.core import EventBase, event
from maos.model.events.parts import (
    GivenUp,
    JoinedRun,
    Limits,
    Local,
    LocalPart,
    Owner,
    RunOrigin,
    RunVersion,
    Spent,
    WorkspaceData,
)
from maos.model.status import RunStatus, TaskStatus

_WORKSPACE = LocalPart("workspace", Local.WORKSPACE)
_DEFINITION = LocalPart("workflow", Local.DEFINITION)


class RunEventBase(EventBase, frozen=True, kw_only=True):
    """What all events of a run have."""

    at_us: int
    """When it happened, in microseconds since 1970, UTC."""
    inbox_version: int = 0
    """The command in the run's inbox that this event is the outcome of."""
    by: str = ""
    """The principal whose act or decision it is; empty for what the engine decided."""


@event("run_created", plain=True)
class RunCreated(RunEventBase, frozen=True, kw_only=True):
    """A plan was approved."""

    request: str
    folder: Annotated[str, Local.FOLDER]
    options: Annotated[dict[str, Any], _WORKSPACE, _DEFINITION]
    owner: Annotated[Owner, Local.OWNER]
    commit: str = ""
    origin: RunOrigin | None = None
    """Where it was forked from."""


@event("run_claimed", plain=True)
class RunClaimed(RunEventBase, frozen=True, kw_only=True):
    """An engine begins to execute it, or resumes it."""

    owner: Annotated[Owner, Local.OWNER]
    source: str
    """Why: `manual`, or what resumed it."""
    options: Annotated[dict[str, Any], _WORKSPACE, _DEFINITION] = {}
    """Options that count from now on."""


@event("run_planned", plain=True)
class RunPlanned(RunEventBase, frozen=True, kw_only=True):
    """Tasks are added, at the beginning or later."""

    tasks: list[dict[str, Any]]
    """Tasks as in a plan."""
    options: Annotated[dict[str, Any], _WORKSPACE, _DEFINITION] = {}
    asked_by: str = ""
    """The agent that requested them."""


@event("plan_proposed", plain=True)
class PlanProposed(RunEventBase, frozen=True, kw_only=True):
    """The planner of a run has made a plan, or a person has edited it; its tasks are added when a person approves it.
    In an inbox: a command to replace the plan with an edited one."""

    tasks: list[dict[str, Any]]
    """Tasks as in a plan."""
    summary: str = ""
    options: dict[str, Any] = {}
    """Options that the run has as soon as the plan is approved: the types of agents that the plan names."""
    by: str = ""
    """The person who edited it; empty when it is the planner's."""


@event("run_resumed", plain=True)
class RunResumed(RunEventBase, frozen=True, kw_only=True):
    """A run that was paused or had ended is executed again."""

    retries: bool = True
    """Whether tasks that have failed are tried again; cancelled tasks are not."""


@event("run_handed_over", plain=True)
class RunHandedOver(RunEventBase, frozen=True, kw_only=True):
    """No process executes it, and any engine may claim it: that of `maos serve` does."""


@event("run_paused", plain=True)
class RunPaused(RunEventBase, frozen=True, kw_only=True):
    """Its agents are stopped, and no more are started."""

    why: str = ""
    limit: str = ""
    """The limit that was reached (`cost_usd`, `tokens` or `time_s`); empty when it was paused for another reason."""


@event("run_updated", plain=True)
class RunUpdated(RunEventBase, frozen=True, kw_only=True):
    """A person has changed its limits, or how many of its agents work at once."""

    limits: Limits
    """What counts from now on."""
    before: Limits
    """What counted until then, of those that have changed."""


@event("run_ended", plain=True)
class RunEnded(RunEventBase, frozen=True, kw_only=True):
    """Nothing is left to do, or nothing can be done."""

    status: RunStatus
    summary: str = ""
    why: str = ""


class TaskEventBase(RunEventBase, frozen=True, kw_only=True):
    """What all events of a task have that end an attempt, or may."""

    task: str
    cost_usd: float = 0.0
    """What the attempt cost."""
    estimated_usd: float = 0.0
    """How much of that is estimated from tokens, and was not reported."""
    tokens: int = 0
    unpriced_tokens: int = 0
    """Tokens of a model without a price, which are not in `cost_usd`."""
    commit: str = ""
    """The commit that has the task's work."""
    merged: str = ""
    """The commit that has the work of all tasks that are done."""
    worked_us: int = 0
    """How long the agent of the attempt or of the check worked; waiting for a person does not count."""

    @property
    def spent(self) -> Spent:
        """All of it."""
        return Spent(self.cost_usd, self.estimated_usd, self.tokens, self.unpriced_tokens)


@event("task_started", plain=True)
class TaskStarted(RunEventBase, frozen=True, kw_only=True):
    """An agent begins to work on a task."""

    task: str
    number: int
    """Of the attempt."""


@event("task_released", plain=True)
class TaskReleased(TaskEventBase, frozen=True, kw_only=True):
    """An attempt has ended and the task has not: it is started again."""

    why: str = ""
    failure: str = ""
    not_before_us: int = 0
    """When it may start again."""
    counts: bool = False
    """Whether it counts as a failure; a rate limit does not."""


@event("task_gated", plain=True)
class TaskGated(TaskEventBase, frozen=True, kw_only=True):
    """The work of a task is done, and is being checked or merged."""

    passed: int
    """How many gates it has passed."""
    result: str | None = None
    failure: str = ""
    """Why a check or a merge came to no result."""
    why: str | None = None
    not_before_us: int = 0
    counts: bool = False
    resolve: str = ""
    """How a merge conflict is resolved."""
    conflict: list[str] | None = None
    """Files that cannot be merged."""


@event("task_finished", plain=True)
class TaskFinished(TaskEventBase, frozen=True, kw_only=True):
    """A task is done, and its work is merged."""

    result: str | None = None


@event("task_failed", plain=True)
class TaskFailed(TaskEventBase, frozen=True, kw_only=True):
    """A task is given up until the run is resumed."""

    failure: str
    why: str
    traceback: str = ""
    """Where its agent failed, if that is a Python function."""


@event("task_stopping", plain=True)
class TaskStopping(RunEventBase, frozen=True, kw_only=True):
    """The agent of a task is being stopped, because the task was cancelled or skipped."""

    task: str
    then: TaskStatus
    """What the task is when its agent has ended: `failed` or `skipped`."""
    why: str = ""


@event("task_skipped", plain=True)
class TaskSkipped(TaskEventBase, frozen=True, kw_only=True):
    """A task counts as done without a result; those that need it can start."""

    why: str = ""


@event("task_retried", plain=True)
class TaskRetried(RunEventBase, frozen=True, kw_only=True):
    """A failed task can be started again."""

    task: str
    changed: dict[str, Any] = {}
    """What a person changed of the task in the plan before: its `task` or its `command`."""


@event("question_asked", plain=True)
class QuestionAsked(RunEventBase, frozen=True, kw_only=True):
    """A person should answer something. In an inbox: a command to ask."""

    id: str
    question: str
    asked_by: list[str]
    choices: list[str] = []
    meanings: list[str] = []
    """What each of the choices does, in their order; empty when they speak for themselves."""
    context: str = ""
    default: str | None = None
    """The answer when none was given by `expires_us`."""
    expires_us: int = 0


@event("question_answered", plain=True)
class QuestionAnswered(RunEventBase, frozen=True, kw_only=True):
    """The first answer to a question. In an inbox: a command to record one."""

    id: str
    answer: str


@event("run_checkpointed", plain=True)
class RunCheckpointed(RunEventBase, frozen=True, kw_only=True):
    """A version of the run got a name."""

    name: str = ""
    trigger: str = ""
    commit: str = ""
    state: str = ""
    """A checksum of what the run had come to."""


@event("run_hibernated", plain=True)
class RunHibernated(RunEventBase, frozen=True, kw_only=True):
    """A kind of agent has reached its rate limit; none of that kind is started until the limit ends."""

    kind: str
    until_us: int
    why: str = ""


@event("run_blocked", plain=True)
class RunBlocked(RunEventBase, frozen=True, kw_only=True):
    """No agent of a kind can work before a person does something; none is started until the run is resumed."""

    kind: str
    failure: str
    """A name from the failure table."""
    to_do: str
    """What a person can do."""


@event("run_woken", plain=True)
class RunWoken(RunEventBase, frozen=True, kw_only=True):
    """A person did not want to wait for the end of a rate limit, or has logged in."""


@event("run_note_added", plain=True)
class RunNoteAdded(RunEventBase, frozen=True, kw_only=True):
    """Something was refused, or came from a database of the original; it changes nothing else."""

    text: str = ""
    original: dict[str, Any] = {}
    """Rows as they were in that database."""


class RunRestoredBase(RunEventBase, frozen=True, kw_only=True):
    """What all events have that give a run its whole content at once."""

    to: int
    """The version whose content the run has from now on."""
    position: int
    """The position of the journal up to which everything else counts."""
    branch: int
    state: Annotated[
        dict[str, Any],
        LocalPart("folder", Local.FOLDER),
        LocalPart("options.workspace", Local.WORKSPACE),
        LocalPart("options.workflow", Local.DEFINITION),
        LocalPart("tasks.*.agent", Local.AGENT),
    ]
    """All that the run's tasks have come to."""
    digest: str = ""


@event("run_rolled_back", plain=True)
class RunRolledBack(RunRestoredBase, frozen=True, kw_only=True):
    """A run resumes from an earlier version of itself."""

    given_up: GivenUp | None = None


@event("run_forked", plain=True)
class RunForked(RunRestoredBase, frozen=True, kw_only=True):
    """A run begins at a version of another run."""


@event("run_joined", plain=True)
class RunJoined(RunRestoredBase, frozen=True, kw_only=True):
    """What another run has done became part of it."""

    other: JoinedRun
    base: RunVersion
    """The last version that both runs have in common."""
    chosen: dict[str, str] = {}
    """Which side was chosen, by conflict."""


@event("run_changed", plain=True)
class RunFileChanged(RunRestoredBase, frozen=True, kw_only=True):
    """Its workflow file has changed, and the run continues with the new one."""

    file: str
    added: list[str] = []
    changed: list[str] = []
    removed: list[str] = []


@event("run_moved", plain=True)
class RunMoved(RunEventBase, frozen=True, kw_only=True):
    """What the run works on is in another folder now."""

    folder: Annotated[str, Local.FOLDER]
    from_: Annotated[str, Local.FOLDER] = msgspec.field(name="from")
    workspace: Annotated[WorkspaceData | None, Local.WORKSPACE] = None


@event("run_removed", plain=True)
class RunRemoved(RunEventBase, frozen=True, kw_only=True):
    """Its worktrees are removed, and lists leave it out. Its events stay."""


RunRestored = RunRolledBack | RunForked | RunJoined | RunFileChanged
RunEvent = (
    RunCreated | RunClaimed | PlanProposed | RunPlanned | RunResumed | RunHandedOver | RunPaused | RunUpdated | RunEnded
    | TaskStarted | TaskReleased | TaskGated | TaskFinished | TaskFailed | TaskStopping | TaskSkipped | TaskRetried
    | QuestionAsked | QuestionAnswered | RunCheckpointed | RunHibernated | RunBlocked | RunWoken | RunNoteAdded
    | RunRestored | RunMoved | RunRemoved
)  # fmt: skip
"""Every event of a run."""
