"""What the HTTP API returns of runs, tasks, agents, questions, points in time, states, workflow runs and problems,
besides `maos.model.read_models`, which it returns as they are. The OpenAPI document is generated from these classes.

Times end in `_us`: microseconds since 1970, 0 or null when there is none. Fields may be added; none is removed.
"""

from __future__ import annotations

from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from maos.model.read_models import (
    AgentStatus,
    AnsweredQuestion,
    ChangedField,
    Label,
    PlannedStep,
    WorkflowInfo,
)

T = TypeVar("T", bound=msgspec.Struct)


class ApiDocument(msgspec.Struct, kw_only=True):
    """A part of a response."""


def of(source: Any, kind: type[T], **given: Any) -> T:
    """Make a document of a class from an object that has its fields as attributes; `given` replaces some."""
    fields = {name: _value(getattr(source, name), hint) for name, hint in _hints(kind).items() if name not in given}
    return kind(**fields, **given)


@cache
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {name: hints[name] for name in kind.__struct_fields__}


def _value(value: Any, hint: Any) -> Any:
    """A value as a document has it: parts that are documents of this module are made from their attributes."""
    if value is None or hint is Any:
        return value
    if get_origin(hint) in (Union, UnionType):
        hint = next(each for each in get_args(hint) if each is not NoneType)
    if isinstance(hint, type) and issubclass(hint, ApiDocument):
        return of(value, hint)
    if get_origin(hint) is list:
        return [_value(each, get_args(hint)[0]) for each in value]
    if get_origin(hint) is dict:
        return {name: _value(each, get_args(hint)[1]) for name, each in value.items()}
    return value


# --- runs -------------------------------------------------------------------------------------------------------------


class RunEntry(ApiDocument):
    """A run in a list."""

    id: Label
    version: int
    request: Label
    status: Label
    """planning, running, paused, completed, failed or cancelled."""
    state: Label
    """What it does: initializing, idle, working, waiting_for_user, waiting_for_tasks, blocked, interrupted, completed,
    failed or cancelled."""
    activity: str
    error: str
    to_do: Label
    needs_person: bool
    progress: int
    """In percent."""
    tasks: dict[Label, int]
    """How many tasks have each status."""
    agents_at_work: int
    questions: int
    messages: int
    cost_usd: float
    estimated_usd: float
    tokens: int
    unpriced_tokens: int
    left_usd: float | None
    created_us: int
    updated_us: int
    ended_us: int
    until_us: int
    """When it continues by itself; 0 when it does not wait for a time."""
    created_by: Label
    stopped_by: Label
    folder: Label
    pinned: bool
    resumable: bool


class RunPage(ApiDocument):
    """Runs, open ones first, then the newest first."""

    runs: list[RunEntry]
    total: int
    next: Label | None


class CheckpointInfo(ApiDocument):
    """A version of a run that has a name."""

    name: Label
    version: int
    at_us: int
    trigger: Label


class QuestionInfo(ApiDocument):
    """Something that a person should answer."""

    ref: Label
    """Its id, for the path of an answer."""
    owner: Label
    """The run, the workflow run, or for a permission the agent, that asks."""
    run: Label
    """The run that it belongs to; empty for a workflow run, and for an agent without a run."""
    about: Label
    """What that run is about: the beginning of its request."""
    kind: Label
    """question, gate, permission, plan, workflow, or unknown, which is resolved and not answered."""
    text: str
    choices: list[str]
    meanings: list[str]
    """What each choice does, where that is known; else empty."""
    suggestions: list[str]
    """Patterns for a rule that would cover a permission."""
    context: str
    asked_by: list[Label]
    asked_us: int
    default: str | None
    expires_us: int
    tool: str
    input: Any


class QuestionList(ApiDocument):
    """Open questions, the oldest first."""

    questions: list[QuestionInfo]


class EngineInfo(ApiDocument):
    """The process that executes a run, or did last."""

    pid: int
    host: Label
    alive: bool


class ProposedPlanInfo(ApiDocument):
    """A plan that waits to be approved."""

    summary: str
    tasks: list[dict[str, Any]]


