"""One try of one agent at one task, folded from the events of its stream.

The stream `attempt/<agent>.<n>` is written by the one engine that holds the attempt's lease. What others want of a
running attempt (a message, a stop) they put into `inbox/<agent>`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from maos.errors import InvalidInput
from maos.model.facts import Fact
from maos.model.message import PERSON

PLANNED = "planned"
"""Recorded, and about to be started. Running; or failed, when its program cannot be started."""
RUNNING = "running"
"""Its program lives. Stopping, done or failed."""
STOPPING = "stopping"
"""Asked to end, on request or at a limit. Stopped, or failed with the limit as the reason."""
DONE = "done"
"""Its program ended well. `maos agent resume` begins another attempt in the same session."""
FAILED = "failed"
"""It ended badly; `failure` says why. `maos agent resume` begins another attempt."""
STOPPED = "stopped"
"""It was stopped on request. `maos agent resume` begins another attempt."""
OPEN = (PLANNED, RUNNING, STOPPING)

EVENT_TYPES = (
    "attempt_planned",
    "attempt_claimed",
    "attempt_started",
    "attempt_output",
    "attempt_stopping",
    "attempt_answered",
    "attempt_transcript",
    "attempt_checkpointed",
    "attempt_branched",
    "attempt_moved",
    "attempt_ended",
)
INBOX_TYPES = ("message_sent", "stop_requested", "permission_answered", "checkpoint_requested")

DISCOVERIES_KEPT = 50
FORMAT = 1
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

    def add(self, other: Tokens) -> None:
        """Count another's too."""
        self.input += other.input
        self.output += other.output
        self.cache_read += other.cache_read
        self.cache_write += other.cache_write


class AttemptCheckpoint(msgspec.Struct):
    """A point to go back to: a place in the attempt's stream, and the few things outside the journal."""

    name: str
    version: int
    trigger: str
    at_us: int
    commit: str | None = None
    session: str = ""


