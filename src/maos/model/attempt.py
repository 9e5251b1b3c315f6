"""One try of one agent at one task, folded from the events of its stream.

The stream `attempt/<agent>.<n>` is written by the one engine that holds the attempt's lease. Commands and
messages of other processes are appended to `inbox/<agent>`.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add
from typing import Any, assert_never

import msgspec

from maos.errors import InvalidInput
from maos.model.events import attempt as events
from maos.model.events import facts
from maos.model.events.attempt import Earlier, OpenTool
from maos.model.events.facts import Line
from maos.model.events.parts import PERSON, AttemptOrigin, Owner, Spent
from maos.model.failure import TABLE
from maos.model.permission import ToolRequest
from maos.model.question import ANSWER, NO_ANSWER, question_id
from maos.model.status import AttemptStatus
from maos.patterns import regex
from maos.text import cut

OPEN = (AttemptStatus.PLANNED, AttemptStatus.RUNNING, AttemptStatus.STOPPING)

ALLOW_ALWAYS = "allow_always"
"""The kind of choice by which a program offers not to ask again (of the Agent Client Protocol)."""
ASKING_TOOL = "ask_person"
READING_TOOL = "read_messages"
"""Tools of maos that wait: for a person, for a message."""
ANSWERS_KEPT = 50
DISCOVERIES_KEPT = 50
FORMAT = 4
RATE_LIMITED = 429
TOOLS_KEPT = 200
"""How many intents without an outcome are remembered, the newest; the others are only counted."""
PERMISSIONS_KEPT = 64
WINDOWS_KEPT = 8
TOOL_CHARS_MAX = 300
RESULT_CHARS_MAX = 4000
INPUT_CHARS_MAX = 16_000
DISCOVERY_CHARS_MAX = 2000
SPEECH_CHARS_MAX = 1 << 20
ROLLED_BACK = (
    "The run you are part of was rolled back to an earlier point in time, and you continue from there. Your files are "
    "as they were then, in a folder of your own: {folder}. Work there, whatever other folder you remember. What you or "
    "others did after that time is no longer part of the run."
)
TASK_CHANGED = "A person has changed your task. In place of what you were told before, it is now:\n\n{task}"
MOVED = (
    "Your files were moved meanwhile: what was in {before} is now in {folder}. Work there, whatever other folder you "
    "remember."
)
_NAME = regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


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


class Permission(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that an agent waits to be allowed to do, and the answer that was given and has not reached it."""

    id: str
    tool: str = ""
    input: Any = None
    options: list[Any] | None = None
    allow: bool | None = None
    """None as long as there is no answer."""
    why: str = ""
    tool_use: str = ""
    asked: ToolRequest = ToolRequest("")
    """What rules know of it."""
    suggestions: list[str] = []
    """Rules that the agent's program suggests."""
    always: bool = False
    """Whether its program is told not to ask again."""

    @property
    def is_open(self) -> bool:
        """Whether there is no answer."""
        return self.allow is None

    @property
    def is_once_for_all(self) -> bool:
        """Whether the program itself can be told not to ask for this again: it offers that as a choice."""
        return any(isinstance(each, dict) and each.get("kind") == ALLOW_ALWAYS for each in self.options or ())


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
    session_kept: bool = False
    """Whether the program keeps the session in its home and said that it can resume it."""
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
    result_form: str = ""
    """`json` when the result is data as JSON, `none` when there is none; empty for text."""
    tools_open: dict[str, OpenTool] = {}
    """Intents without an outcome."""
    tools_forgotten: int = 0
    """How many more there are."""
    earlier: Earlier = Earlier()
    """What the attempts before it have come to, as far as it may not know it."""
    tools_done: int = 0
    activity: str = ""
    permissions: dict[str, Permission] = {}
    """What it waits to be allowed to do."""
    inbox_cursor: int = 0
    """The last message that the agent's program has received, alone or with its task."""
    answers_read: list[str] = []
    """Questions whose answer a tool has returned to it, by their ids: it need not be told the answer again."""
    answers_promised: list[str] = []
    """Questions to which a tool has returned that the answer comes as a message."""
    told: list[int] = []
    """Messages delivered with its task, as long as nothing shows that it has received them."""
    answered_cursor: int = 0
    """The last command from the inbox that was handled or is in this stream."""
    discoveries: list[facts.Discovery] = []
    retries: int = 0
    is_limited: bool = False
    """Whether its program waits for the end of a rate limit before it asks its model again."""
    retry_after_s: float = 0.0
    """How long the model's servers asked to wait when they last refused a request because of a rate limit; 0 when they
    did not say. A program that waits as long as it likes adds a random fraction of a second."""
    traceback: str = ""
    """Where a Python function failed."""
    troubles: list[facts.Trouble] = []
    """Trouble since the last turn that went well."""
    stopping: str = ""
    """Why it is to end, if it is."""
    stop_sent: bool = False
    """Whether its program was asked to end before it did."""
    cost_usd: float = 0.0
    """What it cost so far: as its program reported, and as estimated from tokens since."""
    estimated_usd: float = 0.0
    """How much of that is estimated."""
    unpriced_tokens: int = 0
    """Tokens of a model without a price, whose cost was not reported either."""
    unpriced_model: str = ""
    tokens: Tokens = msgspec.field(default_factory=Tokens)
    windows: dict[str, facts.QuotaWindow] = {}
    """What its account may use within a time, by the names of the windows, as its provider said last."""
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
    usage_usd: float = 0.0
    usage_unpriced: int = 0
    """What the message that was last counted cost, and its tokens without a price; 0 when its cost is reported."""
    guessed_usd: float = 0.0
    guessed_unpriced: int = 0
    """The same of the messages before it, since the last report."""
    cost_turn: str = ""
    cost_of_turn: float = 0.0
    cost_before: float = 0.0
    """What was reported of the last turn, and of those before it."""
    origin: AttemptOrigin | None = None
    """The attempt, version and position whose state this one has, when it continues from that of another agent."""
    moved_from: str = ""
    """The folder that it knows, when its files are elsewhere since."""
    proof: str = ""
    """The hash of the secret that its process has."""
    waited_us: int = 0
    """How long it has waited, for a person or for the end of a rate limit, before the wait that lasts now."""
    waits_since_us: int = 0
    """Since when it waits; 0 while it does not."""

    @property
    def saved(self) -> str:
        """The commit of its files as they were last saved; empty when they were not."""
        return next((each.commit for each in reversed(self.checkpoints) if each.commit), "")

    @property
    def tools_unknown(self) -> dict[str, OpenTool]:
        """Tools of which it is unknown whether they took effect, if the attempt has ended (I31): those that had begun
        or were allowed to, and have no outcome."""
        return {id: tool for id, tool in self.tools_open.items() if not tool.waits}

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.status in OPEN

    @property
    def known(self) -> Earlier:
        """What it and the attempts before it have come to: what the next one is told."""
        before = self.earlier
        return Earlier(
            unknown=_newest({**before.unknown, **{id: _brief(tool) for id, tool in self.tools_unknown.items()}}),
            unknown_more=before.unknown_more + self.tools_forgotten,
            tools_done=before.tools_done + self.tools_done,
            discoveries=[*before.discoveries, *self.discoveries][-DISCOVERIES_KEPT:],
            last_text=cut(self.last_text, RESULT_CHARS_MAX) or before.last_text,
            answers_promised=self.answers_promised,
        )

    @property
    def has_answered(self) -> bool:
        """Whether its turn has ended well, and it was not told to wait for an answer of a person."""
        return not (self.in_turn or self.last_turn_failed or self.answers_promised)

    @property
    def asks_person(self) -> bool:
        """Whether a tool of maos waits for a person's answer."""
        return any(tool.name.endswith(ASKING_TOOL) for tool in self.tools_open.values())

    @property
    def is_waiting(self) -> bool:
        """Whether it can do nothing but wait, for a person or for the end of a rate limit: that takes none of its time
        limit."""
        asks = self.asks_person or any(each.is_open for each in self.permissions.values())
        return self.in_turn and (asks or self.is_limited)

    def worked_us(self, now_us: int) -> int:
        """How much of its time limit it has used by now: the time that its program ran, as its holder measured it if it
        has ended, but for that in which it waited."""
        until_us = self.ended_us or now_us
        ran_us = int(self.exit.get("duration_s", 0) * 1e6) or (until_us - self.started_us if self.started_us else 0)
        waits_us = until_us - self.waits_since_us if self.waits_since_us else 0
        return max(0, ran_us - self.waited_us - waits_us)

    @property
    def total_tokens(self) -> Tokens:
        """All tokens so far, those of the message in flight included."""
        return self.tokens + self.usage_tokens

    @property
    def spent(self) -> Spent:
        """What it took so far."""
        tokens = self.total_tokens
        return Spent(self.cost_usd, self.estimated_usd, tokens.input + tokens.output, self.unpriced_tokens)

    def apply(self, event: events.AttemptEvent) -> None:
        """Fold one more event in."""
        self._apply(event)
        if self.is_waiting != bool(self.waits_since_us):
            at_us = getattr(event, "at_us", 0) or self.output_us
            self.waited_us += at_us - self.waits_since_us if self.waits_since_us else 0
            self.waits_since_us = 0 if self.waits_since_us else at_us

    def _apply(self, event: events.AttemptEvent) -> None:
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
            case events.AttemptLimited():
                self.order = {**self.order, "time_limit_s": event.time_limit_s}
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
        self.session, self.session_kept, self.folder = event.session, event.session_kept, event.folder
        self.workspace = dict(event.workspace)
        self.planned_us = event.at_us
        self.inbox_cursor = self.answered_cursor = event.inbox_cursor
        self.told = list(event.told)
        self.transcript_name, self.transcript_bytes = event.transcript
        self.moved_from = event.order.get("from", "")
        self.earlier = event.earlier or Earlier()
        self.answers_promised = list(self.earlier.answers_promised)
        self.proof = event.proof

    def _answer(self, event: events.AttemptAnswered) -> None:
        asked = self.permissions.get(event.request)
        if asked is not None and asked.is_open:  # the first answer counts
            answered = msgspec.structs.replace(asked, allow=event.allow, why=event.why, always=event.always)
            self.permissions = {**self.permissions, event.request: answered}
            if event.allow:
                self._wait(asked.tool_use, waits=False)
            else:
                self._close_tool(asked.tool_use)
        self.answered_cursor = max(self.answered_cursor, event.inbox_version)

    def _branch(self, event: events.AttemptBranched) -> None:
        """Take over all that another agent had come to, which this event alone says."""
        state = msgspec.convert({**event.state, "id": self.id, "version": self.version}, Attempt)
        for name in self.__struct_fields__:
            setattr(self, name, getattr(state, name))
        self.origin, self.proof = event.origin, ""

    def _move(self, event: events.AttemptMoved) -> None:
        if event.cwd != self.order["cwd"]:
            self.moved_from = self.moved_from or self.order["cwd"]
        self.workspace, self.folder = dict(event.workspace), event.folder
        self.order = {**self.order, "cwd": event.cwd, "home": event.home}

    # --- facts -----------------------------------------------------------------------------------------------

    def _apply_fact(self, fact: facts.Fact) -> None:
        aside = (facts.InputReceived, facts.Stopping, facts.Diagnostic, facts.OutputLost, facts.QuotaWindow)
        if self.is_limited and not isinstance(fact, aside):
            self.is_limited = False
        match fact:
            case facts.Text():
                self._apply_text(fact)
            case facts.ToolUse():
                self.in_turn = True
                known = self.tools_open.get(fact.id, OpenTool())
                input = known.input if fact.input is None else fact.input
                used = OpenTool(cut(fact.name or known.name, TOOL_CHARS_MAX), input, known.waits)
                used = _brief(used, INPUT_CHARS_MAX)
                if fact.id not in self.tools_open and len(self.tools_open) >= TOOLS_KEPT:
                    self.tools_forgotten += 1
                self.tools_open = _newest({**self.tools_open, fact.id: used})
                self.activity = _first_line(f"runs {fact.name or 'a tool'}")
            case facts.ToolResult():
                if fact.id in self.tools_open:
                    self._note_answer(self.tools_open[fact.id], fact.output)
                self.tools_done += self._close_tool(fact.id)
            case facts.Usage():
                self._count(fact)
            case facts.Cost():
                self._settle(fact)
            case facts.QuotaWindow():
                others = [each for each in self.windows.items() if each[0] != fact.window][1 - WINDOWS_KEPT :]
                self.windows = {**dict(others), fact.window: fact}
            case facts.SessionOpened():
                self.session, self.session_kept = fact.id or self.session, fact.kept
                self.model = fact.model or self.model
            case facts.TurnEnded():
                self._end_turn(fact)
            case facts.InputReceived():
                self._deliver(fact.id)
            case facts.Discovery():
                found = msgspec.structs.replace(fact, text=cut(fact.text, DISCOVERY_CHARS_MAX))
                self.discoveries = [*self.discoveries[1 - DISCOVERIES_KEPT :], found]
            case facts.Retry():
                self.retries += 1
                self.is_limited = fact.status == RATE_LIMITED
                is_asked = self.is_limited and fact.delay_s.is_integer()
                self.retry_after_s = fact.delay_s if is_asked else 0.0
                self.activity = _first_line(f"waits to try again ({fact.error or fact.status or 'no answer'})")
            case facts.Trouble():
                self.troubles = [*self.troubles[-9:], fact]
                self.traceback = fact.traceback or self.traceback
            case facts.PermissionRequested():
                asked = Permission(
                    fact.id,
                    fact.tool,
                    fact.input,
                    fact.options,
                    tool_use=fact.tool_use,
                    asked=ToolRequest(fact.rule_tool, fact.command),
                    suggestions=fact.suggestions,
                )
                open_before = list(self.permissions.items())[1 - PERMISSIONS_KEPT :]
                self.permissions = {**dict(open_before), fact.id: asked}
                self._wait(fact.tool_use, waits=True)
                self.activity = _first_line(f"asks to use {fact.tool or 'a tool'}")
            case facts.PermissionDenied():
                self._close_tool(fact.tool_use)
            case facts.ProcessExit():
                self.exit = {key: value for key, value in fact.data.items() if key != "kind"}
            case facts.Stopping():
                # While it waits, its time limit is suspended. If the limit ended it, no engine could suspend it.
                is_unattended = fact.why == "time_limit" and self.is_waiting
                self.stopping = self.stopping or ("unattended" if is_unattended else fact.why)
                self.stop_sent = True

    def _note_answer(self, tool: OpenTool, output: str) -> None:
        if not tool.name.endswith(ASKING_TOOL) or not isinstance(tool.input, dict):
            return
        asked = question_id(str(tool.input.get("question", "")))
        promised = [each for each in self.answers_promised if each != asked]
        if output.startswith(ANSWER.partition("{")[0]):
            self.answers_read = [*self.answers_read[1 - ANSWERS_KEPT :], asked]
            self.answers_promised = promised
        elif output.startswith(NO_ANSWER):
            self.answers_promised = [*promised[1 - ANSWERS_KEPT :], asked]

    def _wait(self, id: str, *, waits: bool) -> None:
        """Note whether a tool waits for a permission."""
        if id in self.tools_open:
            self.tools_open = {**self.tools_open, id: msgspec.structs.replace(self.tools_open[id], waits=waits)}

    def _close_tool(self, id: str) -> bool:
        """Note that a tool has an outcome or will have no effect; whether it was open."""
        was_open = id in self.tools_open
        if was_open:
            self.tools_open = {key: tool for key, tool in self.tools_open.items() if key != id}
        return was_open

    def _apply_text(self, fact: facts.Text) -> None:
        self.in_turn = True
        self.last_text = fact.text
        self.activity = _first_line(fact.text)
        is_same = bool(fact.message) and fact.message == self.speech_id
        before = self.speech + ("" if fact.part else "\n") if is_same else ""
        self.speech_id = fact.message
        self.speech = before if len(before) > SPEECH_CHARS_MAX else cut(before + fact.text, SPEECH_CHARS_MAX)

    def _count(self, fact: facts.Usage) -> None:
        if fact.message != self.usage_message:
            self.tokens += self.usage_tokens
            self.usage_message = fact.message
            self.guessed_usd += self.usage_usd
            self.guessed_unpriced += self.usage_unpriced
        self.usage_tokens = Tokens(fact.input, fact.output, fact.cache_read, fact.cache_write)
        self.usage_usd, self.usage_unpriced = 0.0, 0
        if not fact.message or fact.message != self.cost_turn:  # else its cost was reported before its tokens
            self.usage_usd = fact.usd or 0.0
            self.usage_unpriced = sum(msgspec.structs.astuple(self.usage_tokens)) if fact.usd is None else 0
            self.unpriced_model = fact.model if self.usage_unpriced else self.unpriced_model
        self._add_up()

    def _settle(self, fact: facts.Cost) -> None:
        """The program has reported a cost: nothing before it is estimated any more."""
        if fact.turn != self.cost_turn:
            self.cost_before += self.cost_of_turn
            self.cost_turn = fact.turn
        self.cost_of_turn = fact.usd
        self.guessed_usd, self.guessed_unpriced = 0.0, 0
        self.usage_usd, self.usage_unpriced = 0.0, 0
        self._add_up()

    def _add_up(self) -> None:
        """Sums of what is known, and no differences, so that an exact amount stays exact."""
        self.estimated_usd = self.guessed_usd + self.usage_usd
        self.unpriced_tokens = self.guessed_unpriced + self.usage_unpriced
        self.cost_usd = self.cost_before + self.cost_of_turn + self.estimated_usd

    def _end_turn(self, fact: facts.TurnEnded) -> None:
        self.in_turn = False
        self.permissions = {}
        self.turns += fact.turns or 1
        self.last_turn_failed = fact.failed
        # Not every program repeats its last words when a turn ends.
        self.result = fact.result or ("" if fact.failed else self.speech)
        self.result_form = fact.form
        self.speech_id = self.speech = ""
        if not fact.failed:
            self.troubles = []
            self.earlier = msgspec.structs.replace(self.earlier, unknown={}, unknown_more=0)

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


