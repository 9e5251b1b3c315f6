"""What Codex says with `--json`: one event a line, each with a `type`; work is reported in items that begin and end.

Codex prints no words of its model before a message is complete, and tells its tokens only when a turn has gone well.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from maos.agents.contract import Conversation, Interpreted
from maos.agents.values import as_count, as_json, as_list, as_object, as_objects, as_text, storable
from maos.clock import MICROSECONDS
from maos.model import failure
from maos.model.events import facts
from maos.model.events.facts import Fact
from maos.patterns import regex

TOKENS = ("input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens")
THREAD_ID = regex(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}")
OPEN_MAX = 64
"""More tools at once are not remembered as begun; their intent is then repeated with their outcome."""

_STATUS = regex(r"\b(?:unexpected|last) status:? (\d{3})\b")
_RETRY = regex(r"Reconnecting\.\.\. (?:(\d{1,6})/\d+|waiting for network)(?: \((.*)\))?", re.DOTALL)
_RESET = regex(
    r"try again at (?:(?P<day>[A-Z][a-z]{2} \d{1,2})(?:st|nd|rd|th), (?P<year>\d{4})\s)?"
    r"(?P<time>\d{1,2}:\d{2})\s(?P<half>[AP]M)"
)
_NOISE = regex(rb"Reading (additional input|prompt) from stdin|WARNING: proceeding, even though we could not")
_LAST_WORDS = regex(r"(?:Error|error)(?:: | loading )")

_WORDS = tuple(
    (name, regex(pattern, re.IGNORECASE))
    for name, pattern in (
        ("start_failed", r"required MCP servers failed|error loading (config|configuration)|unexpected argument"),
        ("login_expired", r"missing environment variable|refresh token"),
        ("no_credit", r"\bquota exceeded|out of credits"),
        ("server_error", r"experiencing high demand"),  # what it makes of a 500
        ("connection_lost", r"connection failed"),
        ("crashed", r"already has an active writer"),  # its predecessor is still about to end
        ("bad_request", r'"type": ?"invalid_request_error"'),  # a refusal with 400 is passed on as it came
    )
)


class CodexState(msgspec.Struct):
    """The tools under way, and from when and from how many tokens on this run counts."""

    since_us: int = 0
    before: Annotated[list[int], msgspec.Meta(min_length=len(TOKENS), max_length=len(TOKENS))] | None = None
    open: list[str] = []
    troubled: bool = False


class CodexConversation(Conversation[CodexState]):
    """One run of Codex."""

    memory = CodexState

    def hear(self, line: bytes, *, stderr: bool) -> Interpreted:
        """The meaning of one line; an empty one has none."""
        return super().hear(line, stderr=stderr) if line.strip() else Interpreted()

    def _understand(self, message: dict[str, Any], line: bytes) -> Interpreted | None:
        known = self._event(message)
        return None if known is None else Interpreted(known)

    def _event(self, event: Mapping[str, Any]) -> Sequence[Fact] | None:
        match event.get("type"):
            case "thread.started":
                return self._thread(as_text(event.get("thread_id")))
            case "turn.started":
                self._state.troubled = False
                return []
            case "item.started" | "item.updated" | "item.completed" as kind:
                return self._item(kind.removeprefix("item."), as_object(event.get("item")))
            case "error":
                return self._error(as_text(event.get("message")))
            case "turn.failed":
                return self._failed(as_text(as_object(event.get("error")).get("message")))
            case "turn.completed":
                return [self._usage(as_object(event.get("usage"))), facts.TurnEnded("")]
            case _:
                return None

    def _thread(self, id: str) -> Sequence[Fact] | None:
        if not THREAD_ID.fullmatch(id):
            return None
        lost = self._order.session if self._order.resume and self._order.session != id else ""
        return [facts.SessionOpened(id, model=self._order.model, instead_of=lost)]

    def _usage(self, total: Mapping[str, Any]) -> Fact:
        """The tokens of this run: the sum over the whole thread without what was reported of it before."""
        read, cached, cache_write, output = (
            max(0, as_count(total.get(name)) - count)
            for name, count in zip(TOKENS, self._state.before or [0] * len(TOKENS), strict=True)
        )
        return facts.Usage(
            self._order.attempt,
            model=self._order.model,
            input=max(0, read - cached - cache_write),
            output=output,
            cache_read=cached,
            cache_write=cache_write,
        )

    def _error(self, message: str) -> Sequence[Fact] | None:
        if not message:
            return None
        if again := _RETRY.fullmatch(message):
            number, error = again.groups()
            return [facts.Retry(attempt=int(number or 0), status=_status(message), error=error or message)]
        self._state.troubled = True
        return [self._trouble(message)]

    def _failed(self, message: str) -> Sequence[Fact]:
        is_new = bool(message) and not self._state.troubled  # else an error before it said the same
        self._state.troubled = True
        trouble = [self._trouble(message)] if is_new else []
        return [*trouble, facts.TurnEnded(message, failed=True, reason=failure_of(message))]

    def _trouble(self, message: str) -> Fact:
        return facts.Trouble(
            failure_of(message), message, status=_status(message), reset_us=reset_of(message, self._state.since_us)
        )

    def _aside(self, line: bytes) -> Sequence[Fact]:
        """A line of its log; the one that says why it gives up is the only report of that."""
        if _NOISE.match(line):
            return []
        text = line.decode("utf-8", "backslashreplace")
        return [self._trouble(text) if _LAST_WORDS.match(text) else facts.Diagnostic.of(line, stderr=True)]

    def _item(self, phase: str, item: Mapping[str, Any]) -> Sequence[Fact] | None:
        id, kind = as_text(item.get("id"))[:200], as_text(item.get("type"))
        match kind:
            case "agent_message" | "reasoning":
                says = facts.Text if kind == "agent_message" else facts.Thought
                text = as_text(item.get("text"))
                return [says(text, message=id)] if phase == "completed" and text else []
            case "todo_list":
                steps = as_objects(item.get("items"))
                states = ["completed" if step.get("completed") is True else "pending" for step in steps]
                texts = [as_text(step.get("text")) for step in steps]
                plan = [{"content": text, "status": state} for text, state in zip(texts, states, strict=True)]
                return [facts.AgentPlan(plan)]
            case "error":  # a warning: what stops it is an event of its own
                return [facts.Diagnostic.of(as_text(item.get("message")), stderr=True)]
            case "command_execution" | "file_change" | "mcp_tool_call" | "collab_tool_call" | "web_search" if id:
                return self._tool(phase, id, kind, item)
            case _:
                return None

    def _tool(self, phase: str, id: str, kind: str, item: Mapping[str, Any]) -> Sequence[Fact]:
        intent = facts.ToolUse(id, _tool_name(kind, item), _tool_input(kind, item) or None)
        if phase == "started":
            if id not in self._state.open and len(self._state.open) < OPEN_MAX:
                self._state.open.append(id)
            return [intent]
        if phase == "updated":
            output = as_text(item.get("aggregated_output"))
            return [facts.ToolProgress(id, output)] if output else [intent]
        begun = id in self._state.open
        if begun:
            self._state.open.remove(id)
        outcome = facts.ToolResult(id, _tool_output(kind, item), failed=_tool_failed(kind, item))
        return [outcome] if begun else [intent, outcome]


def failure_of(message: str) -> str:
    """The failure that an error of Codex stands for."""
    for name, pattern in _WORDS:
        if pattern.search(message):
            # A refusal can be about the length of the conversation, which a person can shorten.
            return failure.from_words(message, status=400) if name == "bad_request" else name
    return failure.from_words(message, status=_status(message))


def reset_of(message: str, since_us: int) -> int:
    """The end of a limit, if the text has one; in local time, without the day if it is the day of the message."""
    found = _RESET.search(message)
    if found is None or not since_us:
        return 0
    day = f"{found['day']} {found['year']}"
    if not found["day"]:
        day = time.strftime("%b %d %Y", time.localtime(since_us // MICROSECONDS))
    try:
        reset = time.strptime(f"{day} {found['time']} {found['half']}", "%b %d %Y %I:%M %p")
        reset_us = int(time.mktime(reset)) * MICROSECONDS
        if not found["day"] and reset_us < since_us:  # the run continued after midnight
            reset_us = int(time.mktime((*reset[:2], reset.tm_mday + 1, *reset[3:]))) * MICROSECONDS
    except (OverflowError, ValueError):
        return 0
    return reset_us


def _status(message: str) -> int:
    found = _STATUS.search(message)
    return int(found.group(1)) if found else 0


def _tool_name(kind: str, item: Mapping[str, Any]) -> str:
    if kind == "mcp_tool_call":
        return f"mcp__{as_text(item.get('server'))}__{as_text(item.get('tool'))}"
    return as_text(item.get("tool")) or kind


def _tool_input(kind: str, item: Mapping[str, Any]) -> Any:
    match kind:
        case "command_execution":
            return {"command": as_text(item.get("command"))}
        case "file_change":
            return {"changes": storable(as_list(item.get("changes")))}
        case "mcp_tool_call":
            return storable(item.get("arguments"))
        case _:
            left_out = ("id", "type", "tool", "status", "agents_states")
            return storable({name: value for name, value in item.items() if name not in left_out and value})


def _tool_output(kind: str, item: Mapping[str, Any]) -> str:
    match kind:
        case "command_execution":
            output = as_text(item.get("aggregated_output"))
            code = item.get("exit_code")
            if not isinstance(code, int) or isinstance(code, bool) or code == 0:
                return output
            return f"{output}{'' if not output or output.endswith(chr(10)) else chr(10)}[exit code {code}]"
        case "file_change":
            changes = as_objects(item.get("changes"))
            return "\n".join(f"{as_text(each.get('kind'))} {as_text(each.get('path'))}" for each in changes)
        case "mcp_tool_call":
            result = as_object(item.get("result"))
            parts = as_objects(result.get("content"))
            said = [as_text(part.get("text")) or as_json(storable(part)) for part in parts]
            error = as_text(as_object(item.get("error")).get("message"))
            return "\n".join(part for part in (*said, error) if part)
        case "web_search":
            return as_text(item.get("query"))
        case _:
            states = as_object(item.get("agents_states"))
            return as_json(storable(states)) if states else ""


def _tool_failed(kind: str, item: Mapping[str, Any]) -> bool:
    code = item.get("exit_code")
    if kind == "command_execution" and isinstance(code, int):
        return code != 0
    return as_text(item.get("status")) in ("failed", "declined") or bool(item.get("error"))
