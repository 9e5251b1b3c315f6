"""What services return of runs, agents and workflow runs as data. The HTTP API sends it as it is.

A text is a `Label`, or may hold words of an agent: see `maos.web.visibility`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from maos.model.attempt import Tokens
from maos.model.question import GATE, QUESTION
from maos.model.run import GATE as GATE_ID
from maos.model.run import Run
from maos.model.status import AgentState
from maos.model.workflow import CHANGED, FAILED, INTERRUPTED

LABEL = "label"
Label = Annotated[str, Meta(extra={LABEL: True})]
"""A text that no agent wrote: an id, a name, a status, a principal, words of maos, or of a person to it."""
LabelData = Annotated[Any, Meta(extra={LABEL: True})]
"""Plain data that no agent wrote, such as the value of a setting."""


class FailureInfo(msgspec.Struct):
    """Why an attempt failed, what that means, and what to do about it."""

    name: Label
    message: str
    meaning: Label
    action: Label
    hint: Label
    reset_us: int | None
    traceback: str = ""
    """Where a Python function failed."""


class AgentStatus(msgspec.Struct, kw_only=True):
    """An agent as it is now: its newest attempt, whether its processes live, and what all its attempts took."""

    attempt: int
    status: AgentState
    failure: FailureInfo | None
    turns: int
    cost_usd: float
    """Of all its attempts: reported, and estimated from tokens where nothing is reported."""
    estimated_usd: float
    """How much of that is estimated."""
    unpriced_tokens: int
    """Tokens of a model without a price, which are not in `cost_usd`."""
    tokens: Tokens
    started_us: int
    """When its newest attempt was started; until then, when it was planned."""
    ended_us: int | None
    agent: Label
    kind: Label
    task: str
    activity: str
    output_us: int | None
    result: str
    exit: dict[str, Any]
    resumable: Label | None
    """The command that attaches to it or resumes it; None when it is done, or runs."""
    left_usd: float | None
    """What its newest attempt may still cost: of its own budget, or of its share of the run's; None without one."""
    left_s: float | None
    """How long it may still work, without waiting; None without a time limit, and when it has ended."""

    @property
    def is_open(self) -> bool:
        """Whether its attempt has no recorded end."""
        return self.status.is_open

    @property
    def since_us(self) -> int:
        """When it became what it is."""
        return self.ended_us or self.started_us


class CardState(StrEnum):
    """What an agent or a task is, for a person who looks at many."""

    WORKING = "working"
    CHECKED = "gated"
    """Its work is being checked or merged."""
    YOU = "waiting_for_you"
    """It waits for an answer of a person."""
    QUIET = "quiet"
    """It works, and has printed nothing for long."""
    STUCK = "stuck"
    """It does not continue by itself: a task that it needs has failed, or what failed a person must fix."""
    INTERRUPTED = "interrupted"
    """Its process and the engine have exited."""
    DETACHED = "detached"
    """It works, and no engine records its output yet."""
    WAITING = "waiting"
    """It has not begun, or waits for a time."""
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    STOPPED = "stopped"


class AgentCard(msgspec.Struct, kw_only=True):
    """An agent, or a task that no agent has begun."""

    agent: Label
    task: str
    """The task of a run, or what an agent without a run was told."""
    kind: Label
    state: CardState
    since_us: int
    """When it became that; 0 when that is not known."""
    until_us: int = 0
    """When it continues by itself."""
    activity: str = ""
    """Its last line, what it does now, or why it failed."""
    output_us: int = 0
    cost_usd: float = 0.0
    estimated_usd: float = 0.0
    tokens: int = 0
    tokens_per_min: float = 0.0
    usd_per_min: float = 0.0


class QuotaInfo(msgspec.Struct, frozen=True):
    """What agents of one kind have used of what their account may use within a time, as its provider said last."""

    kind: Label
    window: Label
    """Its name with the provider, such as `five_hour`."""
    used: float | None
    """The share that is used; None when the provider does not say."""
    reset_us: int
    """When it begins anew; 0 when the provider does not say."""
    status: Label
    told_us: int


