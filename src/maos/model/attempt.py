"""One try of one agent at one task, folded from the events of its stream.

The stream `attempt/<agent>.<n>` is written by the one engine that holds the attempt's lease. Commands and
messages of other processes are appended to `inbox/<agent>`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import add
from typing import Any, assert_never

import msgspec

from maos.errors import InvalidInput
from maos.model.events import attempt as events
from maos.model.events import facts
from maos.model.events.facts import Line
from maos.model.events.parts import PERSON, AttemptOrigin, Owner
from maos.model.failure import TABLE
from maos.model.status import AttemptStatus

OPEN = (AttemptStatus.PLANNED, AttemptStatus.RUNNING, AttemptStatus.STOPPING)

DISCOVERIES_KEPT = 50
FORMAT = 2
TOOL_CHARS_MAX = 300
RESULT_CHARS_MAX = 4000
ROLLED_BACK = (
    "The run you are part of was rolled back to an earlier point in time, and you continue from there. Your files are "
    "as they were then, in a folder of your own: {folder}. Work there, whatever other folder you remember. What you or "
    "others did after that time is no longer part of the run."
)
MOVED = (
    "Your files were moved meanwhile: what was in {before} is now in {folder}. Work there, whatever other folder you "
    "remember."
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def stream(attempt: str) -> str:
    """The stream of an attempt."""
    return f"attempt/{attempt}"


def attempt_id(agent: str, number: int) -> str:
    """The name of an agent's n-th attempt."""
    return f"{agent}.{number}"


def agent_of(attempt: str) -> str:
    """The agent whose attempt this is."""
    return attempt.rpartition(".")[0]


def check_agent(name: str) -> str:
    """The name itself if an agent that runs can have it: it also names folders and git refs."""
    if not _NAME.fullmatch(name) or ".." in name or name.endswith((".", ".lock")) or name == PERSON:
        raise InvalidInput(
            f"{name!r} cannot name an agent that runs", hint="use up to 64 letters, digits, dots, dashes, underscores"
        )
    return name


def check_run(id: str) -> str:
    """The id itself if a run can have it. None has a dot: what is before one is whose agent it is."""
    if "." in id:
        raise InvalidInput(f"{id!r} cannot name a run", hint="leave out the dots: names with one are those of agents")
    return check_agent(id)


class Tokens(msgspec.Struct):
    """Tokens that a model took in and gave out."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(*map(add, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))


class AttemptCheckpoint(msgspec.Struct):
    """A point to go back to: a place in the attempt's stream, and the few things outside the journal."""

    name: str
    version: int
    trigger: str
    at_us: int
    commit: str | None = None
    session: str = ""


class OpenTool(msgspec.Struct, frozen=True):
    """A tool that was about to run."""

    name: str = ""
    input: Any = None


