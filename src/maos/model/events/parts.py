"""Parts that several events have in common, as plain dictionaries whose keys and types are known and checked."""

from __future__ import annotations

from enum import Enum, auto
from typing import Annotated, NotRequired, TypedDict

import msgspec

PERSON = "person"
"""The sender of messages of a person. Only programs for people send under this name, and no agent can have it."""


EXACT = "exact"
"""Marks a field that a checksum beside it covers: an event with a secret in it is refused, not changed."""


class Local(Enum):
    """What a field says of the machine that wrote it: ignored when events of two machines are compared, and replaced
    when events are imported. A field declares it with `Annotated`."""

    OWNER = auto()
    """The process that holds a lease."""
    PROCESS = auto()
    """A process id."""
    FOLDER = auto()
    """The folder that a run works in."""
    WORKSPACE = auto()
    """The worktree that the work of a run is merged into."""
    DEFINITION = auto()
    """The file that has the workflow."""
    AGENT = auto()
    """The agent of a task, which has another name in each branch and fork."""
    WORKTREE = auto()
    """The workspace of an agent."""
    HOLDER = auto()
    """The folder that the holder of an attempt keeps its files in."""
    CWD = auto()
    HOME = auto()
    MOVED_FROM = auto()
    """The folder that an agent knows, when its files have moved since."""
    SERVERS = auto()
    """Tool servers that an agent was given."""
    VARIABLES = auto()
    """Names of variables of the environment that an agent was given."""


class LocalPart(msgspec.Struct, frozen=True):
    """A part of a field of plain data that is local: `options.workspace`, or `tasks.*.agent` for that of every task."""

    path: str
    local: Local


class Owner(TypedDict, total=False):
    """The process that holds a lease, described so that another process on the same machine can see that it ended."""

    name: str
    lease: str
    token: int
    host: str
    machine: str
    """The start of the kernel and the process namespace, within which a pid and its start time name one process."""
    pid: int
    since: int
    """When the process began, in ticks since the kernel did."""


class Spent(msgspec.Struct, frozen=True, array_like=True):
    """What something cost so far."""

    cost_usd: float = 0.0
    """Reported and estimated."""
    estimated_usd: float = 0.0
    """How much of that is estimated."""
    tokens: int = 0
    """In and out."""
    unpriced_tokens: int = 0
    """Tokens of a model without a price: it cost more than `cost_usd`."""

    def plus(self, other: Spent) -> Spent:
        """Both together."""
        return Spent(
            self.cost_usd + other.cost_usd,
            self.estimated_usd + other.estimated_usd,
            self.tokens + other.tokens,
            self.unpriced_tokens + other.unpriced_tokens,
        )

    def minus(self, other: Spent) -> Spent:
        """What is more than the other."""
        return self.plus(Spent(-other.cost_usd, -other.estimated_usd, -other.tokens, -other.unpriced_tokens))


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Limits of a run that a person changes; None for one that stays as it is, 0 for none.

    Example::

        limits = maos.Limits(cost_usd=10, concurrency=8)
        print(limits.given)
    """

    cost_usd: float | None = None
    """What all its agents together may cost."""
    tokens: int | None = None
    """How many tokens they may use."""
    time_s: float | None = None
    """How long the run may take since it was started or resumed."""
    time_limit_s: float | None = None
    """How long each agent may work, unless its task or type says otherwise."""
    concurrency: int | None = None
    """How many agents work at once."""

    @property
    def given(self) -> dict[str, float]:
        """Those that change, by their names."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}


class RunVersion(TypedDict):
    """A version of a run."""

    run: str
    version: int


class RunOrigin(RunVersion):
    """The run, version and position that a run was forked from."""

    position: int


class AttemptOrigin(TypedDict):
    """The attempt, version and position whose state another attempt begins with."""

    attempt: str
    version: int
    position: int


class JoinedRun(RunVersion):
    """The run whose work became part of another one."""

    digest: str


class GivenUp(TypedDict):
    """What a rollback gives up: the version that the run had reached, and what the work since then took."""

    version: int
    spent: Spent


class WorkspaceData(TypedDict):
    """The folder that an agent works in."""

    name: str
    path: str
    tree: str
    repository: str | None
    gitdir: str | None
    base: str | None
    notes: list[str]
    file_bytes_max: int
    keep_ignored: list[str]


class ServerData(TypedDict):
    """A tool server that an agent is given: the names of its variables, never their values, and whether its tools need
    a permission."""

    name: str
    argv: list[str]
    env: list[str]
    asks: NotRequired[bool]


class PreparationData(TypedDict, total=False):
    """How the workspace of an agent was prepared before it started."""

    setup: list[list[str]]
    setup_inputs: list[str]
    setup_env: list[str]
    copy_ignored: list[str]


OrderData = TypedDict(
    "OrderData",
    {
        "task": str,
        "task_anew": NotRequired[str],
        "resume": bool,
        "cwd": Annotated[str, Local.CWD],
        "home": Annotated[str, Local.HOME],
        "model": str,
        "instructions": str,
        "turns_max": int,
        "budget_usd": float,
        "tools_allowed": list[str],
        "permission": str,
        "takes_input": bool,
        "mcp": Annotated[list[ServerData], Local.SERVERS],
        "env": Annotated[list[str], Local.VARIABLES],
        "values": NotRequired[dict[str, str]],
        "preparation": NotRequired[PreparationData],
        "project": NotRequired[list[str]],
        "project_text": NotRequired[str],
        "mcp_servers": NotRequired[list[str]],
        "argv": list[str],
        "time_limit_s": float,
        "run": NotRequired[str],
        "from": NotRequired[Annotated[str, Local.MOVED_FROM]],
    },
)
"""What an attempt is started with. `env` has the names of variables that are passed on, `values` those that were given
with their values. `task_anew` is the prompt in case its session is lost; `from` is the folder that the
agent knows, when its files have moved since."""


class Replaced(TypedDict):
    """Events that a compaction has replaced by one, with the seal of that one."""

    first: int
    last: int
    seal: str
    time_us: int
    token: int
