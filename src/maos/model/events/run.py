"""Events of a run, in the stream `run/<id>`. Events that are decided together are written in one append."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from maos.model.events.core import EventBase, event
from maos.model.events.parts import GivenUp, JoinedRun, Local, LocalPart, Owner, RunOrigin, RunVersion, WorkspaceData
from maos.model.status import RunStatus, TaskStatus

_WORKSPACE = LocalPart("workspace", Local.WORKSPACE)
_DEFINITION = LocalPart("workflow", Local.DEFINITION)


class RunEventBase(EventBase, frozen=True, kw_only=True):
    """What all events of a run have."""

    at_us: int
    """When it happened, in microseconds since 1970, UTC."""
    inbox_version: int = 0
    """The command in the run's inbox that this event is the outcome of."""


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


@event("run_resumed", plain=True)
class RunResumed(RunEventBase, frozen=True, kw_only=True):
    """A run that was paused or had ended is executed again."""

    retries: bool = True
    """Whether tasks that have failed are tried again; cancelled tasks are not."""


@event("run_paused", plain=True)
class RunPaused(RunEventBase, frozen=True, kw_only=True):
    """Its agents are stopped, and no more are started."""

    why: str = ""


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
    tokens: int = 0
    commit: str = ""
    """The commit that has the task's work."""
    merged: str = ""
    """The commit that has the work of all tasks that are done."""


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


@event("question_asked", plain=True)
class QuestionAsked(RunEventBase, frozen=True, kw_only=True):
    """A person should answer something. In an inbox: a command to ask."""

    id: str
    question: str
    asked_by: list[str]
    choices: list[str] = []
    context: str = ""
    default: str | None = None
    """The answer when none was given by `expires_us`."""
    expires_us: int = 0


@event("question_answered", plain=True)
class QuestionAnswered(RunEventBase, frozen=True, kw_only=True):
    """The first answer to a question. In an inbox: a command to record one."""

    id: str
    answer: str
    by: str = ""


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


@event("run_woken", plain=True)
class RunWoken(RunEventBase, frozen=True, kw_only=True):
    """A person did not want to wait for the end of a rate limit."""

    by: str = ""


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
    RunCreated | RunClaimed | RunPlanned | RunResumed | RunPaused | RunEnded | TaskStarted | TaskReleased
    | TaskGated | TaskFinished | TaskFailed | TaskStopping | TaskSkipped | TaskRetried | QuestionAsked
    | QuestionAnswered | RunCheckpointed | RunHibernated | RunWoken | RunNoteAdded | RunRestored | RunMoved
    | RunRemoved
)  # fmt: skip
"""Every event of a run."""