class RunDetails(RunEntry):
    """Everything about a run but its tasks, which are a list of their own."""

    summary: str
    why: str
    options: dict[str, Any]
    commit: Label
    branch: int
    origin: dict[str, Any] | None
    engine: EngineInfo | None
    limit: Label
    """The limit of its budget for which it is paused: cost_usd, tokens or time_s; empty for none."""
    restored: int
    stuck: list[Label]
    checkpoints: list[CheckpointInfo]
    pending: list[QuestionInfo]
    proposal: ProposedPlanInfo | None


class TaskInfo(ApiDocument):
    """A task of a run."""

    name: Label
    description: str
    is_command: bool
    """Whether the description is its command line, because the task has no words."""
    agent: Label
    kind: Label
    status: Label
    needs: list[Label]
    attempts: int
    tries: int
    result: str
    why: str
    failure: Label
    cost_usd: float
    estimated_usd: float
    tokens: int
    started_us: int
    ended_us: int
    worked_us: int
    """How long its agents have worked, without waiting for a person, and pauses."""
    not_before_us: int
    gates: int
    gates_passed: int
    conflict: list[str]


class TaskPage(ApiDocument):
    """Tasks of a run, in the order of its plan."""

    tasks: list[TaskInfo]
    total: int
    next: Label | None


class RunEventEntry(ApiDocument):
    """One event of a run: a version that it can be rolled back to."""

    version: int
    position: int
    type: Label
    time_us: int
    data: dict[str, Any]


class RunHistory(ApiDocument):
    """Events of a run, the oldest first."""

    events: list[RunEventEntry]
    next: Label | None


# --- agents -----------------------------------------------------------------------------------------------------------


class AgentPage(ApiDocument):
    """Agents, open ones first, then the newest first."""

    agents: list[AgentStatus]
    total: int
    next: Label | None


class AttemptInfo(ApiDocument):
    """One try of an agent."""

    number: int
    status: Label
    failure: Label
    message: str
    model: Label
    session: Label
    turns: int
    cost_usd: float
    estimated_usd: float
    planned_us: int
    started_us: int
    ended_us: int


class FileChangeInfo(ApiDocument):
    """How a file differs; the numbers of lines are null for binary files."""

    path: str
    kind: Label
    added: int | None
    removed: int | None


class AgentDetailsInfo(AgentStatus, kw_only=True):
    """Everything about an agent but its output."""

    attempts: list[AttemptInfo]
    files: list[FileChangeInfo] | None
    discoveries: list[dict[str, Any]]
    pending: list[QuestionInfo]
    state_version: int
    """The version that its state is at; 0 when it has none."""


class OutputEvent(ApiDocument):
    """Something that was recorded of an agent: lines of its output as facts, its start, its end."""

    id: Label
    attempt: int
    version: int
    type: Label
    data: dict[str, Any]
    at_us: int
    messages: dict[str, str]
    """Messages that it got with it, by number."""


class OutputPage(ApiDocument):
    """A window of what an agent did."""

    agent: Label
    attempt: int
    attempts: int
    events: list[OutputEvent]
    """In the order in which they were recorded."""
    first: int
    """The version of the first one; older ones come with `before`."""
    last: int
    """The version of the last one; newer ones come with `after`."""
    newest: int
    """The version that the attempt is at."""


class DiffInfo(ApiDocument):
    """What was changed."""

    files: list[FileChangeInfo] | None
    patch: str
    cut: bool
    """Whether the patch is longer, and was cut."""


class TaskFilesInfo(DiffInfo):
    """What the work of a task changed when it was merged with that of the others."""

    task: Label
    subject: str
    commit: Label


class TaskFilesList(ApiDocument):
    """What each task of a run changed, in the order in which their work was merged."""

    tasks: list[TaskFilesInfo]


class MergeInfo(ApiDocument):
    """What came of a merge: nothing is touched unless it is merged."""

    outcome: Literal["merged", "conflicted", "blocked"]
    branch: Label
    """The branch that has the work; empty for a HEAD that is at no branch."""
    commit: Label
    commits: int
    """How many commits were added to the branch, or would be; 0 when it had everything already."""
    files: list[str]
    why: str
    hint: Label


class SentInfo(ApiDocument):
    """A message that was recorded."""

    agent: Label
    message: int
    running: bool
    """Whether the agent runs; else it gets it when it is resumed."""


# --- messages ---------------------------------------------------------------------------------------------------------


