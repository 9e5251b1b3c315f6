"""What an agent's output means: the vocabulary that every dialect translates into.

Facts are what was observed, in the event `attempt_output`; sums and states are folds of them (see
`maos.model.attempt`). In JSON, `kind` says which fact it is, and what is empty is left out.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from typing import Any, Self

import msgspec


class FactBase(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", gc=False):
    """Something that was observed of an agent."""

    @property
    def data(self) -> dict[str, Any]:
        """The fact as plain data."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


TEXT_CHARS_MAX = 1 << 20
FACTS_BYTES_MAX = 8 << 20
"""What the facts of an event may take that has room for more than one of the longest."""


def shortened(fact: Fact, chars_max: int = TEXT_CHARS_MAX) -> Fact:
    """A fact without more than an event can hold: what is too long is cut, and says how much is missing."""
    changes: dict[str, Any] = {}
    for name in fact.__struct_fields__:
        value = getattr(fact, name)
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if len(text) > chars_max:
            missing = len(text) - chars_max
            changes[name] = f"{text[:chars_max]} … [{missing:,} more characters were not recorded]"
    if isinstance(fact, AgentPlan) and changes:
        changes["entries"] = [{"content": changes["entries"]}]
    if isinstance(fact, PermissionRequested) and "command" in changes:
        changes["command"] = ""  # a rule is only for a command that is known whole
    if isinstance(fact, PrintedLine) and changes:
        changes["base64"] = ""  # only all of it would be the exact bytes
    return msgspec.structs.replace(fact, **changes)


def bounded(found: Sequence[Fact]) -> list[Fact]:
    """The facts of lines that stand for more than an event can hold: texts are cut, and words and tools beyond a limit
    are left out, with a fact that says how many. What else the engine goes by is kept."""
    kept: list[Fact] = []
    size = left_out = 0
    for fact in (shortened(each, TEXT_CHARS_MAX >> 7) for each in found):
        size += len(msgspec.json.encode(fact))
        if size > FACTS_BYTES_MAX and isinstance(fact, _REPEATED):
            left_out += 1
        else:
            kept.append(fact)
    lost = [OutputLost("too much", f"{left_out:,} more facts of the output were not recorded")] if left_out else []
    return [*kept, *lost]


class SessionOpened(FactBase, frozen=True, tag="session"):
    """The agent's program says which conversation this is, and may say its model and its own version."""

    id: str = ""
    model: str = ""
    version: str = ""
    instead_of: str = ""
    """The session that was to be resumed and is lost: the agent remembers nothing of it."""
    kept: bool = False
    """Whether the program keeps the session in its home and says that it can resume it."""


class Text(FactBase, frozen=True, tag="text"):
    """Something the agent says. Texts of one message are lines of it."""

    text: str = ""
    message: str = ""
    """The id of the model's message that it is part of."""
    part: bool = False
    """Whether it continues the line of the text before it."""


class Thought(FactBase, frozen=True, tag="thought"):
    """Something the agent thinks aloud."""

    text: str = ""
    message: str = ""
    part: bool = False


class AgentPlan(FactBase, frozen=True, tag="plan"):
    """What the agent means to do, and how far it is: the whole plan, which replaces the one before."""

    entries: list[dict[str, str]] = []


class ToolUse(FactBase, frozen=True, tag="tool_use"):
    """A tool is about to run: the intent, without which an outcome would mean nothing (I31).

    A second fact with the same `id` is the same intent, better known; what it does not repeat still holds.
    """

    id: str
    name: str = ""
    input: Any = None


class ToolProgress(FactBase, frozen=True, tag="tool_progress"):
    """The whole output so far of a tool that still runs."""

    id: str = ""
    output: str = ""


class ToolResult(FactBase, frozen=True, tag="tool_result"):
    """The outcome of a tool."""

    id: str = ""
    output: str = ""
    failed: bool = False


class Usage(FactBase, frozen=True, tag="usage"):
    """Tokens of one message of the model; a second fact with the same `message` replaces the first."""

    message: str = ""
    model: str = ""
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    """How much of `cache_write` is kept for an hour, which costs more."""
    usd: float | None = None
    """What they cost by the price that maos knew when the message came; None when it knew none."""


class Cost(FactBase, frozen=True, tag="cost"):
    """What one turn cost, as the agent's program computed it: never a running total. It replaces what was estimated
    of the messages since the turn before."""

    usd: float
    turn: str = ""
    """A second fact with the same turn replaces the first."""


class QuotaWindow(FactBase, frozen=True, tag="quota"):
    """How much of what its account may use within a time the agent's program has used, as its provider says."""

    window: str
    """Its name with the provider, such as `five_hour`."""
    used: float | None = None
    """The share that is used, from 0 to 1 or a little more; None when the provider does not say."""
    reset_us: int = 0
    """When it begins anew; 0 when the provider does not say."""
    status: str = ""
    """`allowed`, `allowed_warning` or `rejected`."""


