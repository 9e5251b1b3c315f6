"""Events of an attempt, in the stream `attempt/<agent>.<number>`: one try of an agent at its task."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from maos.model.events.core import EventBase, event
from maos.model.events.facts import Fact
from maos.model.events.parts import AttemptOrigin, Local, LocalPart, OrderData, Owner, WorkspaceData
from maos.model.status import AttemptStatus


@event("attempt_planned", plain=True)
class AttemptPlanned(EventBase, frozen=True, kw_only=True):
    """It is about to be started: what is to be done, by what program, where, within which limits."""

    agent: str
    number: int
    agent_kind: str
    task: str
    """What the person asked for; `order.task` is what the agent is given."""
    session: str
    owner: Annotated[Owner, Local.OWNER]
    folder: Annotated[str, Local.HOLDER]
    """Where its holder keeps its files."""
    workspace: Annotated[WorkspaceData, Local.WORKTREE]
    inbox_cursor: int
    told: list[int] = []
    """The messages that are delivered with the task, by their versions in the inbox."""
    transcript: tuple[str, int]
    """The name of the program's own record of the conversation, and up to where it is recorded."""
    at_us: int
    order: OrderData


@event("attempt_claimed")
class AttemptClaimed(EventBase, frozen=True, kw_only=True):
    """Another engine resumes it."""

    owner: Annotated[Owner, Local.OWNER]


@event("attempt_started", plain=True)
class AttemptStarted(EventBase, frozen=True, kw_only=True):
    """Its process runs."""

    pid: Annotated[int, Local.PROCESS]
    holder_pid: Annotated[int, Local.PROCESS] = 0
    at_us: int


@event("attempt_output")
class AttemptOutput(EventBase, frozen=True, kw_only=True):
    """Its agent printed something."""

    offset: int
    """Up to where its output is recorded."""
    at_us: int
    facts: list[Fact]
    conversation: dict[str, Any] | None = None
    """The dialect's own state, when it has changed."""


@event("attempt_stopping", plain=True)
class AttemptStopping(EventBase, frozen=True, kw_only=True):
    """It is to end, on request or at a limit."""

    why: str
    inbox_version: int = 0
    at_us: int = 0


@event("attempt_answered")
class AttemptAnswered(EventBase, frozen=True, kw_only=True):
    """A person allowed or refused what it asked for."""

    request: str
    allow: bool
    why: str = ""
    inbox_version: int = 0


@event("attempt_transcript")
class AttemptTranscript(EventBase, frozen=True, kw_only=True):
    """The program's own record of the conversation has grown."""

    name: str
    from_: int = msgspec.field(name="from")
    until: int
    text: str


@event("attempt_checkpointed", plain=True)
class AttemptCheckpointed(EventBase, frozen=True, kw_only=True):
    """Its files and conversation are safe."""

    name: str
    trigger: str
    at_us: int
    session: str = ""
    commit: str | None = None


@event("attempt_branched")
class AttemptBranched(EventBase, frozen=True, kw_only=True):
    """It begins with all that the attempt of another agent had come to at some version."""

    state: Annotated[
        dict[str, Any],
        LocalPart("owner", Local.OWNER),
        LocalPart("pid", Local.PROCESS),
        LocalPart("folder", Local.HOLDER),
        LocalPart("workspace", Local.WORKTREE),
        LocalPart("moved_from", Local.MOVED_FROM),
        LocalPart("order.cwd", Local.CWD),
        LocalPart("order.home", Local.HOME),
        LocalPart("order.from", Local.MOVED_FROM),
        LocalPart("order.mcp", Local.SERVERS),
        LocalPart("order.env", Local.VARIABLES),
    ]
    origin: AttemptOrigin
    at_us: int = 0


@event("attempt_moved")
class AttemptMoved(EventBase, frozen=True, kw_only=True):
    """Its files are elsewhere now; written together with `run_moved`."""

    agent: str
    number: int
    workspace: Annotated[WorkspaceData, Local.WORKTREE]
    folder: Annotated[str, Local.HOLDER]
    cwd: Annotated[str, Local.CWD]
    home: Annotated[str, Local.HOME]


@event("attempt_ended", plain=True)
class AttemptEnded(EventBase, frozen=True, kw_only=True):
    """It is over."""

    status: AttemptStatus
    failure: str = ""
    """A name from the failure table."""
    message: str = ""
    exit: dict[str, Any] = {}
    """How its process ended."""
    reset_us: int = 0
    """When the limit that it reached ends."""
    at_us: int


AttemptEvent = (
    AttemptPlanned | AttemptClaimed | AttemptStarted | AttemptOutput | AttemptStopping | AttemptAnswered
    | AttemptTranscript | AttemptCheckpointed | AttemptBranched | AttemptMoved | AttemptEnded
)  # fmt: skip
"""Every event of an attempt."""
