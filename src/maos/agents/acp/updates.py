"""What an agent sends in the Agent Client Protocol, read without trust: updates, and requests for permission."""

from __future__ import annotations

import os.path
import re
import shlex
from collections.abc import Sequence
from typing import Any

from maos.agents.contract import LaunchOrder
from maos.agents.values import ID_CHARS_MAX, Object, as_count, as_id, as_json, as_object, as_objects, as_text, storable
from maos.model.events import facts
from maos.model.events.facts import Fact
from maos.model.permission import COMMAND_CHARS_MAX, SHELL, ToolRequest, rules_of
from maos.patterns import regex

INLINE_CHARS_MAX = 4096
"""Longer base64 inside a piece of content (an image) is named by its length and left out."""

SILENT = ("user_message_chunk", "available_commands_update", "current_mode_update", "config_option_update",
          "session_info_update")  # fmt: skip
"""Updates that are known and mean nothing for us: our own words come back, menus and titles change."""

_ABOUT_FILES = ("read", "edit", "delete", "move", "search")
_KINDS = (*_ABOUT_FILES, "fetch")
"""Kinds of tools that a rule can name; the others say nothing of what a tool does."""
_NAME = regex(r"[A-Za-z][A-Za-z0-9_.-]{0,127}", re.ASCII)
_SHELLS = ("sh", "bash", "zsh", "dash")


def error_text(error: Object) -> str:
    """What an error of the agent says, with the details it gives."""
    data = error.get("data")
    details = as_object(data)
    more = as_text(data) or as_text(details.get("details")) or as_text(details.get("message"))
    if not more and data:
        more = as_json(data)[:1000]
    return ": ".join(part for part in (as_text(error.get("message")), more) if part)


def error_status(error: Object) -> int:
    """The HTTP status behind an error, if it gives one away."""
    data = as_object(error.get("data"))
    for value in (error.get("code"), *(data.get(name) for name in ("status", "statusCode", "httpStatus", "code"))):
        if 400 <= as_count(value) < 600:
            return as_count(value)
    return 0


def words_of(content: Any) -> str:
    """A piece of content as text; what is no text is named."""
    block = as_object(content)
    match block.get("type"):
        case "text":
            return as_text(block.get("text"))
        case "resource_link":
            return as_text(block.get("uri"))
        case "resource" if as_text(as_object(block.get("resource")).get("text")):
            return as_text(as_object(block.get("resource")).get("text"))
    if isinstance(block.get("resource"), dict):
        block = {**block, "resource": _without_bulk(block["resource"])}
    return as_json(_without_bulk(block)) if block else ""


def tool_facts(update: Object, name: str, *, is_new: bool) -> list[Fact]:
    """What a tool call or an update of one says: the intent, what came so far, or the outcome."""
    id = tool_id(update)
    found: list[Fact] = []
    status = as_text(update.get("status"))
    is_over = status in ("completed", "failed")
    tells_input = is_new or update.get("rawInput") is not None
    if tells_input or update.get("title"):
        used = facts.ToolUse(id, name, (tool_input(update) or None) if tells_input else None)
        found += [used] if is_new or not is_over else []
    output = _output(update)
    if is_over:
        found.append(facts.ToolResult(id, output, failed=status == "failed"))
    elif output:
        found.append(facts.ToolProgress(id, output))
    return found


def tool_id(call: Object) -> str:
    """The id of the use of a tool; empty when the agent gives none."""
    return as_id(call.get("toolCallId"))


def tool_name(call: Object) -> str:
    """What the agent calls the tool: it has a title for people, and a kind."""
    return as_text(call.get("title")) or as_text(call.get("kind")) or "tool"


def tool_input(call: Object) -> Any:
    """What the tool is given; if the agent does not say, what it is about."""
    if call.get("rawInput") is not None:
        return storable(call["rawInput"])
    about = {name: call[name] for name in ("kind", "locations") if call.get(name)}
    return storable(about) if about else None


def plan_fact(update: Object) -> Fact:
    """The agent's plan."""
    entries = as_objects(update.get("entries"))
    known = ("content", "status", "priority")
    return facts.AgentPlan(
        [{name: as_text(each.get(name)) for name in known if as_text(each.get(name))} for each in entries]
    )


def _output(update: Object) -> str:
    parts = []
    for each in as_objects(update.get("content")):
        parts.append(words_of(each.get("content")) if each.get("type") == "content" else as_json(_without_bulk(each)))
    if any(parts):
        return "\n".join(parts)
    raw = update.get("rawOutput")
    return raw if isinstance(raw, str) else "" if raw is None else as_json(raw)


def _without_bulk(block: Object) -> dict[str, Any]:
    """The same, with long base64 replaced by its length."""
    lean = dict(block)
    for name in ("data", "blob"):
        if len(as_text(lean.get(name))) > INLINE_CHARS_MAX:
            lean[name] = f"({len(lean[name])} characters left out)"
    return lean


# --- permissions ---------------------------------------------------------------------------------------------------


def is_allowed(call: Object, order: LaunchOrder) -> bool:
    """Whether the order has said yes already: to this tool, or to all changes of files in the workspace."""
    kind = as_text(call.get("kind"))
    if {kind, as_text(call.get("title"))} & set(order.tools_allowed):
        return True
    if any(rule.covers(request_of(call)) for rule in rules_of(order.tools_allowed)):
        return True
    changes = [each for each in as_objects(call.get("content")) if each.get("type") == "diff"]
    paths = [as_text(each.get("path")) for each in (*as_objects(call.get("locations")), *changes)]
    inside = all(path and _is_inside(path, str(order.cwd)) for path in paths)
    return order.permission == "edits" and kind in _ABOUT_FILES and bool(paths) and inside


def request_of(call: Object) -> ToolRequest:
    """What rules know of the use of a tool: its kind, or its name if it is of no kind; and the command of a shell."""
    kind, title = as_text(call.get("kind")), as_text(call.get("title"))
    if kind == "execute":
        return ToolRequest(SHELL, _command(as_object(call.get("rawInput")).get("command")))
    return ToolRequest(kind if kind in _KINDS else title if _NAME.fullmatch(title) else "")


def _command(given: Any) -> str:
    """The command that a tool is given, as text or as words, also within a call of a shell."""
    text = as_text(given)
    if isinstance(given, list) and given and all(isinstance(each, str) for each in given):
        is_shell = len(given) == 3 and os.path.basename(given[0]) in _SHELLS and given[1] in ("-c", "-lc")
        text = given[2] if is_shell else shlex.join(given)
    return text if len(text) <= COMMAND_CHARS_MAX else ""


def option(options: Sequence[Object], verb: str, preferred: Sequence[str] = ("once", "always")) -> str:
    """The option that says yes (`allow`) or no (`reject`) for this once; for always, if there is no other."""
    for kind in (f"{verb}_{each}" for each in preferred):
        for each in options:
            id = as_text(each.get("optionId"))
            if each.get("kind") == kind and 0 < len(id) <= ID_CHARS_MAX:
                return id
    return ""


def outcome(chosen: str) -> dict[str, Any]:
    """The answer that picks an option; without one, nothing is allowed."""
    picked = {"outcome": "selected", "optionId": chosen} if chosen else {"outcome": "cancelled"}
    return {"result": {"outcome": picked}}


def _is_inside(path: str, folder: str) -> bool:
    """Whether a path is below a folder, as it is written; where links lead is the business of the agent's sandbox."""
    whole = os.path.normpath(os.path.join(folder, path))
    return whole.startswith(os.path.normpath(folder).rstrip("/") + "/")