class Permission(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that an agent waits to be allowed to do, and the answer that was given and has not reached it."""

    id: str
    tool: str = ""
    input: Any = None
    options: list[Any] | None = None
    allow: bool | None = None
    """None as long as there is no answer."""
    why: str = ""

    @property
    def is_open(self) -> bool:
        """Whether there is no answer."""
        return self.allow is None


class Attempt(msgspec.Struct, kw_only=True):
    """What is known of an attempt: a fold of its events, and nothing that is not in them."""

    id: str
    version: int = 0
    """How many events of the stream are folded in."""
    status: AttemptStatus = AttemptStatus.PLANNED
    agent: str = ""
    number: int = 0
    kind: str = ""
    task: str = ""
    order: dict[str, Any] = {}
    """What was asked for, as recorded before the start."""
    owner: Owner = {}
    """The engine that runs it: who, which process, on which machine."""
    folder: str = ""
    """Where its holder keeps its files."""
    session: str = ""
    workspace: dict[str, Any] = {}
    pid: int = 0
    offset: int = 0
    """Up to where the output is recorded."""
    conversation: dict[str, Any] | None = None
    """The dialect's own state."""
    model: str = ""
    planned_us: int = 0
    started_us: int = 0
    output_us: int = 0
    ended_us: int = 0
    turns: int = 0
    in_turn: bool = True
    lines: int = 0
    last_text: str = ""
    speech_id: str = ""
    speech: str = ""
    """The message of the model that was last received in this turn, as far as it was received."""
    result: str = ""
    tools_open: dict[str, OpenTool] = {}
    """Intents without an outcome: if the attempt has ended, it is unknown whether they took effect (I31)."""
    tools_done: int = 0
    activity: str = ""
    permissions: dict[str, Permission] = {}
    """What it waits to be allowed to do."""
    inbox_cursor: int = 0
    """The last message that the agent's program has received, alone or with its task."""
    told: list[int] = []
    """Messages delivered with its task, as long as nothing shows that it has received them."""
    answered_cursor: int = 0
    """The last command from the inbox that was handled or is in this stream."""
    discoveries: list[facts.Discovery] = []
    discovery_count: int = 0
    retries: int = 0
    troubles: list[facts.Trouble] = []
    """Trouble since the last turn that went well."""
    stopping: str = ""
    """Why it is to end, if it is."""
    stop_sent: bool = False
    """Whether its program was asked to end before it did."""
    cost_usd: float = 0.0
    tokens: Tokens = msgspec.field(default_factory=Tokens)
    checkpoints: list[AttemptCheckpoint] = []
    transcript_name: str = ""
    transcript_bytes: int = 0
    exit: dict[str, Any] = {}
    failure: str = ""
    message: str = ""
    reset_us: int = 0
    last_turn_failed: bool = False
    usage_message: str = ""
    usage_tokens: Tokens = msgspec.field(default_factory=Tokens)
    cost_turn: str = ""
    cost_of_turn: float = 0.0
    origin: AttemptOrigin | None = None
    """The attempt, version and position whose state this one has, when it continues from that of another agent."""
    moved_from: str = ""
    """The folder that it knows, when its files are elsewhere since."""

    @property
    def saved(self) -> str:
        """The commit of its files as they were last saved; empty when they were not."""
        return next((each.commit for each in reversed(self.checkpoints) if each.commit), "")

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.status in OPEN

    @property
    def total_tokens(self) -> Tokens:
        """All tokens so far, those of the message in flight included."""
        return self.tokens + self.usage_tokens

    @property
    def total_cost_usd(self) -> float:
        """What it cost so far, as far as its program said."""
        return self.cost_usd + self.cost_of_turn

    def apply(self, event: events.AttemptEvent) -> None:
        """Fold one more event in."""
        self.version += 1
        match event:
            case events.AttemptOutput():
                self.offset, self.output_us = event.offset, event.at_us
                if event.conversation is not None:
                    self.conversation = event.conversation
                for fact in event.facts:
                    if type(fact) is Line:  # most facts, and a match takes twice as long
                        self.lines += 1
                        self.last_text = fact.text
                        self.activity = _first_line(fact.text)
                    else:
                        self._apply_fact(fact)
            case events.AttemptPlanned():
                self._plan(event)
            case events.AttemptClaimed():
                self.owner = event.owner
            case events.AttemptStarted():
                self.status, self.pid, self.started_us = AttemptStatus.RUNNING, event.pid, event.at_us
                self.output_us = self.started_us
            case events.AttemptStopping():
                self.status, self.stopping = AttemptStatus.STOPPING, event.why
                self.answered_cursor = max(self.answered_cursor, event.inbox_version)
            case events.AttemptAnswered():
                self._answer(event)
            case events.AttemptTranscript():
                self.transcript_name, self.transcript_bytes = event.name, event.until
            case events.AttemptCheckpointed():
                made = AttemptCheckpoint(
                    event.name, self.version, event.trigger, event.at_us, event.commit, event.session
                )
                self.checkpoints = [*self.checkpoints, made]
            case events.AttemptBranched():
                self._branch(event)
            case events.AttemptMoved():
                self._move(event)
            case events.AttemptEnded():
                self.status, self.ended_us, self.exit = event.status, event.at_us, event.exit
                self.failure, self.message, self.reset_us = event.failure, event.message, event.reset_us
                self.activity = ""
            case _:
                assert_never(event)

    def _plan(self, event: events.AttemptPlanned) -> None:
        self.agent, self.number, self.kind = event.agent, event.number, event.agent_kind
        self.task, self.order, self.owner = event.task, dict(event.order), event.owner
        self.session, self.folder = event.session, event.folder
        self.workspace = dict(event.workspace)
        self.planned_us = event.at_us
        self.inbox_cursor = self.answered_cursor = event.inbox_cursor
        self.told = list(event.told)
        self.transcript_name, self.transcript_bytes = event.transcript
        self.moved_from = event.order.get("from", "")

    def _answer(self, event: events.AttemptAnswered) -> None:
        asked = self.permissions.get(event.request)
        if asked is not None:
            answered = msgspec.structs.replace(asked, allow=event.allow, why=event.why)
            self.permissions = {**self.permissions, event.request: answered}
        self.answered_cursor = max(self.answered_cursor, event.inbox_version)

    def _branch(self, event: events.AttemptBranched) -> None:
        """Take over all that another agent had come to, which this event alone says."""
        state = msgspec.convert({**event.state, "id": self.id, "version": self.version}, Attempt)
        for name in self.__struct_fields__:
            setattr(self, name, getattr(state, name))
        self.origin = event.origin

    def _move(self, event: events.AttemptMoved) -> None:
        if event.cwd != self.order["cwd"]:
            self.moved_from = self.moved_from or self.order["cwd"]
        self.workspace, self.folder = dict(event.workspace), event.folder
        self.order = {**self.order, "cwd": event.cwd, "home": event.home}

    # --- facts -----------------------------------------------------------------------------------------------

    def _apply_fact(self, fact: facts.Fact) -> None:
        match fact:
            case facts.Text():
                self._apply_text(fact)
            case facts.ToolUse():
                self.in_turn = True
                self.tools_open = {**self.tools_open, fact.id: OpenTool(fact.name, fact.input)}
                self.activity = f"runs {fact.name or 'a tool'}"
            case facts.ToolResult():
                if fact.id in self.tools_open:
                    self.tools_open = {id: tool for id, tool in self.tools_open.items() if id != fact.id}
                    self.tools_done += 1
            case facts.Usage():
                self._count(fact)
            case facts.Cost():
                if fact.turn != self.cost_turn:
                    self.cost_usd += self.cost_of_turn
                    self.cost_turn = fact.turn
                self.cost_of_turn = fact.usd
            case facts.SessionOpened():
                self.session = fact.id or self.session
                self.model = fact.model or self.model
            case facts.TurnEnded():
                self._end_turn(fact)
            case facts.InputReceived():
                self._deliver(fact.id)
            case facts.Discovery():
                self.discoveries = [*self.discoveries[1 - DISCOVERIES_KEPT :], fact]
                self.discovery_count += 1
            case facts.Retry():
                self.retries += 1
                self.activity = f"waits to try again ({fact.error or fact.status or 'no answer'})"
            case facts.Trouble():
                self.troubles = [*self.troubles[-9:], fact]
            case facts.PermissionRequested():
                asked = Permission(fact.id, fact.tool, fact.input, fact.options)
                self.permissions = {**self.permissions, fact.id: asked}
                self.activity = f"asks to use {fact.tool or 'a tool'}"
            case facts.ProcessExit():
                self.exit = {key: value for key, value in fact.data.items() if key != "kind"}
            case facts.Stopping():
                self.stopping = self.stopping or fact.why
                self.stop_sent = True

    def _apply_text(self, fact: facts.Text) -> None:
        self.in_turn = True
        self.last_text = fact.text
        self.activity = _first_line(fact.text)
        is_same = bool(fact.message) and fact.message == self.speech_id
        before = self.speech + ("" if fact.part else "\n") if is_same else ""
        self.speech_id, self.speech = fact.message, before + fact.text

    def _count(self, fact: facts.Usage) -> None:
        if fact.message != self.usage_message:
            self.tokens += self.usage_tokens
            self.usage_message = fact.message
        self.usage_tokens = Tokens(fact.input, fact.output, fact.cache_read, fact.cache_write)

    def _end_turn(self, fact: facts.TurnEnded) -> None:
        self.in_turn = False
        self.turns += fact.turns or 1
        self.last_turn_failed = fact.failed
        # Not every program repeats its last words when a turn ends.
        self.result = fact.result or ("" if fact.failed else self.speech)
        self.speech_id = self.speech = ""
        if not fact.failed:
            self.troubles = []

    def _deliver(self, id: str) -> None:
        if id.startswith("inbox/"):
            version = int(id.removeprefix("inbox/"))
            self.inbox_cursor = max(self.inbox_cursor, version)
            self.told = [each for each in self.told if each != version]
            self.in_turn = True
        elif id.startswith("permission/"):
            request = id.removeprefix("permission/")
            self.permissions = {key: value for key, value in self.permissions.items() if key != request}


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:200]


