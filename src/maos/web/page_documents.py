"""What the page reads besides: runs and agents at a glance, the timeline and a past moment of a run, what can start."""

from __future__ import annotations

from typing import Any

from maos.model.read_models import AgentCard, AgentStatus, Label, QuotaInfo, RunMark
from maos.web.documents import ApiDocument, FileChangeInfo, PointInfo, RunDetails, RunEntry, TaskInfo


class RunCardInfo(RunEntry):
    """A run at a glance, with its agents."""

    strip: Label
    """One letter for each task, in the order of the plan: w waits, r works, y waits for you, b is stuck, d is done,
    x failed, s was skipped."""
    states: dict[Label, int]
    cards: list[AgentCard]
    tokens_per_min: float
    usd_per_min: float
    output_us: int


class FleetInfo(ApiDocument):
    """All runs and agents at a glance."""

    runs: list[RunCardInfo]
    agents: list[AgentCard]
    """Agents without a run that are at work."""
    recent: list[RunEntry]
    """Runs that ended within a day."""
    ended: int
    recent_agents: list[AgentStatus]
    """Agents without a run that ended within a day."""
    quotas: list[QuotaInfo]
    """Windows of the accounts that agents use, as far as their programs tell, the fullest first."""


class TimelineTask(ApiDocument):
    """A task on the time axis."""

    name: Label
    needs: list[Label]
    status: Label
    spans: list[tuple[int, int, Label]]
    """When it was worked on: start, end (0: still), and the status that it came to."""


class TimelineInfo(ApiDocument):
    """A run on a time axis."""

    tasks: list[TimelineTask]
    """At most some hundred: those with most to tell."""
    total: int
    left_out: dict[Label, int]
    """How many tasks are not among them, by what their names have in common: names without digits at their ends."""
    cost: list[list[float]]
    """The money and tokens that ended attempts had taken by each time: time, money, tokens."""
    marks: list[RunMark]
    begin_us: int
    end_us: int
    """Until when it is known: now, or when it ended."""


class DiscoveryList(ApiDocument):
    """What the agents of a run have found, each with its task, the oldest first."""

    discoveries: list[dict[str, Any]]


class StartChoices(ApiDocument):
    """What a run can be started with."""

    folders: list[Label]
    plans: list[Label]
    kinds: list[Label]
    kind: Label
    """The kind that agents have unless another one is chosen."""
    executes: bool


class AgentThen(ApiDocument):
    """The agent of a task that had begun at a point in time."""

    agent: Label
    task: Label
    status: Label
    activity: str
    attempt: int
    version: int
    """Its output up to then: `before` this version plus one."""


class Said(ApiDocument):
    """A message that had been sent by then."""

    sender: Label
    to: list[Label]
    type: Label
    text: str
    at_us: int


class MomentInfo(ApiDocument):
    """A run as it was at a point in time."""

    point: PointInfo
    run: RunDetails
    tasks: list[TaskInfo]
    agents: list[AgentThen]
    messages: list[Said]
    """The newest of them."""
    files: list[FileChangeInfo] | None


class ServerEntry(ApiDocument):
    """A server that executes the runs of the database, and may be alive."""

    url: Label
    """Where it is reached; empty for one without HTTP."""
    host: Label
    pid: int
    started_us: int


class StoreInfo(ApiDocument):
    """How large everything is, and what a check of it says."""

    version: Label
    versions: dict[Label, Label]
    """Of maos and of what it stands on: Python, and SQLite for a database that is a file."""
    servers: list[ServerEntry]
    database: Label
    bytes: int
    position: int
    runs: int
    agents: int
    workflows: int
    findings: list[dict[Label, Label]]
