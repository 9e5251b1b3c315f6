"""What the HTTP API accepts: the parameters and bodies of requests.

The OpenAPI document is generated from these classes. Parameters and fields that are not named here are refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from maos.model.access import Role, Verb

Limit = Annotated[int, Meta(ge=1, le=500, description="How many at most.")]
Id = Annotated[str, Meta(min_length=1, max_length=512)]
Text = Annotated[str, Meta(min_length=1, max_length=100_000)]
Short = Annotated[str, Meta(max_length=4_000)]
AccessScope = Annotated[
    str, Meta(min_length=1, max_length=4_096, description="store, project/FOLDER, run/ID or agent/NAME.")
]
Position = Annotated[int, Meta(ge=0, le=(1 << 62))]


class Query(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a request: others than those that are named are refused."""


class Body(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The body of a request: fields that are not named are refused."""


# --- pages ------------------------------------------------------------------------------------------------------------


class PageQuery(Query, frozen=True):
    """A page of a list."""

    limit: Limit = 50
    cursor: Annotated[str, Meta(max_length=600, description="`next` of the page before.")] = ""


# --- runs -------------------------------------------------------------------------------------------------------------


class NewTask(Body, frozen=True):
    """A task of a plan: what it says, which type of agent does it, and what it needs. It cannot name a command."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$")]
    task: Text
    agent: Annotated[str, Meta(max_length=100)] = ""
    needs: Annotated[list[str], Meta(max_length=1_000)] = []


class NewRun(Body, frozen=True):
    """What a run is to do: a request that an agent plans, tasks, or the name of a plan file on the server."""

    request: Annotated[str, Meta(max_length=100_000)] = ""
    tasks: Annotated[list[NewTask], Meta(max_length=1_000)] = []
    plan: Annotated[
        str, Meta(max_length=200, description="The name of a file in one of the folders of the setting `serve.plans`.")
    ] = ""
    variables: Annotated[dict[str, str], Meta(max_length=100)] = {}
    folder: Annotated[
        str,
        Meta(max_length=4_000, description="One of the folders of the setting `serve.folders`; by default the first."),
    ] = ""
    kind: Annotated[str, Meta(max_length=100)] = ""
    model: Annotated[str, Meta(max_length=200)] = ""
    permission: Literal["", "ask", "edits", "deny"] = ""
    concurrency: Annotated[int, Meta(ge=0, le=1_000)] = 0
    budget_usd: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    budget_tokens: Annotated[int, Meta(ge=0, le=10**15)] = 0
    approved: bool = False
    """Whether a plan that an agent makes is executed without asking."""


class MoreTasks(Body, frozen=True):
    """Tasks to add to a run."""

    tasks: Annotated[list[NewTask], Meta(min_length=1, max_length=1_000)]


class Reason(Body, frozen=True):
    """Why it is done."""

    why: Short = ""


class NewLimits(Body, frozen=True):
    """Limits of a run that change; null for one that stays as it is, 0 for none."""

    cost_usd: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    tokens: Annotated[int, Meta(ge=0, le=10**15)] | None = None
    time_s: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    time_limit_s: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    concurrency: Annotated[int, Meta(ge=0, le=1_000)] | None = None


class RetryTasks(Body, frozen=True):
    """Which failed tasks are retried; all by default."""

    tasks: Annotated[list[Id], Meta(max_length=10_000)] = []


class RunsQuery(PageQuery, frozen=True):
    """Which runs."""

    status: Annotated[str, Meta(max_length=40, description="Only those with a status or in a state.")] = ""


class TasksQuery(PageQuery, frozen=True):
    """Which tasks."""

    status: Annotated[str, Meta(max_length=40)] = ""


class AtQuery(Query, frozen=True):
    """At which point in time."""

    at: Annotated[
        str,
        Meta(max_length=200, description="A version, the name of a checkpoint, `@POSITION`, or a time; empty: now."),
    ] = ""


class HistoryQuery(PageQuery, frozen=True):
    """Which versions."""


# --- agents -----------------------------------------------------------------------------------------------------------


