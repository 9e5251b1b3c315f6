"""What a dialect is: everything maos knows about one kind of agent program.

A dialect starts nothing and stores nothing. It says what to start (`command`), turns lines into facts and replies
(`Conversation`), and knows where the program keeps its own transcript. Lines may be heard again after a crash, so
what a conversation answers must be a function of its `state` and the line: replies carry ids, and a reply whose id was
accepted before is not written twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from maos.errors import NotFound
from maos.model.events.facts import Fact


class Capabilities(NamedTuple):
    """What an agent of this kind can do."""

    resume: bool
    """Goes on in its own session after it was killed."""
    steer: bool
    """Takes messages while it works."""
    cost: bool
    """Says what it costs."""
    mcp: bool
    """Can be given tools of ours."""
    permission: bool
    """Asks before it does something, and can be answered."""
    prose: bool = True
    """Its task is words for a model, so it can be told in words that it was interrupted; otherwise it is given the
    same task again, and nothing else."""
    answers: bool = True
    """Says when it has answered; to end before that is no success, whatever the exit code."""


class AgentProgram(NamedTuple):
    """The agent's program on this machine."""

    path: Path
    version: str = ""


class McpServer(NamedTuple):
    """A set of tools for the agent: a command that speaks MCP over its standard input and output."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]


class LaunchOrder(NamedTuple):
    """What one attempt is to do, and with what."""

    attempt: str
    task: str
    """The prompt; for a plain command, its arguments as one line of shell words."""
    session: str
    """The id of the conversation, chosen before the start (a UUID)."""
    resume: bool
    """Go on in that session instead of beginning it."""
    cwd: Path
    home: Path
    """A private folder of this agent for the program's configuration and transcripts; the same for all its attempts."""
    model: str = ""
    instructions: str = ""
    """Added to what the program tells its model of itself (a role, rules)."""
    turns_max: int = 0
    budget_usd: float = 0.0
    tools_allowed: Sequence[str] = ()
    """Tools that need no permission; names are the program's own."""
    permission: str = "ask"
    """What happens with the others: `ask` a person, `edits` lets it change files of its workspace, `deny`."""
    mcp: Sequence[McpServer] = ()
    env: Mapping[str, str] = {}
    """Variables given to the program beside those it needs, by choice of the user."""
    argv: Sequence[str] = ()
    """The command itself, for the kinds that run any command (shell, acp) or a function (python)."""
    task_anew: str = ""
    """The prompt in case the session turns out to be lost and the program can begin a new one at once (acp); without
    it, that is trouble of the kind session_missing."""
    takes_input: bool = False
    """Whether a plain command (shell) is sent messages, as lines of its standard input; otherwise it has none."""


class LaunchCommand(NamedTuple):
    """What to start."""

    argv: Sequence[str]
    env: Mapping[str, str]
    """The whole environment: nothing else is inherited."""
    first_input: bytes = b""
    keeps_input_open: bool = False
    """Whether more input may follow; otherwise the input ends after the first."""
    secrets: Mapping[str, str] = {}
    """Values that must never be written down, by the name that is put in their place."""


class Reply(NamedTuple):
    """Bytes for the program's input, with an id that keeps them from being written twice."""

    id: str
    data: bytes
    closes: bool = False


class Interpreted(NamedTuple):
    """What a line meant, and what the program must be told because of it."""

    facts: Sequence[Fact] = ()
    replies: Sequence[Reply] = ()


class Conversation(Protocol):
    """One conversation with a running program."""

    def state(self) -> Mapping[str, Any]:
        """The little that another process must know to go on hearing; plain data, recorded with what was heard."""
        ...

    def hear(self, line: bytes, *, stderr: bool) -> Interpreted:
        """Line 3/8: the meaning of one whole line (without its newline). Never raises on what a program prints."""
        ...

    def say(self, id: str, text: str) -> Reply | None:
        """A message into the running conversation; None when it cannot take one now."""
        ...

    def answer(self, request: str, *, allow: bool, why: str = "") -> Reply | None:
        """The answer to a permission that was asked for; None when nobody waits for it."""
        ...

    def end(self) -> Reply | None:
        """What lets the program finish after its turn; None when it ends by itself."""
        ...

    def rest(self) -> Sequence[Fact]:
        """What was heard and not told yet, once the program has ended in the middle of it; told once."""
        ...


class Dialect(Protocol):
    """One kind of agent program."""

    kind: str
    summary: str
    capabilities: Capabilities
    variables: Sequence[str]
    """Variables of the engine's environment that the program needs, such as its key; no others are passed on."""
    secret_variables: Sequence[str]
    """Those of them whose values must never be written down."""

    def find(self, environment: Mapping[str, str], order_argv: Sequence[str] = ()) -> AgentProgram:
        """The program on this machine; AgentMissing says what to install."""
        ...

    def command(self, order: LaunchOrder, program: AgentProgram, environment: Mapping[str, str]) -> LaunchCommand:
        """What to start; writes configuration into `order.home` where the program wants files."""
        ...

    def converse(self, order: LaunchOrder, state: Mapping[str, Any] | None = None) -> Conversation:
        """A new conversation, or one taken up again from a state."""
        ...

    def transcript(self, order: LaunchOrder, session: str) -> Path | None:
        """The program's own record of the session, a file that only grows; None when it keeps none we could copy."""
        ...

    def transcript_home(self, order: LaunchOrder, session: str, name: str) -> Path:
        """Where a transcript of that file name must be put so that a resume finds it."""
        ...


class AgentMissing(NotFound):
    """The program of an agent is not on this machine, or is too old."""