class Attempt(msgspec.Struct, kw_only=True):
    """What is known of an attempt: a fold of its events, and nothing that is not in them."""

    id: str
    version: int = 0
    """How many events of the stream are folded in."""
    status: str = PLANNED
    agent: str = ""
    number: int = 0
    kind: str = ""
    task: str = ""
    order: dict[str, Any] = {}
    """What was asked for, as recorded before the start."""
    owner: dict[str, Any] = {}
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
    """The message of the model that was last heard of in this turn, as far as it was said."""
    result: str = ""
    tools_open: dict[str, dict[str, Any]] = {}
    """Intents without an outcome: if the attempt has ended, nobody knows whether they took effect (I31)."""
    tools_done: int = 0
    activity: str = ""
    permissions: dict[str, dict[str, Any]] = {}
    """What it waits to be allowed to do."""
    inbox_cursor: int = 0
    """The last message that the agent's program has got, or was told with its task."""
    told: list[int] = []
    """Messages told with its task, as long as nothing shows that it has got that far."""
    answered_cursor: int = 0
    """The last wish from the inbox that was carried out or is in this stream."""
    discoveries: list[dict[str, Any]] = []
    discovery_count: int = 0
    retries: int = 0
    troubles: list[dict[str, Any]] = []
    """Trouble since the last turn that went well."""
    stopping: str = ""
    """Why it is to end, if it is."""
    stop_sent: bool = False
    """Whether its program was told so before it ended."""
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
    origin: dict[str, Any] = {}
    """The attempt, version and position whose state this one has, when it goes on from that of another agent."""
    moved_from: str = ""
    """The folder that it knows, when its files are elsewhere since."""

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.status in OPEN

    @property
    def total_tokens(self) -> Tokens:
        """All tokens so far, those of the message in flight included."""
        total = Tokens()
        total.add(self.tokens)
        total.add(self.usage_tokens)
        return total

    @property
    def total_cost_usd(self) -> float:
        """What it cost so far, as far as its program said."""
        return self.cost_usd + self.cost_of_turn

    def apply(self, type_: str, data: Mapping[str, Any]) -> None:
        """Fold one more event in."""
        self.version += 1
        getattr(self, f"_{type_.removeprefix('attempt_')}")(data)

    def _planned(self, data: Mapping[str, Any]) -> None:
        self.agent, self.number, self.kind = data["agent"], data["number"], data["agent_kind"]
        self.task, self.order, self.owner = data["task"], dict(data["order"]), dict(data["owner"])
        self.session, self.folder = data["session"], data["folder"]
        self.workspace = dict(data["workspace"])
        self.planned_us = data["at_us"]
        self.inbox_cursor = self.answered_cursor = data["inbox_cursor"]
        self.told = list(data.get("told", ()))
        self.transcript_name, self.transcript_bytes = data["transcript"]
        self.moved_from = data["order"].get("from", "")

    def _claimed(self, data: Mapping[str, Any]) -> None:
        self.owner = dict(data["owner"])

    def _started(self, data: Mapping[str, Any]) -> None:
        self.status, self.pid, self.started_us = RUNNING, data["pid"], data["at_us"]
        self.output_us = self.started_us

    def _output(self, data: Mapping[str, Any]) -> None:
        self.offset, self.output_us = data["offset"], data["at_us"]
        if "conversation" in data:
            self.conversation = data["conversation"]
        for fact in data["facts"]:
            handle = _FACTS.get(fact["kind"])
            if handle is not None:
                handle(self, fact)

    def _stopping(self, data: Mapping[str, Any]) -> None:
        self.status, self.stopping = STOPPING, data["why"]
        self.answered_cursor = max(self.answered_cursor, data.get("inbox_version", 0))

    def _answered(self, data: Mapping[str, Any]) -> None:
        if data["request"] in self.permissions:
            answer = {"allow": data["allow"], "why": data.get("why", "")}
            self.permissions[data["request"]] = {**self.permissions[data["request"]], "answer": answer}
        self.answered_cursor = max(self.answered_cursor, data.get("inbox_version", 0))

    def _transcript(self, data: Mapping[str, Any]) -> None:
        self.transcript_name = data["name"]
        self.transcript_bytes = data["until"]

    def _checkpointed(self, data: Mapping[str, Any]) -> None:
        self.checkpoints = [
            *self.checkpoints,
            AttemptCheckpoint(
                name=data["name"],
                version=self.version,
                trigger=data["trigger"],
                at_us=data["at_us"],
                commit=data.get("commit"),
                session=data.get("session", ""),
            ),
        ]

    def _branched(self, data: Mapping[str, Any]) -> None:
        """All that another agent had come to at some moment, told by this event alone."""
        state = msgspec.convert({**data["state"], "id": self.id, "version": self.version}, Attempt)
        for name in self.__struct_fields__:
            setattr(self, name, getattr(state, name))
        self.origin = dict(data["origin"])

    def _moved(self, data: Mapping[str, Any]) -> None:
        if data["cwd"] != self.order["cwd"]:
            self.moved_from = self.moved_from or self.order["cwd"]
        self.workspace, self.folder = dict(data["workspace"]), data["folder"]
        self.order = {**self.order, "cwd": data["cwd"], "home": data["home"]}

    def _ended(self, data: Mapping[str, Any]) -> None:
        self.status, self.ended_us = data["status"], data["at_us"]
        self.exit = dict(data.get("exit", {}))
        self.failure, self.message = data.get("failure", ""), data.get("message", "")
        self.reset_us = data.get("reset_us", 0)
        self.activity = ""

    # --- facts -----------------------------------------------------------------------------------------------

    def _on_session(self, fact: Fact) -> None:
        self.session = fact.get("id") or self.session
        self.model = fact.get("model") or self.model

    def _on_text(self, fact: Fact) -> None:
        self.in_turn = True
        self.last_text = fact.get("text", "")
        self.activity = _first_line(self.last_text)
        id = fact.get("message", "")
        before = self.speech + ("" if fact.get("part") else "\n") if id and id == self.speech_id else ""
        self.speech_id, self.speech = id, before + self.last_text

    def _on_line(self, fact: Fact) -> None:
        self.lines += 1
        self.last_text = fact.get("text", "")
        self.activity = _first_line(self.last_text)

    def _on_tool_use(self, fact: Fact) -> None:
        self.in_turn = True
        self.tools_open = {**self.tools_open, fact["id"]: {"name": fact.get("name", ""), "input": fact.get("input")}}
        self.activity = f"runs {fact.get('name', 'a tool')}"

    def _on_tool_result(self, fact: Fact) -> None:
        if fact.get("id") in self.tools_open:
            self.tools_open = {id: tool for id, tool in self.tools_open.items() if id != fact["id"]}
            self.tools_done += 1

    def _on_usage(self, fact: Fact) -> None:
        if fact.get("message", "") != self.usage_message:
            self.tokens.add(self.usage_tokens)
            self.usage_message = fact.get("message", "")
        self.usage_tokens = Tokens(
            input=fact.get("input", 0),
            output=fact.get("output", 0),
            cache_read=fact.get("cache_read", 0),
            cache_write=fact.get("cache_write", 0),
        )

    def _on_cost(self, fact: Fact) -> None:
        if fact.get("turn", "") != self.cost_turn:
            self.cost_usd += self.cost_of_turn
            self.cost_turn = fact.get("turn", "")
        self.cost_of_turn = float(fact.get("usd", 0.0))

    def _on_retry(self, fact: Fact) -> None:
        self.retries += 1
        self.activity = f"waits to try again ({fact.get('error') or fact.get('status') or 'no answer'})"

    def _on_trouble(self, fact: Fact) -> None:
        self.troubles = [*self.troubles[-9:], fact]

    def _on_permission_requested(self, fact: Fact) -> None:
        self.permissions = {**self.permissions, fact["id"]: fact}
        self.activity = f"asks to use {fact.get('tool', 'a tool')}"

    def _on_discovery(self, fact: Fact) -> None:
        self.discoveries = [*self.discoveries[1 - DISCOVERIES_KEPT :], fact]
        self.discovery_count += 1

    def _on_turn_ended(self, fact: Fact) -> None:
        self.in_turn = False
        self.turns += fact.get("turns", 0) or 1
        self.last_turn_failed = bool(fact.get("failed"))
        # Not every program repeats its last words when a turn ends.
        self.result = fact.get("result", "") or ("" if self.last_turn_failed else self.speech)
        self.speech_id = self.speech = ""
        if not self.last_turn_failed:
            self.troubles = []

    def _on_input(self, fact: Fact) -> None:
        id = fact["id"]
        if id.startswith("inbox/"):
            version = int(id.removeprefix("inbox/"))
            self.inbox_cursor = max(self.inbox_cursor, version)
            self.told = [each for each in self.told if each != version]
            self.in_turn = True
        elif id.startswith("permission/"):
            request = id.removeprefix("permission/")
            self.permissions = {key: value for key, value in self.permissions.items() if key != request}

    def _on_exit(self, fact: Fact) -> None:
        self.exit = {key: value for key, value in fact.items() if key != "kind"}

    def _on_stopping(self, fact: Fact) -> None:
        self.stopping = self.stopping or fact["why"]
        self.stop_sent = True


_FACTS = {name.removeprefix("_on_"): method for name, method in vars(Attempt).items() if name.startswith("_on_")}


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:200]
