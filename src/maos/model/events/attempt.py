"""Events of an attempt, in the stream `attempt/<agent>.<number>`: one try of an agent at its task."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from maos.model.events.core import EventBase, event
from maos.model.events.facts import Discovery, Fact
from maos.model.events.parts import AttemptOrigin, Local, LocalPart, OrderData, Owner, WorkspaceData
from maos.model.status import AttemptStatus


class OpenTool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool that was about to run."""

    name: str = ""
    input: Any = None
    waits: bool = False
    """Whether it waits for a permission, and so has had no effect."""


class Earlier(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the earlier attempts of an agent have come to, as the agent is told with its task."""

    unknown: dict[str, OpenTool] = {}
    """Tools that started and whose outcome is unknown. The agent is told of them until a turn has ended well that began
    with this list: only then it has certainly read it."""
    unknown_more: int = 0
    """How many more such tools there were before these."""
    tools_done: int = 0
    discoveries: list[Discovery] = []
    last_text: str = ""
    answers_promised: list[str] = []
    """Questions to a person whose answers it was told to wait for, by their ids."""


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
    earlier: Earlier | None = None
    """What its agent is told of the attempts before it; none of the first attempt."""
    session_kept: bool = False
    """Whether the session is to be found in the home of the program, which keeps it itself."""
    at_us: int
    order: OrderData
    by: str = ""
    """The principal of the engine that starts it."""
    proof: str = ""
    """The SHA-256, in hex digits, of the secret that the agent's process has to prove that it is this attempt."""


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


@event("attempt_output", is_clean=True)
class AttemptOutput(EventBase, frozen=True, kw_only=True):
    """Its agent printed something. The holder has removed secrets from it."""

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
    by: str = ""
    """The principal that requested it; empty for a limit."""
    inbox_version: int = 0
    at_us: int = 0


@event("attempt_answered")
class AttemptAnswered(EventBase, frozen=True, kw_only=True):
    """A person, or a rule that a person made, allowed or refused what it asked for."""

    request: str
    allow: bool
    why: str = ""
    by: str = ""
    """The principal that answered, or made the rule; empty for a rule of its type, its task or its options."""
    rule: str = ""
    """The rule that answered; empty when a person did."""
    rule_id: str = ""
    """Its id; empty for one of its type, its task or its options."""
    always: bool = False
    """Whether its program is told not to ask for this again, in its own session."""
    inbox_version: int = 0
    at_us: int = 0


@event("attempt_limited")
class AttemptLimited(EventBase, frozen=True, kw_only=True):
    """Its time limit has changed."""

    time_limit_s: float
    """How long its agent may work, from its start; 0 for no limit."""
    at_us: int


@event("attempt_transcript", is_clean=True)
class AttemptTranscript(EventBase, frozen=True, kw_only=True):
    """The program's own record of the conversation has grown. `maos.engine.transcripts` has removed secrets from it."""

    name: str
    from_: int = msgspec.field(name="from")
    until: int
    text: str
    left_out: int = 0
    """How many bytes are not in the text: those of a line that is longer than an event can hold."""


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
    | AttemptLimited | AttemptTranscript | AttemptCheckpointed | AttemptBranched | AttemptMoved | AttemptEnded
)  # fmt: skip
"""Every event of an attempt."""