class WorkflowInfo(msgspec.Struct, kw_only=True):
    """A workflow run in a list."""

    id: Label
    of: Label
    """function, or file: the run of a plan file."""
    workflow: Label
    version: Label
    status: Label
    """The recorded status; "interrupted" when it is recorded as running and its process has ended."""
    state: Label
    """The status, or "waiting_for_user" when it waits for a person."""
    why: str | None
    parent: Label | None
    steps: int
    steps_done: int
    waiting: list[Label]
    unknown: list[Label]
    file: Label | None = None
    activity: str
    is_open: bool
    error: dict[str, str] | None = None
    """The type, message and traceback of what a function raised, and the step that failed."""
    started_us: int
    changed_us: int
    ended_us: int | None

    @property
    def needs_resume(self) -> bool:
        """Whether it stopped without a command, and does not continue until it is resumed."""
        return self.status in (INTERRUPTED, CHANGED)

    @property
    def is_stopped(self) -> bool:
        """Whether it does not continue by itself, and no person stopped it."""
        return self.needs_resume or self.status == FAILED


class EffectOutcome(StrEnum):
    """What came of an effect."""

    RUNNING = "running"
    """It was begun, and the process that began it lives. Done, failed or unknown."""
    DONE = "done"
    """It was begun and has a result. For good."""
    FAILED = "failed"
    """It was begun and has an error. A step may be tried again; each try is an effect of its own in the outside."""
    UNKNOWN = "unknown"
    """It was started, and it is unknown whether it took effect. `maos workflow resolve`; an agent's prompt names it."""


class ExternalEffect(msgspec.Struct, frozen=True):
    """Something that was to happen outside."""

    by: Label
    """The attempt, or the workflow."""
    id: Label
    what: str
    given: str
    """The beginning of what it was given."""
    outcome: EffectOutcome
    said: str = ""
    """The beginning of what came of it."""
    begun_us: int = 0
    ended_us: int | None = None


class AnsweredQuestion(msgspec.Struct, frozen=True):
    """An answer of a person."""

    ref: Label
    run: Label
    agent: Label
    kind: Label
    text: str
    answer: str
    by: Label
    """The principal that answered."""
    asked_us: int
    answered_us: int


class RunMark(msgspec.Struct, frozen=True):
    """Something that happened to the run as a whole."""

    at_us: int
    version: int
    kind: Label
    text: str
    by: Label


class ChangedField(msgspec.Struct, frozen=True):
    """A task, or a question, that is not the same on both sides."""

    name: Label
    before: Label
    """Its status; empty where there is none."""
    after: Label
    said_before: str
    """Its result or answer."""
    said_after: str


class PlannedStep(msgspec.Struct, frozen=True):
    """What a rollback or a fork does with a task."""

    task: Label
    what: Label
    """kept: it was done, and stays so · continues: from where it was · begins: it had not begun · given up: it was
    planned later."""
    now: Label
    """Its status now; empty when this run does not have it."""
    then: Label
    agent: Label
    """The agent that did it, or will."""
    checkpoint: Label = ""
    """The checkpoint that its agent continues from."""
    saved_us: int = 0
    messages: int = 0
    """How many messages it gets again that it had not received."""
    remembers: bool = False
    """Whether it continues its conversation."""


class SupervisorProblem(msgspec.Struct, frozen=True):
    """Why something cannot be executed; it is tried again."""

    id: Label
    what: Label
    hint: Label
    tries: int
    again_us: int
    """When it is tried again."""


def decided(run: Run) -> list[AnsweredQuestion]:
    """The questions of a run that were answered, the newest answer first."""
    found = [
        AnsweredQuestion(
            ref=f"{run.id}/{each.id}",
            run=run.id,
            agent=each.asked_by[0] if each.asked_by else "",
            kind=GATE if each.id.startswith(GATE_ID) else QUESTION,
            text=each.question,
            answer=each.answer,
            by=each.answered_by,
            asked_us=each.asked_us,
            answered_us=each.answered_us,
        )
        for each in run.questions.values()
        if each.answer is not None
    ]
    return sorted(found, key=lambda each: -each.answered_us)
