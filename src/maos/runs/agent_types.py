"""Types of agents, such as developer or reviewer: how an agent of that type is told to work, and what it may do.

A type is a Markdown file: what stands between two lines of `---` at its top are settings, the rest is what the agent
is told. maos has a few; those in the user's folder come before them, and those of the project before both. What a type
said when a run was made is recorded with the run: changing the file later changes nothing about it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from maos.errors import InvalidInput
from maos.model.plan import Plan

SHIPPED = Path(__file__).parent / "roles"
FOLDER = Path(".maos") / "agents"
"""Below the project's folder."""
PERMISSIONS = ("ask", "edits", "deny")
BYTES_MAX = 1 << 20

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h)")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


class AgentType(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One type of agent."""

    name: str
    description: str = ""
    kind: str = ""
    model: str = ""
    tools: list[str] = []
    """What it may use unasked."""
    permission: str = ""
    time_limit_s: float = 0.0
    budget_usd: float = 0.0
    tokens_max: int = 0
    turns_max: int = 0
    instructions: str = ""
    source: str = ""
    """The file it was read from."""


class BadAgentType(InvalidInput):
    """A file that does not describe a type of agent."""

    def __init__(self, path: str, line: int, what: str, hint: str = "") -> None:
        super().__init__(f"{path}, line {line}: {what}", hint=hint or "fix the file, or move it away")


def known(project: Path, config: Path) -> dict[str, AgentType]:
    """All types that can be used in a project: its own, the user's (in `agents` below `config`), and ours."""
    found: dict[str, AgentType] = {}
    for folder in (SHIPPED, config / "agents", project / FOLDER):
        for path in sorted(folder.glob("*.md")):
            each = read(path)
            found[each.name] = each
    return found


def read(path: Path) -> AgentType:
    """The type that a file describes."""
    try:
        if path.stat().st_size > BYTES_MAX:
            raise BadAgentType(str(path), 1, f"the file is larger than {BYTES_MAX} bytes")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadAgentType(str(path), 1, "it is not text in UTF-8") from error
    return parse(text, name=path.stem, source=str(path))


def parse(text: str, *, name: str, source: str) -> AgentType:
    """The type that a text describes; `name` is what it is called unless it says so itself."""
    lines = text.splitlines()
    settings: dict[str, Any] = {}
    body = text
    if lines and lines[0].rstrip() == "---":
        end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), 0)
        if not end:
            raise BadAgentType(source, 1, "the settings have no end", "end them with a line of ---")
        settings = _settings(lines[1:end], source)
        body = "\n".join(lines[end + 1 :])
    made = AgentType(**{"name": name, **settings, "instructions": body.strip(), "source": source})
    if not _NAME.fullmatch(made.name):
        raise BadAgentType(source, 1, f"{made.name!r} cannot name a type of agent", "up to 40 letters, digits, - and _")
    return made


def kinds(plan: Plan, options: Mapping[str, Any]) -> dict[str, str]:
    """What kind of agent does each task."""
    return {task.name: kind_of(options, msgspec.to_builtins(task)) for task in plan.tasks}


def to_data(plan: Plan, types: Mapping[str, AgentType]) -> dict[str, Any]:
    """What a run keeps of the types that its plan uses."""
    used = sorted({task.agent for task in plan.tasks if task.agent in types})
    return {name: msgspec.to_builtins(types[name]) for name in used}


def of_task(options: Mapping[str, Any], agent: str) -> AgentType:
    """The type that a run's task is done by, as it was recorded; one that says nothing when there is none."""
    data = (options.get("agents") or {}).get(agent)
    return AgentType(name=agent) if data is None else msgspec.convert(data, AgentType)


def kind_of(options: Mapping[str, Any], task: Mapping[str, Any]) -> str:
    """The kind of agent that does a task of a run."""
    if task.get("kind"):
        return str(task["kind"])
    if task.get("command"):
        return "shell"
    return of_task(options, task.get("agent", "")).kind or str(options.get("kind", ""))


# --- settings ----------------------------------------------------------------------------------------------------


def _settings(lines: Sequence[str], source: str) -> dict[str, Any]:
    """`key: value` for each line; a list is `[a, b]`, `a, b` or lines with `- a` below its key."""
    found: dict[str, Any] = {}
    open_list = ""
    for number, line in enumerate(lines, 2):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line.lstrip().startswith("- "):
            if not open_list:
                raise BadAgentType(source, number, "an entry of a list, and no key before it")
            found[open_list].append(_unquoted(line.lstrip()[2:]))
            continue
        key, colon, value = line.partition(":")
        key, value = key.strip(), value.strip()
        if not colon or line[0].isspace():
            raise BadAgentType(source, number, f"{line.strip()!r} is no setting", "a setting is `key: value`")
        if key not in _READERS:
            close = difflib.get_close_matches(key, _READERS, n=1)
            also = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(_READERS)}"
            raise BadAgentType(source, number, f"there is no setting {key!r}", also)
        field, reader = _READERS[key]
        if field in found:
            raise BadAgentType(source, number, f"{key} is set twice")
        try:
            found[field] = reader(value)
        except ValueError as error:
            raise BadAgentType(source, number, f"{key}: {error}") from None
        open_list = field if field == "tools" and not value else ""
    return found


def _unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _list(text: str) -> list[str]:
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    parts: Iterable[str] = map(_unquoted, re.split(r",(?![^(]*\))", inner))
    return [part for part in parts if part]


def _duration_s(text: str) -> float:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration; it looks like 90s, 20m or 2h")
    return float(match[1]) * _SECONDS[match[2]]


def _amount(text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", text):
        raise ValueError(f"{text!r} is not an amount; it looks like 2 or 0.50")
    return float(text)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ValueError(f"{text!r} is not a number")
    return int(text)


def _permission(text: str) -> str:
    if text not in PERMISSIONS:
        raise ValueError(f"{text!r} is none of {', '.join(PERMISSIONS)}")
    return text


_READERS: dict[str, tuple[str, Any]] = {
    "name": ("name", _unquoted),
    "description": ("description", _unquoted),
    "kind": ("kind", _unquoted),
    "model": ("model", _unquoted),
    "tools": ("tools", _list),
    "permission": ("permission", _permission),
    "time_limit": ("time_limit_s", _duration_s),
    "budget_usd": ("budget_usd", _amount),
    "tokens_max": ("tokens_max", _count),
    "turns_max": ("turns_max", _count),
}
