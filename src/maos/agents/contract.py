"""What a dialect is: everything maos knows about one kind of agent program.

A dialect starts nothing and stores nothing. It says what to start (`command`), turns lines into facts and replies
(`Conversation`), and knows where the program keeps its own transcript. Lines may be read again after a crash, so what
a conversation returns must be a function of its `state` and the line: replies carry ids, and a reply whose id was
accepted before is not written twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from maos.agents.values import decoded
from maos.errors import NotFound
from maos.model.events import facts
from maos.model.events.facts import Fact
from maos.tuples import NamedTuple


class Capabilities(NamedTuple):
    """What an agent of this kind can do."""

    resume: bool
    """Resumes its own session after it was killed, if the program keeps one."""
    steer: bool
    """Accepts messages while it works."""
    cost: bool
    """Reports what it costs."""
    mcp: bool
    """Can be given tools of ours."""
    permission: bool
    """Asks before it does something, and can be answered."""
    prose: bool = True
    """Its task is a prompt for a model, which can also say that it was interrupted; otherwise it gets the same task
    again, and nothing else."""
    limits_cost: bool = False
    """Stops by itself when it has cost as much as it may."""
    names_model: bool = True
    """Says which model it uses."""
    answers: bool = True
    """Reports the end of its turn; to exit before that is no success, whatever the exit code."""
    varies: bool = False
    """The kind stands for many programs, and not every one of them can do all of this."""


class AgentProgram(NamedTuple):
    """The agent's program on this machine."""

    path: Path
    version: str = ""


class McpServer(NamedTuple):
    """A set of tools for the agent: a command that speaks MCP over its standard input and output."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    is_allowed: bool = True
    """Whether its tools need no permission."""


class LaunchOrder(NamedTuple):
    """What one attempt is to do, and with what."""

    attempt: str
    task: str
    """The prompt; for a plain command, its arguments as one line of shell words."""
    session: str
    """The id of the conversation, chosen before the start (a UUID)."""
    resume: bool
    """Resume that session instead of beginning it."""
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
    """Variables of the user's environment that are passed on beside those it needs; their values are never recorded."""
    values: Mapping[str, str] = {}
    """Variables that were given with a value, which is recorded."""
    argv: Sequence[str] = ()
    """The command itself, for the kinds that run any command (shell, acp) or a function (python)."""
    task_anew: str = ""
    """The prompt in case the session turns out to be lost and the program can begin a new one at once (acp)."""
    project: Sequence[str] = ()
    """What of the project reaches the program: some of `PROJECT_SETTINGS`."""
    project_text: str = ""
    """The project's instructions, as they were when the agent started."""
    takes_input: bool = False
    """Whether a plain command (shell) is sent messages, as lines of its standard input; otherwise it has none."""

    @property
    def guidance(self) -> str:
        """The instructions, and those of the project."""
        return "\n\n".join(filter(None, (self.instructions, self.project_text)))


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
    """The facts that a line stands for, and the replies that the program must get."""

    facts: Sequence[Fact] = ()
    replies: Sequence[Reply] = ()


class Nothing(msgspec.Struct):
    """What a conversation remembers that has nothing to remember."""


S = TypeVar("S", bound=msgspec.Struct)


class Conversation(Generic[S]):
    """One conversation with a running program that prints objects of JSON. By default it accepts no input."""

    memory: type[S]
    """What it remembers between two lines."""

    def __init__(self, order: LaunchOrder, state: Mapping[str, Any] | None = None) -> None:
        self._order = order
        try:
            self._state = msgspec.convert(dict(state or {}), self.memory)
        except msgspec.ValidationError:  # of a version that kept something else: the attempt must not end for that
            self._state = self.memory()

    @property
    def is_answering(self) -> bool:
        """Whether an answer of the model is on its way; False when the program does not say so."""
        return False

    def state(self) -> Mapping[str, Any]:
        """What another process must know to interpret the next line; plain data, recorded with the facts."""
        state: dict[str, Any] = msgspec.to_builtins(self._state)
        return state

    def hear(self, line: bytes, *, stderr: bool) -> Interpreted:
        """Line 3/8: interpret one whole line (without its newline). Never raises on what a program prints."""
        if stderr:
            return Interpreted(self._aside(line))
        message = decoded(line)
        heard = None if message is None else self._understand(message, line)
        return Interpreted([facts.Unknown.of(line)]) if heard is None else heard

    def _understand(self, message: dict[str, Any], line: bytes) -> Interpreted | None:
        """The meaning of a line that is an object of JSON; None when it is not known."""
        return None

    def _aside(self, line: bytes) -> Sequence[Fact]:
        """The meaning of a line of its standard error."""
        return [facts.Diagnostic.of(line, stderr=True)]

    def say(self, id: str, text: str) -> Reply | None:
        """A message into the running conversation; None when the program cannot accept one now."""
        return None

    def answer(self, request: str, *, allow: bool, why: str = "", always: bool = False) -> Reply | None:
        """The answer to a request for permission; None when the program does not wait for it. With `always`, a program
        that offers it is told not to ask for this again."""
        return None

    def end(self) -> Reply | None:
        """What makes the program exit after its turn; None when it exits by itself."""
        return None

    def rest(self) -> Sequence[Fact]:
        """Facts that were not returned yet when the program has exited in the middle of something; returned once."""
        return ()


class Dialect(ABC):
    """One kind of agent program. By default it needs no variables and keeps no transcript."""

    kind: str
    summary: str
    capabilities: Capabilities
    variables: Sequence[str] = ()
    """Variables of the engine's environment that the program needs, such as its key; no others are passed on."""
    secret_variables: Sequence[str] = ()
    """Those of them whose values must never be written down."""
    login: str = ""
    """How a person logs in, or gives it a key, with `{program}` for what they type to start the program; empty when the
    program has no way of its own."""
    conversation: type[Conversation[Any]]

    @abstractmethod
    def find(self, environment: Mapping[str, str], order_argv: Sequence[str] = ()) -> AgentProgram:
        """The program on this machine; AgentMissing says what to install."""

    @abstractmethod
    def command(self, order: LaunchOrder, program: AgentProgram, environment: Mapping[str, str]) -> LaunchCommand:
        """What to start; writes configuration into `order.home` where the program reads it from files."""

    def converse(self, order: LaunchOrder, state: Mapping[str, Any] | None = None) -> Conversation[Any]:
        """A new conversation, or one that is resumed from a state."""
        return self.conversation(order, state)

    def transcript(self, order: LaunchOrder, session: str) -> Path | None:
        """The program's own record of the session, a file that only grows; None when it keeps none we could copy."""
        return None

    def transcript_home(self, order: LaunchOrder, session: str, name: str) -> Path:
        """Where a transcript of that file name must be put so that a resume finds it; NotFound when there is none."""
        raise NotFound(f"{self.kind} cannot store the transcript {name!r}", hint="start a new agent")


class AgentMissing(NotFound):
    """The program of an agent is not on this machine, or is too old."""