class Retry(FactBase, frozen=True, tag="retry"):
    """The agent's program tries a request to its model again, by itself."""

    attempt: int = 0
    delay_s: float = 0.0
    status: int = 0
    error: str = ""


class Trouble(FactBase, frozen=True, tag="trouble"):
    """Something that may end the attempt."""

    failure: str
    """A name from the failure table."""
    message: str = ""
    status: int = 0
    reset_us: int = 0
    traceback: str = ""
    """Where a Python function raised it."""


class PermissionRequested(FactBase, frozen=True, tag="permission_requested"):
    """The agent may not do something unless a person allows it, and waits."""

    id: str
    tool: str = ""
    input: Any = None
    options: list[Any] | None = None
    tool_use: str = ""
    """The id of the use of the tool that waits."""
    rule_tool: str = ""
    """What rules call the tool; empty when no rule can name it."""
    command: str = ""
    """The command of a shell that the tool would run, whole; empty when it runs none, or its program does not say."""
    suggestions: list[str] = []
    """Rules that the agent's program suggests."""
    rule: str = ""
    """The rule by which the engine answers it with the same append; empty when a person is asked."""


class PermissionDenied(FactBase, frozen=True, tag="permission_denied"):
    """A tool was refused by a rule of the agent's program or of its order."""

    tool: str = ""
    message: str = ""
    tool_use: str = ""
    """The id of the use of the tool, which does not run."""


class Discovery(FactBase, frozen=True, tag="discovery"):
    """A line that other agents should know of (R-104)."""

    keyword: str = ""
    text: str = ""


class TurnEnded(FactBase, frozen=True, tag="turn_ended"):
    """The agent has answered and would take another message now."""

    result: str = ""
    failed: bool = False
    reason: str = ""
    turns: int = 0
    form: str = ""
    """Of the result: `json` when it is data as JSON, `none` when there is none; empty for text."""


class PrintedLine(FactBase, frozen=True):
    """A line of output. Bytes that are not UTF-8 are shown with escapes such as `\\xff`, and kept beside it."""

    text: str = ""
    base64: str = ""
    """The exact bytes, when they are not UTF-8."""
    stderr: bool = False

    @classmethod
    def of(cls, line: str | bytes, *, stderr: bool = False) -> Self:
        """The fact that a line was printed."""
        if isinstance(line, str):
            # JSON can spell half a character, which nothing can store.
            return cls(line.encode("utf-8", "backslashreplace").decode(), stderr=stderr)
        try:
            return cls(line.decode(), stderr=stderr)
        except UnicodeDecodeError:
            exact = binascii.b2a_base64(line, newline=False).decode("ascii")
            return cls(line.decode("utf-8", "backslashreplace"), exact, stderr)

    def raw(self) -> bytes:
        """The bytes exactly as they were printed."""
        return binascii.a2b_base64(self.base64) if self.base64 else self.text.encode()


class Line(PrintedLine, frozen=True, tag="line"):
    """A line of output that is its own meaning: what a plain command prints."""


class Unknown(PrintedLine, frozen=True, tag="unknown"):
    """A line that the dialect does not understand, kept as it is."""


class Diagnostic(PrintedLine, frozen=True, tag="diagnostic"):
    """A line that the agent's program prints about itself, such as its log: not the agent's word."""


class InputReceived(FactBase, frozen=True, tag="input"):
    """The agent's program has got an input: `inbox/<version>` for a message, `permission/<request>` for an answer."""

    id: str


class Stopping(FactBase, frozen=True, tag="stopping"):
    """The holder has asked the program to end."""

    why: str


class ProcessExit(FactBase, frozen=True, tag="exit"):
    """How the agent's process ended."""

    cpu_s: float
    duration_s: float
    rss_max_bytes: int
    start_error: str | None = None
    signal: int | None = None
    code: int | None = None
    out_of_memory: bool = False


class OutputLost(FactBase, frozen=True, tag="spool"):
    """The holder could not keep all of the output."""

    what: str
    text: str = ""


Fact = (
    SessionOpened | Text | Thought | AgentPlan | ToolUse | ToolProgress | ToolResult | Usage | Cost
    | QuotaWindow | Retry | Trouble | PermissionRequested | PermissionDenied | Discovery | TurnEnded | Line | Unknown
    | Diagnostic | InputReceived | Stopping | ProcessExit | OutputLost
)  # fmt: skip
"""Every fact."""
_REPEATED = (Text, Thought, AgentPlan, ToolUse, ToolProgress, ToolResult, Usage, Discovery, PrintedLine)
"""Facts of which one line can have any number."""