def last_saved(attempts: Sequence[Attempt]) -> str:
    """The commit of an agent's files as they were last saved in any of its attempts, the oldest first; or nothing."""
    return next((each.saved for each in reversed(attempts) if each.saved), "")


def restoration(before: Attempt, *, remembers: bool, messages: Sequence[str] = ()) -> str:
    """The message for an agent whose last attempt was `before`.

    `remembers` is whether it continues its own session; if not, the message has the task and what it had found.
    `messages` are included as they are: `maos.model.message.render` has quoted what must be.
    """
    reason = TABLE[before.failure].meaning if before.failure in TABLE else ""
    why = f"You were interrupted ({reason})" if reason else "Your turn had ended"
    parts = [f"{why}, and now you continue. Your files are as you left them."]
    if before.origin:
        parts = [ROLLED_BACK.format(folder=before.order["cwd"])]
    elif before.moved_from:
        parts.append(MOVED.format(before=before.moved_from, folder=before.order["cwd"]))
    if not remembers:
        parts.append(f"You do not remember it, so here is the task again:\n\n{before.task}")
        if before.last_text:
            parts.append(f"Your last message was:\n\n{_short(before.last_text, RESULT_CHARS_MAX)}")
        found = [f"- {each.text}" for each in before.discoveries]
        if found:
            parts.append("You had reported:\n" + "\n".join(found))
    if before.tools_done:
        parts.append(f"{before.tools_done} tool calls were completed and recorded; do not repeat them.")
    if before.tools_open:
        unknown = before.tools_open.values()
        tools = [f"- {tool.name}: {_short(str(tool.input), TOOL_CHARS_MAX)}" for tool in unknown]
        parts.append(
            "It is unknown whether these tool calls took effect. Check before you rely on them or repeat them:\n"
            + "\n".join(tools)
        )
    if messages:
        parts.append("\n\n".join(("These messages arrived meanwhile.", *messages)))
    parts.append("Continue from where you stopped and finish the task.")
    return "\n\n".join(parts)


def _short(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else text[:chars_max] + " …"