class OutputQuery(Query, frozen=True):
    """Which window: the newest by default."""

    attempt: Annotated[int, Meta(ge=0, le=1_000_000, description="0: the newest.")] = 0
    after: Annotated[int, Meta(ge=0, description="Those after a version, the oldest first.")] | None = None
    before: Annotated[int, Meta(ge=0, description="Those before a version, the newest of them.")] | None = None
    limit: Limit = 200
    facts_max: Annotated[
        int,
        Meta(ge=0, le=1_000_000, description="A smaller window, with about so many facts; 0: as many as there are."),
    ] = 0
    text_chars_max: Annotated[
        int, Meta(ge=0, le=1 << 21, description="Longer texts are cut, and say how much is missing; 0: none.")
    ] = 0


class AgentsQuery(PageQuery, frozen=True):
    """Which agents."""

    run: Annotated[str, Meta(max_length=512)] = ""
    open: bool = False


class NewMerge(Body, frozen=True):
    """Where the work of a run goes, and how."""

    branch: Annotated[str, Meta(max_length=200, description="Empty: the one that is checked out.")] = ""
    squash: bool = False
    """One commit for all tasks, not one for each."""
    message: Annotated[str, Meta(max_length=4_000, description="Of the one commit, if `squash` is set.")] = ""
    dry_run: bool = False


class NewMessage(Body, frozen=True):
    """A message to an agent."""

    text: Text


class AgentResumption(Body, frozen=True):
    """What an agent that is resumed is told beside what happened; a command takes nothing."""

    text: Annotated[str, Meta(max_length=100_000)] = ""


# --- messages ---------------------------------------------------------------------------------------------------------


class MessagesQuery(Query, frozen=True):
    """Which messages."""

    run: Annotated[str, Meta(max_length=512)] = ""
    agent: Annotated[str, Meta(max_length=512)] = ""
    limit: Limit = 50


# --- questions --------------------------------------------------------------------------------------------------------


class NewAnswer(Body, frozen=True):
    """The answer to a question: a choice, its number, yes or no, or a text. A permission also takes always and never,
    which make a rule."""

    answer: Text
    why: Short = ""
    scope: Literal["", "agent", "run"] = ""
    """For which agents the rule counts: the run, or for an agent without one the agent, if it is not given."""
    pattern: Short = ""
    """What the rule covers, such as `Bash(pytest *)`; exactly this command if it is not given."""


class NewAnswerLink(Body, frozen=True):
    """How long a link that answers a question counts."""

    expires_s: Annotated[float, Meta(gt=0, le=30 * 86_400)] = 86_400.0


class DecisionsQuery(Query, frozen=True):
    """How many."""

    limit: Annotated[int, Meta(ge=1, le=500)] = 100


# --- points in time ---------------------------------------------------------------------------------------------------


class NewCheckpoint(Body, frozen=True):
    """A name for the present state of a run."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]


class Rollback(Body, frozen=True):
    """To which point in time a run is rolled back: a version, a checkpoint, `@POSITION` or a time; empty: the newest
    checkpoint."""

    to: Annotated[str, Meta(max_length=200)] = ""
    without_files: bool = False
    dry_run: bool = False


class Fork(Body, frozen=True):
    """From which point in time a second run starts; empty: now."""

    at: Annotated[str, Meta(max_length=200)] = ""
    into: Annotated[str, Meta(max_length=40)] = ""
    without_files: bool = False
    dry_run: bool = False


class DiffQuery(Query, frozen=True):
    """Which points in time are compared."""

    before: Annotated[str, Meta(max_length=200)] = ""
    after: Annotated[str, Meta(max_length=200)] = ""
    other: Annotated[str, Meta(max_length=512, description="Another run that the second point belongs to.")] = ""
    patch: bool = False


class PatchQuery(Query, frozen=True):
    """Whether lines are shown."""

    patch: bool = False


# --- state ------------------------------------------------------------------------------------------------------------


class StateQuery(Query, frozen=True):
    """At which version; the newest by default."""

    version: Annotated[int, Meta(ge=0)] = 0


class StateUpdate(Body, frozen=True):
    """Fields of a state to change; null is a value."""

    changes: dict[str, Any]


class StateDiffQuery(Query, frozen=True):
    """Which versions are compared."""

    first: Annotated[int, Meta(ge=1)]
    second: Annotated[int, Meta(ge=1)]


# --- workflow runs ----------------------------------------------------------------------------------------------------


class NewSignal(Body, frozen=True):
    """A signal that a workflow run waits for, or will."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    value: Any = None


