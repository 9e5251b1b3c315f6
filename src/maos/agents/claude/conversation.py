"""A conversation with Claude Code: what its JSON lines mean, and the lines it is answered with.

Text is returned in paragraphs while it streams; the paragraph in the making is part of the state, so a crash loses
nothing that was read. When the finished block arrives, only the rest of it is returned. A turn has ended when the
program says that it is idle: a result may come before, while agents of its own are still at work. When its input has
ended and a process of it still runs in the background, it never says so, and a result ends the turn.

Of a result, `is_error` says whether it went wrong; `subtype` does not (an API failure is a "success"). Figures named
`total` keep counting over turns, and over a resume; only differences of them are facts.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from maos.agents.contract import Conversation, Interpreted, Reply
from maos.agents.values import (
    ID_CHARS_MAX,
    Object,
    as_count,
    as_id,
    as_json,
    as_list,
    as_number,
    as_object,
    as_objects,
    as_text,
    storable,
)
from maos.model.events import facts
from maos.model.events.facts import Fact
from maos.model.failure import from_words
from maos.model.permission import COMMAND_CHARS_MAX, SHELL
from maos.patterns import regex

TAIL_CHARS_MAX = 1000
"""A paragraph in the making that is longer is returned in parts: it would be recorded again with every line."""
ASKED_MAX = 64
WINDOWS_MAX = 8
SUGGESTIONS_MAX = 5
NAMESPACE = uuid.UUID("a3e0c1f4-52b7-4f0e-8d0c-6f1d7c2f9b11")

OWN_AGENTS = ("local_agent", "local_workflow")
"""Kinds of background work that wake the agent when they end. Others, such as a server it started, may never end."""
FINISHED = ("completed", "failed", "stopped", "killed", "cancelled")

SILENT = frozenset(
    "thinking_tokens session_state_changed task_progress background_tasks_changed hook_started hook_progress "
    "hook_response compact_boundary files_persisted local_command_output elicitation_complete".split()
)
"""Messages of the program about itself that mean nothing to us."""
SILENT_TYPES = frozenset("control_response command_lifecycle keep_alive tool_progress tool_use_summary".split())

BY_SUBTYPE = {"error_max_turns": "turns_reached", "error_max_budget_usd": "budget_reached"}
SESSION = regex(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
"""The id of a session: a UUID."""
EPOCH = regex(r"\|(\d{10})\b")
"""The time of a reset, as older versions put it behind the message of a usage limit."""
TOKENS = {
    "input": ("input_tokens", "inputTokens"),
    "output": ("output_tokens", "outputTokens"),
    "cache_read": ("cache_read_input_tokens", "cacheReadInputTokens"),
    "cache_write": ("cache_creation_input_tokens", "cacheCreationInputTokens"),
}


class ClaudeState(msgspec.Struct, omit_defaults=True):
    """What must be known to understand the next line."""

    session: str = ""
    message: str = ""
    """The message that is being streamed."""
    model: str = ""
    usage: dict[str, int] = {}
    """What that message used, as far as its beginning says; empty once its end has said it exactly."""
    requesting: bool = False
    """It has sent a request, or does so now, and no message has begun."""
    tools: list[str] = []
    """Tools that run, without those of its own agents."""
    told: int = 0
    """How many characters of the block that is being streamed have been returned."""
    tail: str = ""
    """The rest of it, up to here."""
    counted: dict[str, int] = {}
    """Tokens reported since the last result."""
    total_usd: float = 0.0
    asked: dict[str, str] = {}
    """Permissions that were asked for and are open, with the use of a tool that each is about."""
    agents: list[str] = []
    """Agents of its own that are at work."""
    busy: bool = False
    """It says that it is working; programs that never say so are taken at their results."""
    ended: facts.TurnEnded | None = None
    """The end of a turn, to be returned when it is idle."""
    reset_s: int = 0
    """When a limit that was reported will be lifted."""
    closed: bool = False


class ClaudeConversation(Conversation[ClaudeState]):
    """One conversation with a running Claude Code."""

    memory = ClaudeState

    def hear(self, line: bytes, *, stderr: bool) -> Interpreted:
        """The meaning of one line; an empty one has none."""
        return super().hear(line, stderr=stderr) if line.strip() else Interpreted()

    def _understand(self, message: dict[str, Any], line: bytes) -> Interpreted | None:
        kind = as_text(message.get("type"))
        if kind == "control_request":
            return self._hear_request(message, line)
        understand = {
            "system": self._system,
            "stream_event": self._stream_event,
            "assistant": self._assistant,
            "user": self._user,
            "result": self._result,
            "control_cancel_request": self._withdrawn,
            "rate_limit_event": self._rate_limit,
        }.get(kind)
        if understand is not None:
            found = understand(message)
            return None if found is None else Interpreted(found)
        return Interpreted() if kind in SILENT_TYPES else None

    @property
    def is_answering(self) -> bool:
        """Whether it has sent a request to its model, and not got the whole answer."""
        return self._state.requesting or bool(self._state.usage)

    def say(self, id: str, text: str) -> Reply | None:
        """A message; while it works, it gets it after the tool that is running."""
        return None if self._state.closed else Reply(id, user_line(self._order.session, id, text))

    def answer(self, request: str, *, allow: bool, why: str = "", always: bool = False) -> Reply | None:
        """Yes or no; the model gets the reason of a no."""
        if request not in self._state.asked:
            return None
        answer = {"behavior": "allow"}
        if not allow:
            answer = {"behavior": "deny", "message": why or "This was refused. Continue without it, or say why not."}
        response = {"subtype": "success", "request_id": request, "response": answer}
        return Reply(f"permission/{request}", _line({"type": "control_response", "response": response}))

    def end(self) -> Reply | None:
        """The end of its input: it finishes what it is doing, and ends."""
        self._state.closed = True
        return Reply("end", b"", closes=True)

    def rest(self) -> Sequence[Fact]:
        """The facts that were not returned yet, once the program has exited in the middle of something."""
        state = self._state
        found: list[Fact] = []
        if state.tail.strip():
            found.append(facts.Text(state.tail, message=state.message))
        state.tail = ""
        if state.usage:
            found += self._count(state.usage)
        if state.ended:
            found.append(state.ended)
            state.ended = None
        return found

    # --- the program about itself ----------------------------------------------------------------------------

    def _system(self, message: Object) -> Sequence[Fact] | None:
        state = self._state
        subtype = as_text(message.get("subtype"))
        if subtype == "init":
            return self._init(message)
        if subtype == "session_state_changed":
            state.busy = as_text(message.get("state")) != "idle"
            ended, state.ended = (None, state.ended) if state.busy else (state.ended, None)
            return [ended] if ended else ()
        if subtype == "task_started" and as_text(message.get("task_type")) in OWN_AGENTS:
            task = as_id(message.get("task_id"))
            state.agents = [*(each for each in state.agents[1 - ASKED_MAX :] if each != task), task]
            return ()
        if subtype in ("task_started", "task_updated", "task_notification"):
            status = as_text(message.get("status")) or as_text(as_object(message.get("patch")).get("status"))
            if subtype == "task_notification" or status in FINISHED:
                state.agents = [each for each in state.agents if each != as_id(message.get("task_id"))]
            return ()
        if subtype == "status":
            state.requesting = as_text(message.get("status")) == "requesting"
            return ()
        if subtype == "api_retry":
            state.requesting = False
            delay_s = max(0.0, as_number(message.get("retry_delay_ms")) or 0.0) / 1000
            attempt, status_code = as_count(message.get("attempt")), as_count(message.get("error_status"))
            return [
                facts.Retry(attempt=attempt, delay_s=delay_s, status=status_code, error=as_text(message.get("error")))
            ]
        if subtype == "permission_denied":
            tool, why = as_text(message.get("tool_name")), as_text(message.get("message"))
            return [facts.PermissionDenied(tool, why, as_id(message.get("tool_use_id")))]
        return () if subtype in SILENT else None

    def _init(self, message: Object) -> Sequence[Fact]:
        """It introduces itself at every turn; once is enough."""
        session = as_text(message.get("session_id"))
        if session and not SESSION.fullmatch(session):
            session = self._order.session  # what it says cannot be the name of a file
        if not session or session == self._state.session:
            return ()
        self._state.session = session
        version = as_id(message.get("claude_code_version"))
        return [facts.SessionOpened(session, model=as_id(message.get("model")), version=version)]

    def _rate_limit(self, message: Object) -> Sequence[Fact]:
        """What is used of the windows of its plan. Some versions tell all windows, others the one that counts now."""
        info = as_object(message.get("rate_limit_info"))
        status = as_id(info.get("status"))
        if status == "rejected":
            self._state.reset_s = as_count(info.get("resetsAt"))
        name, windows = as_id(info.get("rateLimitType")), as_object(info.get("unifiedWindows"))
        told = {as_id(each): as_object(window) for each, window in list(windows.items())[:WINDOWS_MAX]}
        if name:
            told[name] = {**info, **told.get(name, {})}
        return [
            facts.QuotaWindow(
                window=each,
                used=as_number(window.get("utilization")),
                reset_us=as_count(window.get("resetsAt")) * 1_000_000,
                status=as_id(window.get("status")) or (status if each == name else ""),
            )
            for each, window in told.items()
        ]

    # --- permissions -----------------------------------------------------------------------------------------

    def _hear_request(self, message: Object, line: bytes) -> Interpreted | None:
        id, request = as_text(message.get("request_id")), as_object(message.get("request"))
        if not id or len(id) > ID_CHARS_MAX:  # a reply repeats it
            return None
        if as_text(request.get("subtype")) != "can_use_tool":
            # It would wait for ever for something that we do not know.
            error = {"subtype": "error", "request_id": id, "error": "not supported"}
            reply = Reply(f"control/{id}", _line({"type": "control_response", "response": error}))
            return Interpreted([facts.Unknown.of(line)], [reply])
        asked = list(self._state.asked.items())[1 - ASKED_MAX :]
        self._state.asked = {**dict(asked), id: as_id(request.get("tool_use_id"))}
        tool, command = as_text(request.get("tool_name")), as_text(as_object(request.get("input")).get("command"))
        found = facts.PermissionRequested(
            id,
            tool,
            storable(request.get("input")) or None,
            tool_use=as_id(request.get("tool_use_id")),
            rule_tool=tool,
            command=command if tool == SHELL and len(command) <= COMMAND_CHARS_MAX else "",
            suggestions=_suggestions(request),
        )
        return Interpreted([found])

    def _withdrawn(self, message: Object) -> Sequence[Fact]:
        id = as_text(message.get("request_id"))
        self._state.asked = {key: value for key, value in self._state.asked.items() if key != id}
        return ()

    # --- the model's words -----------------------------------------------------------------------------------

    def _stream_event(self, message: Object) -> Sequence[Fact]:
        state, event = self._state, as_object(message.get("event"))
        if message.get("parent_tool_use_id"):
            return ()
        kind = as_text(event.get("type"))
        if kind == "message_start":
            begun = as_object(event.get("message"))
            state.message, state.model = as_id(begun.get("id")), as_id(begun.get("model"))
            state.usage, state.requesting = _tokens(as_object(begun.get("usage"))), False
            state.told, state.tail = 0, ""
        elif kind == "content_block_start":
            state.told, state.tail = 0, ""
        elif kind == "content_block_delta":
            return self._more(as_text(as_object(event.get("delta")).get("text")))
        elif kind == "content_block_stop":
            state.told, state.tail = 0, ""  # returned with the whole block, or the request failed and will be repeated
        elif kind == "message_delta":
            used = _tokens(as_object(event.get("usage")))
            return self._count({**state.usage, **{name: count for name, count in used.items() if count}})
        return ()

    def _more(self, text: str) -> Sequence[Fact]:
        """Whole paragraphs of what has been streamed so far."""
        state = self._state
        state.tail += text
        place = state.tail.rfind("\n\n")
        cut = place + 2 if place >= 0 else 0
        if not cut and len(state.tail) > TAIL_CHARS_MAX:
            cut = (state.tail.rfind("\n") + 1) or (state.tail.rfind(" ") + 1) or len(state.tail)
        if len(state.tail) - cut > TAIL_CHARS_MAX:  # a word, or the beginning of a paragraph, that is too long itself
            cut = len(state.tail)
        if not cut:
            return ()
        whole, state.tail = state.tail[:cut], state.tail[cut:]
        state.told += cut
        return [facts.Text(whole.rstrip("\n"), message=state.message)] if whole.strip() else ()

    def _count(self, usage: dict[str, int]) -> Sequence[Fact]:
        state = self._state
        state.usage = {}
        if not any(usage.values()):
            return ()
        state.counted = Counter(state.counted) + Counter(usage)
        return [facts.Usage(state.message, model=state.model, **usage)]

    def _assistant(self, message: Object) -> Sequence[Fact]:
        if message.get("is_api_error_message") or message.get("error"):
            return ()  # written by the program; the result tells it with its status
        said = as_object(message.get("message"))
        id = as_id(said.get("id"))
        of_own_agent = bool(message.get("parent_tool_use_id"))
        found: list[Fact] = []
        for block in as_objects(said.get("content")):
            kind = as_text(block.get("type"))
            if kind == "text" and not of_own_agent:
                found += self._text(as_text(block.get("text")), id)
            elif kind in ("text", "thinking"):  # what an agent of its own says is said to the agent, not to us
                thought = as_text(block.get(kind))
                found += [facts.Thought(thought, message=id)] if thought else []
            elif kind.endswith("tool_use"):
                tool = as_id(block.get("id"))
                if not of_own_agent:
                    self._state.tools = [*self._state.tools[1 - ASKED_MAX :], tool]
                found.append(facts.ToolUse(tool, as_id(block.get("name")), storable(block.get("input")) or None))
            elif kind.endswith("tool_result"):
                found.append(self._tool_result(block))
        return found

    def _text(self, text: str, id: str) -> Sequence[Fact]:
        state = self._state
        if id == state.message:
            text = text[state.told :]
            state.told, state.tail = 0, ""
        text = text.strip("\n")
        return [facts.Text(text, message=id)] if text.strip() else ()

    def _user(self, message: Object) -> Sequence[Fact]:
        blocks = as_objects(as_object(message.get("message")).get("content"))
        found = [self._tool_result(block) for block in blocks if as_text(block.get("type")).endswith("tool_result")]
        if found and not message.get("parent_tool_use_id") and not self._state.tools:
            self._state.requesting = True  # the model gets the results at once; that this was sent is said later
        return found

    def _tool_result(self, block: Object) -> Fact:
        id = as_id(block.get("tool_use_id"))
        self._state.asked = {key: tool for key, tool in self._state.asked.items() if tool != id}
        self._state.tools = [each for each in self._state.tools if each != id]
        return facts.ToolResult(id, _output_text(block.get("content")), failed=block.get("is_error") is True)

    # --- results ---------------------------------------------------------------------------------------------

    def _result(self, message: Object) -> Sequence[Fact]:
        state = self._state
        state.requesting, state.tools = False, []
        turn = as_id(message.get("uuid"))
        tokens, usd = _used(message, state.total_usd, resumed=self._order.resume)
        found: list[Fact] = []
        rest = tokens - Counter(state.counted)
        if rest:  # its own agents, a repeated request, a summary: reported nowhere else
            found.append(facts.Usage(f"turn {turn}", model="", **rest))
        if usd > 0:
            found.append(facts.Cost(usd, turn=turn))
        state.counted, state.total_usd = {}, _usd(message.get("total_cost_usd"))
        found += _trouble(message, reset_s=state.reset_s)
        ended = _ended(message)
        if state.agents and not ended.failed:
            return found  # an interim report: the end of its own agents wakes it for another
        if state.closed or not state.busy:  # after the end of its input it does not say that it is idle
            return [*found, ended]
        state.ended = facts.shortened(ended)  # type: ignore[assignment]  # of the same type
        return found


def _suggestions(request: Object) -> list[str]:
    """The rules that it would add if a person did not want to be asked again."""
    found = []
    for each in as_objects(request.get("permission_suggestions")):
        if each.get("type") == "addRules" and each.get("behavior") == "allow":
            rules = [
                (as_text(rule.get("toolName")), as_text(rule.get("ruleContent")))
                for rule in as_objects(each.get("rules"))
            ]
            found += [f"{tool}({content})" if content else tool for tool, content in rules if tool]
    return [each for each in found[:SUGGESTIONS_MAX] if len(each) <= COMMAND_CHARS_MAX]


def _tokens(usage: Object) -> Counter[str]:
    """Counts of tokens by our names, from either way of writing them."""
    found = {name: as_count(usage.get(one)) or as_count(usage.get(other)) for name, (one, other) in TOKENS.items()}
    hour = as_count(as_object(usage.get("cache_creation")).get("ephemeral_1h_input_tokens"))
    return Counter({**found, "cache_write_1h": min(hour, found["cache_write"])})


def _used(result: Object, before_usd: float, *, resumed: bool) -> tuple[Counter[str], float]:
    """Tokens and cost since the result before, whose total was `before_usd`; 0 if there was none."""
    since = result.get("model_usage_since_last_result")
    if isinstance(since, dict):
        sum_: Counter[str] = Counter()
        usd = 0.0
        for model in since.values():
            if isinstance(model, dict):
                sum_ += _tokens(model)
                usd += _usd(model.get("costUSD"))
        return sum_, usd
    # An older version. The first total after a resume has an unknown cost of earlier attempts in it.
    unknown = resumed and not before_usd
    usd = 0.0 if unknown else max(0.0, _usd(result.get("total_cost_usd")) - before_usd)
    return _tokens(as_object(result.get("usage"))), usd


def _trouble(result: Object, *, reset_s: int) -> list[Fact]:
    """What went wrong, if anything did that was not wanted."""
    reason = as_text(result.get("terminal_reason"))
    if result.get("is_error") is not True or reason.startswith("aborted"):
        return []
    words = _words(result)
    status = as_count(result.get("api_error_status"))
    failure = BY_SUBTYPE.get(as_text(result.get("subtype")))
    if failure is None:
        failure = "context_overflow" if reason == "prompt_too_long" else from_words(words, status=status)
    if (found := EPOCH.search(words)) is not None:
        reset_s = int(found.group(1))
    reset_us = reset_s * 1_000_000 if failure == "rate_limited" else 0
    return [facts.Trouble(failure, words, status=status, reset_us=reset_us)]


def _ended(result: Object) -> facts.TurnEnded:
    failed = result.get("is_error") is True
    reason = as_text(result.get("terminal_reason")) or as_text(result.get("subtype"))
    words = "interrupted" if reason.startswith("aborted") else _words(result)
    return facts.TurnEnded(
        words if failed else as_text(result.get("result")),
        failed=failed,
        reason=reason if failed else "",
        turns=as_count(result.get("num_turns")),
    )


def _usd(value: Any) -> float:
    return max(0.0, as_number(value) or 0.0)


def _words(result: Object) -> str:
    errors = [each for each in as_list(result.get("errors")) if isinstance(each, str)]
    return "; ".join(errors) or as_text(result.get("result")) or as_text(result.get("subtype"))


def user_line(session: str, id: str, text: str) -> bytes:
    """A message as the program reads it.

    Its id makes it count once: the program drops a message whose id is in its transcript. `client_composed` keeps text
    that looks like a command (`/clear`) or a file (`@secret`) from being taken for one.
    """
    message = {"role": "user", "content": re.sub(r"[\ud800-\udfff]", "�", text)}
    id = str(uuid.uuid5(NAMESPACE, f"{session}/{id}"))
    return _line({"type": "user", "message": message, "uuid": id, "client_composed": True})


def _output_text(content: Any) -> str:
    """What a tool returned, as text; what is no text is named."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else as_json(content)
    return "\n".join(
        as_text(block.get("text")) or f"[{as_text(block.get('type')) or 'something'}]" for block in as_objects(content)
    )


def _line(message: Object) -> bytes:
    return json.dumps(message).encode() + b"\n"