class MessageEntry(ApiDocument):
    """A message between agents, and its status at each recipient."""

    id: Label
    sender: Label
    to: list[Label]
    type: Label
    text: str
    run: Label
    topic: Label
    reply_to: Label
    at_us: int
    by: Label
    receivers: dict[Label, Label]


class MessageList(ApiDocument):
    """The newest messages, the oldest of them first."""

    messages: list[MessageEntry]
    earlier: int
    position: int


# --- questions --------------------------------------------------------------------------------------------------------


class AnswerInfo(ApiDocument):
    """An answer that was recorded."""

    ref: Label
    answer: str
    by: Label
    running: bool
    """Whether an engine acts on it now."""


class DecisionList(ApiDocument):
    """Answers of people, the newest first."""

    decisions: list[AnsweredQuestion]


class AnswerLink(ApiDocument):
    """A link that answers one question, once."""

    url: Label
    """Relative to the address of the server."""
    expires_us: int


# --- points in time ---------------------------------------------------------------------------------------------------


class PointInfo(ApiDocument):
    """A point in time of a run."""

    run: Label
    version: int
    position: int
    time_us: int
    name: Label


class PointList(ApiDocument):
    """Checkpoints of a run, the oldest first."""

    checkpoints: list[PointInfo]


class TravelInfo(ApiDocument):
    """What a rollback or a fork does, or did."""

    run: Label
    point: PointInfo
    undo: Label
    steps: list[PlannedStep]
    commit: Label
    questions: list[str]
    stopped: list[Label]
    cost_usd: float
    notes: list[Label]
    dry_run: bool


class DifferenceInfo(ApiDocument):
    """How two points in time differ."""

    before: PointInfo
    after: PointInfo
    tasks: list[ChangedField]
    questions: list[ChangedField]
    files: list[FileChangeInfo] | None
    patch: str
    cut: bool


# --- state ------------------------------------------------------------------------------------------------------------


class StateInfo(ApiDocument):
    """The state of an agent at a version."""

    agent: Label
    version: int
    data: dict[str, Any]
    checksum: Label
    time_us: int
    source: Label
    type: Label


class StateSummaryInfo(ApiDocument):
    """An agent that has a state."""

    agent: Label
    version: int
    status: Any
    """What its state has as `status`."""
    type: Label
    """The type of its last event."""
    source: Label
    time_us: int


class StateList(ApiDocument):
    """Agents that have a state, by name."""

    agents: list[StateSummaryInfo]
    next: Label | None


class StateVersionInfo(ApiDocument):
    """A version of a state."""

    version: int
    type: Label
    time_us: int
    source: Label
    changes: int
    checksum: Label
    spans: int
    """How many versions it stands for: more than one after a compaction."""


class StateHistoryInfo(ApiDocument):
    """Versions of a state, the oldest first."""

    versions: list[StateVersionInfo]
    next: Label | None


class StateChangeInfo(ApiDocument):
    """What changed at one path."""

    path: Label
    kind: Label
    before: Any
    after: Any


class StateDiffInfo(ApiDocument):
    """How two versions differ."""

    changes: list[StateChangeInfo]


# --- workflow runs ----------------------------------------------------------------------------------------------------


class WorkflowPage(ApiDocument):
    """Workflow runs, open ones first, then the newest first."""

    workflows: list[WorkflowInfo]
    total: int
    next: Label | None


class StepInfo(ApiDocument):
    """A step of a workflow run."""

    id: Label
    kind: Label
    name: Label
    status: Label
    tries: int
    given: str
    result: Any
    error: Any
    at_us: int
    ended_us: int


class WorkflowDetails(WorkflowInfo, kw_only=True):
    """A workflow run with its steps."""

    result: Any
    step_list: list[StepInfo]


class ScheduleInfo(ApiDocument):
    """A schedule, and when it starts a workflow next."""

    name: Label
    cron: Label
    zone: Label
    workflow: Label
    next_us: int


class ScheduleList(ApiDocument):
    """All schedules."""

    schedules: list[ScheduleInfo]


# --- problems ---------------------------------------------------------------------------------------------------------


class ProblemDocument(ApiDocument):
    """What went wrong (RFC 9457)."""

    type: Label
    title: Label
    status: int
    detail: Label
    hint: Label
    """What to do about it."""
    problems: list[dict[str, Any]] = msgspec.field(default_factory=list)
    """Of a plan: everything that is wrong with it."""
