"""Types of agents, such as developer or reviewer: the instructions of an agent of that type, and what it may do.

A type is a Markdown file: what stands between two lines of `---` at its top are settings, the rest is what the agent
is told. maos has a few; those in the user's folder come before them, and those of the project before both. What a type
said when a run was made is recorded with the run: changing the file later changes nothing about it.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from maos import settings
from maos.errors import InvalidInput
from maos.files import read_bounded
from maos.model import preparation
from maos.model.permission import SHELL
from maos.model.plan import Plan
from maos.patterns import regex

SHIPPED = Path(__file__).parent / "roles"
FOLDER = Path(".maos") / "agents"
"""Below the project's folder."""
PERMISSIONS = ("ask", "edits", "deny")
BYTES_MAX = 1 << 20

TESTS = "@tests"
"""What a type says among its tools for all commands in `TEST_COMMANDS`, with any arguments."""
TEST_COMMANDS = (
    "pytest",
    "python -m pytest",
    "python3 -m pytest",
    "python -m unittest",
    "python3 -m unittest",
    "uv run pytest",
    "poetry run pytest",
    "tox",
    "nox",
    "ruff check",
    "ruff format",
    "mypy",
    "pyright",
    "npm test",
    "npm run test",
    "npm run lint",
    "pnpm test",
    "pnpm run test",
    "pnpm run lint",
    "yarn test",
    "yarn lint",
    "make test",
    "make check",
    "make lint",
    "cargo test",
    "cargo check",
    "cargo clippy",
    "go test",
    "go vet",
    "mvn test",
    "gradle test",
    "./gradlew test",
    "dotnet test",
    "bundle exec rspec",
    "mix test",
)
"""Commands by which projects are tested and checked. They execute code of the project, which the agent may have
changed: see docs/explanation/security.md. None of them runs a program of a registry by its name."""

_NAME = regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


_TEST_RULES = tuple(f"{SHELL}({command} *)" for command in TEST_COMMANDS)


class AgentType(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One type of agent."""

    name: str
    description: str = ""
    kind: str = ""
    model: str = ""
    tools: list[str] = []
    """What it may use without asking."""
    permission: str = ""
    time_limit_s: float = 0.0
    budget_usd: float = 0.0
    tokens_max: int = 0
    turns_max: int = 0
    setup: list[list[str]] | None = None
    """Commands that prepare the workspaces of its agents."""
    setup_inputs: list[str] = []
    copy_ignored: list[str] = []
    env: list[str] = []
    mcp_servers: list[str] | None = None
    """Which MCP servers of the person's settings its agents are given; None: all."""
    instructions: str = ""
    source: str = ""
    """The file it was read from."""


class BadAgentType(InvalidInput):
    """A file that does not describe a type of agent."""

    def __init__(self, path: str, line: int, what: str, hint: str = "") -> None:
        super().__init__(f"{path}, line {line}: {what}", hint=hint or "fix the file, or move it away")


def known(project: Path, config: Path | None = None) -> dict[str, AgentType]:
    """All types that can be used in a project: its own, the user's (in `agents` below `config`), and ours."""
    found: dict[str, AgentType] = {}
    own = (SHIPPED, (config or settings.config_folder()) / "agents")
    for folder in (*own, project / FOLDER):
        for path in sorted(folder.glob("*.md")):
            each = read(path)
            if folder not in own:
                _check_of_project(each, path, own[1])
            found[each.name] = each
    return found


def _check_of_project(found: AgentType, path: Path, own: Path) -> None:
    """BadAgentType when a type that a repository may have brought names a program, or asks for variables or files."""
    if settings.names_program(found.kind):
        hint = f"put the type into your own folder ({own}), or name the kind in the plan or with --kind"
        raise BadAgentType(str(path), 1, f"a project's type cannot name a program: kind is {found.kind!r}", hint)
    for field in preparation.FIELDS:
        if getattr(found, field, None):
            hint = f"put the type into your own folder ({own}), or {field} into the plan or maos.toml"
            raise BadAgentType(str(path), 1, f"a project's type cannot have {field}", hint)


def read(path: Path) -> AgentType:
    """The type that a file describes."""
    try:
        content = read_bounded(path, BYTES_MAX)
        text = content.decode("utf-8")
    except OSError as error:
        raise BadAgentType(str(path), 1, f"it cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadAgentType(str(path), 1, "it is not text in UTF-8") from error
    if len(content) > BYTES_MAX:
        raise BadAgentType(str(path), 1, f"the file is larger than {BYTES_MAX} bytes")
    return parse(text, name=path.stem, source=str(path))


def parse(text: str, *, name: str, source: str) -> AgentType:
    """The type that a text describes; `name` is what it is called unless it says so itself."""
    lines = text.splitlines()
    said: dict[str, Any] = {}
    body = text
    if lines and lines[0].rstrip() == "---":
        end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), 0)
        if not end:
            raise BadAgentType(source, 1, "the settings have no end", "end them with a line of ---")
        said = _settings(lines[1:end], source)
        body = "\n".join(lines[end + 1 :])
    made = AgentType(**{"name": name, **said, "instructions": body.strip(), "source": source})
    made.tools = [each for tool in made.tools for each in ((*_TEST_RULES,) if tool == TESTS else (tool,))]
    for _field, what, hint in preparation.check(preparation.of_options(msgspec.structs.asdict(made))):
        raise BadAgentType(source, 1, what, hint)
    if not _NAME.fullmatch(made.name):
        raise BadAgentType(source, 1, f"{made.name!r} cannot name a type of agent", "up to 40 letters, digits, - and _")
    return made