def restoration(before: Attempt, *, remembers: bool, messages: Sequence[str] = (), then: str = "") -> str:
    """The message for an agent whose last attempt was `before`, with what is known of all its attempts.

    `remembers` is whether it continues its own session; if not, the message has the task and what it had found.
    `messages` are included as they are: `maos.model.message.render` has quoted what must be. `then` is what it is to do
    after that.
    """
    known = before.known
    reason = TABLE[before.failure].meaning if before.failure in TABLE else ""
    why = f"You were interrupted ({reason}), and now you continue." if reason else "Your previous turn ended."
    parts = [f"{why} Your files are as you left them."]
    if before.origin:
        parts = [ROLLED_BACK.format(folder=before.order["cwd"])]
    elif before.moved_from:
        parts.append(MOVED.format(before=before.moved_from, folder=before.order["cwd"]))
    if not remembers:
        parts.append(f"You do not remember it, so here is the task again:\n\n{before.task}")
        if known.last_text:
            parts.append(f"Your last message was:\n\n{known.last_text}")
        found = [f"- {each.text}" for each in known.discoveries]
        if found:
            parts.append("You had reported:\n" + "\n".join(found))
    if known.tools_done:
        parts.append(f"{known.tools_done} tool calls were completed and recorded; do not repeat them.")
    if known.unknown:
        tools = [f"- {tool.name}: {tool.input}" for tool in known.unknown.values()]
        tools += [f"- and {known.unknown_more} more before these"] if known.unknown_more else []
        parts.append(
            "It is unknown whether these tool calls took effect. Check before you rely on them or repeat them:\n"
            + "\n".join(tools)
        )
    if messages:
        parts.append("\n\n".join(("These messages arrived meanwhile.", *messages)))
    if reason or not then:
        parts.append("Continue from where you stopped and finish the task.")
    if then:
        parts.append(then)
    return "\n\n".join(parts)


def _newest(tools: dict[str, OpenTool]) -> dict[str, OpenTool]:
    return tools if len(tools) <= TOOLS_KEPT else dict(list(tools.items())[-TOOLS_KEPT:])


def _brief(tool: OpenTool, chars_max: int = TOOL_CHARS_MAX) -> OpenTool:
    text = str(tool.input)
    return tool if len(text) <= chars_max else OpenTool(tool.name, cut(text, chars_max), tool.waits)
