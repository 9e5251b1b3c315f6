"""Parts that several events have in common, as plain dictionaries whose keys and types are known and checked."""

from __future__ import annotations

from enum import Enum, auto
from typing import Annotated, NamedTuple, NotRequired, TypedDict

PERSON = "person"
"""The sender of messages of a person. Only programs for people send under this name, and no agent can have it."""


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


class LocalPart(NamedTuple):
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
    """What a rollback gives up: the version that the run had reached, and what the work since then cost."""

    version: int
    cost_usd: float


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
    """A tool server that an agent is given: the names of its variables, never their values."""

    name: str
    argv: list[str]
    env: list[str]


OrderData = TypedDict(
    "OrderData",
    {
        "task": str,
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
        "argv": list[str],
        "time_limit_s": float,
        "run": NotRequired[str],
        "from": NotRequired[Annotated[str, Local.MOVED_FROM]],
    },
)
"""What an attempt is started with. `from` is the folder that the agent knows, when its files have moved since."""


class Replaced(TypedDict):
    """Events that a compaction has replaced by one, with the seal of that one."""

    first: int
    last: int
    seal: str
    time_us: int
    token: int