def shown_tools(tools: Sequence[str]) -> list[str]:
    """Tools as a person reads them: all test commands together under their short name."""
    has_tests = set(_TEST_RULES) <= set(tools)
    return [*([TESTS] if has_tests else []), *(each for each in tools if not has_tests or each not in _TEST_RULES)]


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
            entry = _unquoted(line.lstrip()[2:])
            try:
                found[open_list].append(shlex.split(entry) if open_list == "setup" else entry)
            except ValueError as error:
                raise BadAgentType(source, number, f"{entry!r} is no command: {error}") from error
            continue
        key, colon, value = line.partition(":")
        key, value = key.strip(), value.strip()
        if not colon or line[0].isspace():
            raise BadAgentType(source, number, f"{line.strip()!r} is no setting", "a setting is `key: value`")
        if key not in _SETTINGS:
            close = difflib.get_close_matches(key, _SETTINGS, n=1)
            also = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(_SETTINGS)}"
            if key == "include_uncommitted":
                also = "all tasks of a run start from one commit: give it in the plan or the settings"
            raise BadAgentType(source, number, f"there is no setting {key!r}", also)
        field, form, convert, wrong = _SETTINGS[key]
        if field in found:
            raise BadAgentType(source, number, f"{key} is set twice")
        if not re.fullmatch(form, value):
            raise BadAgentType(source, number, f"{key}: {value!r} is {wrong}")
        try:
            found[field] = convert(value)
        except ValueError as error:
            raise BadAgentType(source, number, f"{key}: {error}") from error
        open_list = field if isinstance(found[field], list) and not value else ""
    return found


def _unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _list(text: str) -> list[str]:
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    parts: Iterable[str] = map(_unquoted, re.split(r",(?![^(]*\))", inner))
    return [part for part in parts if part]


def _commands(text: str) -> list[list[str]]:
    return [shlex.split(_unquoted(text))] if text else []


def _seconds(text: str) -> float:
    return float(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


_NUMBER = r"[0-9]+(\.[0-9]+)?"
_SETTINGS: dict[str, tuple[str, str, Callable[[str], Any], str]] = {
    "name": ("name", ".*", _unquoted, ""),
    "description": ("description", ".*", _unquoted, ""),
    "kind": ("kind", ".*", _unquoted, ""),
    "model": ("model", ".*", _unquoted, ""),
    "tools": ("tools", ".*", _list, ""),
    "permission": ("permission", "|".join(PERMISSIONS), str, f"none of {', '.join(PERMISSIONS)}"),
    "time_limit": ("time_limit_s", rf"{_NUMBER}\s*[smh]", _seconds, "not a duration; it looks like 90s, 20m or 2h"),
    "budget_usd": ("budget_usd", _NUMBER, float, "not an amount; it looks like 2 or 0.50"),
    "tokens_max": ("tokens_max", "[0-9]{1,9}", int, "not a number"),
    "turns_max": ("turns_max", "[0-9]{1,9}", int, "not a number"),
    "setup": ("setup", ".*", _commands, ""),
    "setup_inputs": ("setup_inputs", ".*", _list, ""),
    "copy_ignored": ("copy_ignored", ".*", _list, ""),
    "env": ("env", ".*", _list, ""),
    "mcp_servers": ("mcp_servers", ".*", _list, ""),
}
"""For each key: the field, the form of its value, how that is read, and what is said of a value in another form."""