class Resolution(Body, frozen=True):
    """What came of a step whose outcome is unknown."""

    outcome: Literal["done", "failed", "again"]
    value: Any = None
    why: Short = ""


# --- everything -------------------------------------------------------------------------------------------------------


class StatisticsQuery(Query, frozen=True):
    """From when on."""

    since_us: Annotated[int, Meta(ge=0, description="0: of the last seven days.")] = 0


class EffectsQuery(Query, frozen=True):
    """Which effects."""

    id: Annotated[str, Meta(max_length=512)] = ""
    unknown: bool = False
    limit: Limit = 200


# --- credentials ------------------------------------------------------------------------------------------------------


class NewToken(Body, frozen=True):
    """A token for a program."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    role: Role = Role.VIEWER
    on: Annotated[list[AccessScope], Meta(max_length=100)] = []
    """What it is limited to, such as `run/r-1`; empty: nothing."""
    expires_s: Annotated[float, Meta(ge=0, le=315_360_000)] = 0.0


class IdentityQuery(Query, frozen=True):
    """What the caller asks about."""

    on: Annotated[str, Meta(max_length=4_096, description="store, project/FOLDER, run/ID or agent/NAME.")] = ""


class GrantsQuery(Query, frozen=True):
    """Which grants."""

    principal: Annotated[str, Meta(max_length=512, description="Only of a principal, such as `token:phone`.")] = ""
    at_us: Annotated[int, Meta(ge=0, description="As they were at a time.")] | None = None


class AccessQuery(Query, frozen=True):
    """What is asked about."""

    principal: Annotated[str, Meta(min_length=1, max_length=512)]
    verb: Annotated[str, Meta(min_length=1, max_length=40)]
    on: AccessScope = "store"
    at_us: Annotated[int, Meta(ge=0, description="As it was at a time.")] | None = None


class AuditQuery(Query, frozen=True):
    """Which entries of the audit."""

    principal: Annotated[str, Meta(max_length=512)] = ""
    on: Annotated[str, Meta(max_length=4_096)] = ""
    outcome: Literal["", "allowed", "denied", "unauthenticated"] = ""
    since_us: Annotated[int, Meta(ge=0)] = 0
    limit: Limit = 100


class NewGrant(Body, frozen=True):
    """Access for a token or an agent; with a role or with verbs."""

    principal: Annotated[str, Meta(min_length=1, max_length=512)]
    role: Literal["", "viewer", "answerer", "operator", "admin", "auditor"] = ""
    verbs: Annotated[list[Verb], Meta(max_length=20)] = []
    on: AccessScope = "store"
    expires_s: Annotated[float, Meta(ge=0, le=315_360_000)] = 0.0


class CodeQuery(Query, frozen=True):
    """The code of a link."""

    code: Annotated[str, Meta(max_length=200)] = ""


class SignInQuery(CodeQuery, frozen=True):
    """The code of a sign-in link, and the view that the page opens with."""

    to: Annotated[str, Meta(max_length=200)] = ""


class SignIn(Body, frozen=True):
    """A code of a sign-in link."""

    code: Annotated[str, Meta(min_length=1, max_length=200)]


# --- the stream -------------------------------------------------------------------------------------------------------


class StreamQuery(Query, frozen=True):
    """Which events, and from where on."""

    after: Annotated[
        int, Meta(ge=0, description="The position to continue after; the header Last-Event-ID takes precedence.")
    ] | None = None  # fmt: skip
    run: Annotated[str, Meta(max_length=512)] = ""
    agent: Annotated[str, Meta(max_length=512)] = ""
    types: Annotated[
        str, Meta(max_length=2_000, description="Types of events, separated by commas; `task_*` works.")
    ] = ""
    output: Annotated[
        str, Meta(max_length=512, description="The agent whose output is sent; `none`: of no agent; empty: of all.")
    ] = ""
    lag_max: Annotated[
        int,
        Meta(ge=0, le=10**9, description="Skip events when so many are waiting, with one event `snapshot`; 0: never."),
    ] = 0


class EventsQuery(Query, frozen=True):
    """Which events."""

    after: Position = 0
    limit: Limit = 200
    run: Annotated[str, Meta(max_length=512)] = ""
    agent: Annotated[str, Meta(max_length=512)] = ""
    types: Annotated[str, Meta(max_length=2_000)] = ""
