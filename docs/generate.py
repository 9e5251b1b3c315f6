"""Writes the parts of the documentation that are already in the code: of the reference python-api.md, cli.md,
event-types.md, exit-codes.md, settings.md, states.md, plan-format.md with its schema and requirements.md, and the list
of the examples.

    .venv/bin/python docs/generate.py            writes the files
    .venv/bin/python docs/generate.py --check    exit status 1 if one of them is out of date

Signatures and docstrings are read from the source, help texts from the commands, settings and plan files from their
types, events from their classes, states from the enumerations and constants that name them, and which tests show what
from the docstrings of the tests, so no file can say anything that the code does not. A test runs the check.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import re
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import inspect as types

import maos
from maos.cli import failures
from maos.cli.agent.status import code_of
from maos.cli.program import program
from maos.model.events.state import TYPES as STATE_TYPES
from maos.model.failure import TABLE
from maos.model.plan import TASKS_MAX
from maos.model.status import ATTEMPT_TRANSITIONS, RUN_TRANSITIONS, TASK_TRANSITIONS
from maos.plans import parser as plans
from maos.plans.parser import COMBINATIONS_MAX
from maos.plans.source import BYTES_MAX, YAML_BYTES_MAX
from maos.settings import loader, schema
from maos.web.endpoints.table import ENDPOINTS
from maos.web.openapi import schemas

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "maos"
REFERENCE = ROOT / "docs" / "reference"
TESTS = ROOT / "tests"
WIDTH = 100

Function = ast.FunctionDef | ast.AsyncFunctionDef

PARTS: list[tuple[str, str, list[tuple[str, list[str]]]]] = [
    (
        "Open and close",
        "",
        [
            ("app.py", ["open", "Maos", "restore", "encrypt"]),
            ("backup/service.py", ["restore_files"]),
            ("sync.py", ["connect"]),
        ],
    ),
    (
        "State of agents",
        "",
        [
            ("state/agents.py", ["AgentStates"]),
            ("state/loader.py", ["StateLoader"]),
            ("state/history.py", ["StateHistory"]),
            ("state/snapshots.py", ["StateSnapshots"]),
        ],
    ),
    (
        "Markers of updates",
        "Values with a special meaning in the changes that are given to `update`.",
        [("model/changes.py", ["DELETE", "Extend", "Replace"])],
    ),
    (
        "Results of calls about state",
        "All but `State` and `Update` are named tuples: they unpack, compare and print. Times are microseconds, UTC.",
        [
            ("state/records.py", ["State", "Update"]),
            ("model/changes.py", ["Change", "MISSING"]),
            ("state/records.py", ["StateVersion", "StateEvent", "Replay", "Peek", "StateSummary", "StatePreview"]),
            ("state/records.py", ["Retention", "SnapshotInfo", "SnapshotRestored", "Compaction"]),
        ],
    ),
    ("Cache", "", [("state/folds.py", ["Cache"]), ("state/records.py", ["CacheStatistics"])]),
    ("Journal", "", [("journal/journal.py", ["Journal"])]),
    (
        "Arguments and results of the journal",
        "",
        [
            ("journal/codec.py", ["Event", "EventType"]),
            ("journal/journal.py", ["Append", "Record"]),
            ("store/contract.py", ["Appended", "Lease"]),
        ],
    ),
    (
        "Workflows",
        "How to write them: [write-workflows.md](../howto/write-workflows.md). What a workflow's function calls is in "
        "`maos.workflows`.",
        [
            ("workflows/definition.py", ["workflow", "step"]),
            (
                "workflows/__init__.py",
                [
                    "sleep",
                    "signal",
                    "gate",
                    "parallel",
                    "gather",
                    "child",
                    "agent",
                    "now",
                    "unique",
                    "random",
                    "publish",
                    "patched",
                    "checkpoint",
                ],
            ),
            ("workflows/steps.py", ["key"]),
            ("workflows/service.py", ["Workflows"]),
            ("engine/streams.py", ["WorkflowReader"]),
            ("workflows/status.py", ["WorkflowRetry"]),
            ("workflows/definition.py", ["StepFailed", "WorkflowFailed"]),
        ],
    ),
    (
        "Runs",
        "`start` or `resume` claims a run for this process, and `execute` executes it, as the commands do.",
        [
            ("runs/service.py", ["Runs"]),
            ("runs/operations.py", ["RunOperations"]),
            ("runs/cleanup.py", ["Removal", "Cleanup"]),
            ("runs/results.py", ["RunResults", "RunSummary"]),
            ("runs/status.py", ["RunViews", "RunView"]),
            ("engine/streams.py", ["RunReader"]),
            ("runs/feed.py", ["Observer", "RunFeed", "RunUpdate", "AgentOutput"]),
            ("runs/consent.py", ["Act"]),
            ("travel/relocation.py", ["Moved"]),
            ("model/events/parts.py", ["Limits"]),
        ],
    ),
    (
        "Questions and permissions",
        "How it works: [answer-permissions.md](../howto/answer-permissions.md).",
        [
            ("views/questions.py", ["Questions", "Given"]),
            ("views/open_questions.py", ["QuestionReader"]),
            ("engine/permissions.py", ["Permissions"]),
            ("model/permission.py", ["StoredRule", "PermissionRule"]),
        ],
    ),
    (
        "Agents",
        "An agent that belongs to no run: a coding agent, a command, or a Python function. How to use them together "
        "with runs and messages: [use-from-python.md](../howto/use-from-python.md).",
        [
            ("engine/attempts.py", ["Attempts"]),
            ("engine/attempt_spec.py", ["StartOptions", "ResumeOptions"]),
            ("views/agents.py", ["Agents", "AgentEvent"]),
            ("views/agent_status.py", ["AgentStatuses"]),
            ("model/read_models.py", ["AgentStatus"]),
        ],
    ),
    (
        "Messages",
        "Messages are delivered at least once, whichever process is killed: [messages.md](../explanation/messages.md).",
        [
            ("bus/bus.py", ["Bus"]),
            ("views/messages.py", ["Messages", "MessageInfo", "MessagePage"]),
        ],
    ),
    (
        "A server elsewhere",
        "The HTTP API of `maos serve`, whose documents it returns: [http-api.md](http-api.md).",
        [("web/client.py", ["Client"])],
    ),
    (
        "Time travel",
        "How it works: [go-back-in-time.md](../howto/go-back-in-time.md). Calls return named tuples: they unpack, "
        "compare and print.",
        [
            ("travel/service.py", ["TimeTravel"]),
            ("travel/join.py", ["RunJoins"]),
            ("travel/points_in_time.py", ["PointInTime"]),
            ("travel/service.py", ["TravelPlan"]),
            ("travel/points_in_time.py", ["Difference", "Side"]),
            ("model/read_models.py", ["PlannedStep", "ChangedField"]),
            ("travel/join.py", ["JoinPlan"]),
        ],
    ),
    (
        "Export and import",
        "How it works: [move-a-run.md](../howto/move-a-run.md).",
        [
            ("transfer/service.py", ["Transfer", "Exported"]),
            ("transfer/bundle_import.py", ["Imported"]),
        ],
    ),
    ("Verification", "", [("journal/verify.py", ["Report", "Damage"])]),
    (
        "Compression",
        "`from maos.journal import compress`: the algorithms that snapshots may choose from, and how they compare.",
        [
            ("journal/compress.py", ["compress", "decompress", "compress_all", "decompress_all"]),
            ("journal/compress.py", ["compare", "recommend", "CompressionResult"]),
        ],
    ),
]

STATES: list[tuple[str, str, list[tuple[str, str]]]] = [
    (
        "Runs",
        "The recorded status of a run (`status`).",
        [("model/status.py", "RunStatus")],
    ),
    (
        "Runs, as seen",
        "The state of a run (`state`): what `maos status` and `maos ps` show. A run that has ended"
        " has the state that is recorded, unless what failed needs a person.",
        [("model/status.py", "SupervisorState")],
    ),
    ("Tasks", "Each task of a run is one of these.", [("model/status.py", "TaskStatus")]),
    (
        "Agents and their attempts",
        "The recorded status of an attempt; the status of an agent is that of its newest attempt. [Exit"
        " codes](exit-codes.md) lists the reasons of failures.",
        [("model/status.py", "AttemptStatus")],
    ),
    (
        "Agents, as seen",
        "What `maos agent list` shows of an attempt that has not ended, when the process that recorded it has exited.",
        [("model/status.py", "AgentState.DETACHED AgentState.INTERRUPTED")],
    ),
    (
        "Workflows",
        "The recorded status of a workflow run of a Python function. A plan file becomes a run.",
        [("model/status.py", "WorkflowStatus")],
    ),
    (
        "Steps of workflows",
        "Each step, sleep, signal, question and child of a workflow is one of these.",
        [("model/workflow.py", "STARTED DONE FAILED UNKNOWN ABANDONED")],
    ),
    (
        "Outcomes of effects",
        "The outcome that `maos admin effects` shows for steps, and for the tools that agents ran.",
        [
            (
                "model/read_models.py",
                "EffectOutcome.RUNNING EffectOutcome.DONE EffectOutcome.FAILED EffectOutcome.UNKNOWN",
            )
        ],
    ),
    (
        "Questions",
        "A question of a run, a gate of a workflow or a permission that an agent wants is open (`maos inbox` lists"
        " it, whether or not an engine runs) until it has an answer: from a person (`maos answer`), or, when it has a"
        " default and a time limit, by itself. The first answer is final.",
        [],
    ),
    (
        "Messages",
        "The status of a message for each of its receivers (`receivers` in `maos message list --json`).",
        [("views/messages.py", "DeliveryStatus.WAITING DeliveryStatus.DONE DeliveryStatus.DEAD")],
    ),
    (
        "Notices",
        "The status of a notice at an address (`maos admin notify list`).",
        [("model/status.py", "NoticeStatus")],
    ),
]

TRANSITIONS: dict[str, Mapping[Any, Set[Any]]] = {
    "Runs": RUN_TRANSITIONS,
    "Tasks": TASK_TRANSITIONS,
    "Agents and their attempts": ATTEMPT_TRANSITIONS,
}
"""Which state can follow which, where that is a table."""

EVENT_PAGES: list[tuple[str, str]] = [
    ("Events of runs", "run"),
    ("Events of attempts", "attempt"),
    ("Facts", "facts"),
    ("Commands", "commands"),
    ("Events of messages", "messages"),
    ("Events of workflow runs", "workflow"),
    ("Events of agents' states", "state"),
    ("Other events", "records"),
    ("Credentials, grants and servers", "access"),
    ("The audit", "audit"),
    ("Parts of events", "parts"),
]
"""The modules of `maos.model.events`, and what they are called."""

HANDLES = {
    "Maos": "m", "AgentStates": "m.state", "StateLoader": "m.state", "StateHistory": "m.state",
    "StateSnapshots": "m.state", "Cache": "m.state.cache", "Journal": "m.journal",
    "Workflows": "m.workflows", "TimeTravel": "m.travel", "RunJoins": "m.travel", "Transfer": "m.transfer",
    "Runs": "m.runs", "RunOperations": "m.runs", "RunViews": "m.runs", "Agents": "m.agents", "Attempts": "m.agents",
    "Bus": "m.bus", "Messages": "m.messages", "Questions": "m.questions", "Permissions": "m.permissions",
}  # fmt: skip
"""What an object is called by those who use it."""

WITH_EXAMPLE = {"Runs", "RunOperations", "RunViews", "Agents", "Attempts", "Bus", "Messages", "Questions", "Client"}
"""Classes of which what has an example is promised to others; the rest is for maos' own modules."""

EXPORTED = set(maos.__all__)
HIDDEN = {
    "access_ns", "acting_for", "add", "check", "check_snapshots", "codec", "decode", "grow",
    "hits", "loader", "look", "loose", "misses",
    "of", "owner", "page",
    "page_back", "put", "raw", "refreshes", "shape", "store", "total",
    "execute_agent", "find", "handle", "import_runs", "logged", "needs_consent", "notices", "now_us",
    "decode_unless_erased", "is_erased", "opened", "unpacked",
    "prepare", "schedule_with", "stop_agent", "upcoming", "without_secrets",
}  # fmt: skip
"""Public for maos' own modules; not part of what is promised to others."""
SHOWN = {"Permissions.add"}
"""Methods that are part of it, although others of the same name are not."""


def python_api() -> str:
    """The reference of the public Python API."""
    lines = [
        "# Python API",
        "",
        "<!-- Written by docs/generate.py from the docstrings. Change those and run it again. -->",
        "",
        "Every call is `async` and belongs to the event loop on which the journal was opened. When a call that writes",
        "returns, its changes are on disk. All errors are in [errors.md](errors.md); numbers such as I14 refer to",
        "[what is guaranteed](../explanation/guarantees.md).",
        "",
    ]
    for title, text, sources in PARTS:
        lines += [f"## {title}", ""]
        if text:
            lines += [text, ""]
        for file, names in sources:
            module = ast.parse((SOURCE / file).read_text())
            for name in names:
                lines += _thing(module, file, name)
    return "\n".join(lines).rstrip() + "\n"


PACKAGES = {"workflows/steps.py": "maos.workflows"}
"""Where the functions of a file are imported from, where that is not its own module."""


def _public_path(file: str, name: str) -> str:
    """What a function is called by those who use it: by its module and its name, or by its name in `maos` itself."""
    parts = (Path(file).parent if file.endswith("__init__.py") else Path(file).with_suffix("")).parts
    package = "maos" if name in EXPORTED else PACKAGES.get(file) or ".".join(("maos", *parts))
    if not hasattr(importlib.import_module(package), name):
        raise SystemExit(f"docs/generate.py: there is no {package}.{name}")
    return f"{package}.{name}"


def _thing(module: ast.Module, file: str, name: str) -> list[str]:
    for index, node in enumerate(module.body):
        if _is_overload(node):
            continue
        if isinstance(node, ast.ClassDef) and node.name == name:
            return _class(node)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
            whole = _public_path(file, name)
            return [f"### {whole}", "", *_code(_call(node, whole)), *_prose(ast.get_docstring(node))]
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            return [f"### maos.{name}", "", *_prose(_text_after(module.body, index))]
    raise SystemExit(f"docs/generate.py: there is no {name} any more")


def _is_overload(node: ast.stmt) -> bool:
    is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    return is_function and any(ast.unparse(each) == "overload" for each in node.decorator_list)


def _class(node: ast.ClassDef) -> list[str]:
    handle = HANDLES.get(node.name)
    lines = [] if handle else [f"### {'maos.' if node.name in EXPORTED else ''}{node.name}", ""]
    functions = [each for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))]
    methods = [each for each in functions if not _is_overload(each)]
    init = next((each for each in methods if each.name == "__init__"), None)
    if init is not None and not handle and node.name in EXPORTED - {"State"}:
        lines += _code(_call(init, f"maos.{node.name}"))
    text = ast.get_docstring(node) or ""
    lines += _prose(f"`{handle}`: {text[0].lower()}{text[1:]}" if handle else text)
    lines += _table([*_fields(node), *(_attributes(init) if init is not None else ()), *_properties(methods)])
    for method in methods:
        is_hidden = method.name in HIDDEN and f"{node.name}.{method.name}" not in SHOWN
        if method.name.startswith("_") or is_hidden or _is_property(method):
            continue
        if node.name in WITH_EXAMPLE and "Example::" not in (ast.get_docstring(method) or ""):
            continue
        if handle:
            lines += [f"### {handle}.{method.name}", ""]
        lines += [
            *_code(_call(method, f"{handle or node.name.lower()}.{method.name}")),
            *_prose(ast.get_docstring(method)),
        ]
    return lines


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """The fields of a named tuple, with the text below each."""
    for index, each in enumerate(node.body):
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id[0] != "_":
            default = f" = {ast.unparse(each.value)}" if each.value is not None else ""
            kind = ast.unparse(each.annotation)
            yield f"{each.target.id}: {kind}{default}", _text_after(node.body, index)


def _attributes(init: Function) -> Iterator[tuple[str, str]]:
    """The public attributes a constructor takes over from its parameters, or explains."""
    kinds = {each.arg: f": {ast.unparse(each.annotation)}" for each in init.args.args if each.annotation is not None}
    for index, each in enumerate(init.body):
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Attribute):
            name, text = each.targets[0].attr, _text_after(init.body, index)
            value = each.value.id if isinstance(each.value, ast.Name) else ""
            if not name.startswith("_") and name not in HIDDEN and (text or value):
                yield name + kinds.get(value, "").replace("states.", ""), text


def _properties(methods: list[Function]) -> Iterator[tuple[str, str]]:
    for each in methods:
        if _is_property(each) and not each.name.startswith("_"):
            assert each.returns is not None
            yield f"{each.name}: {ast.unparse(each.returns)}", ast.get_docstring(each) or ""


def _is_property(method: Function) -> bool:
    return any(
        isinstance(each, ast.Name) and each.id in ("property", "cached_property") for each in method.decorator_list
    )


def _table(fields: list[tuple[str, str]]) -> list[str]:
    if not fields:
        return []
    width = max(len(field) for field, text in fields)
    return _code(
        "\n".join(f"{field:<{width}}  # {' '.join(text.split())}" if text else field for field, text in fields)
    )


def _text_after(body: list[ast.stmt], index: int) -> str:
    following = body[index + 1] if index + 1 < len(body) else None
    if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
        return inspect.cleandoc(str(following.value.value))
    return ""


def _call(node: Function, name: str) -> str:
    """A call as one would write it: one line if it fits, else one argument a line."""
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None and node.name != "__init__" else ""
    prefix = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
    if "AsyncIterator" in returns:
        prefix, returns = "async for … in ", returns.replace("AsyncIterator[", "").removesuffix("]")
    arguments = list(_arguments(node.args))
    line = f"{prefix}{name}({', '.join(arguments)}){returns}"
    if len(line) <= WIDTH:
        return line
    return f"{prefix}{name}(\n" + "".join(f"    {each},\n" for each in arguments) + f"){returns}"


def _arguments(arguments: ast.arguments) -> Iterator[str]:
    bare = len(arguments.args) - len(arguments.defaults)
    for each, default in zip(arguments.args, [None] * bare + list(arguments.defaults), strict=True):
        if each.arg != "self":
            yield _argument(each, default)
    if arguments.kwonlyargs:
        yield "*"
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _argument(each, default)


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    value = "" if default is None else f" = {ast.unparse(default)}".replace("'", '"')
    return ast.unparse(argument) + value


def _prose(docstring: str | None) -> list[str]:
    """A docstring as Markdown: what stands indented below `Example::` becomes a block."""
    lines: list[str] = []
    for paragraph in (docstring or "").split("\n\n"):
        if paragraph.startswith("    "):
            lines += _code(textwrap.dedent(paragraph), "py")  # not `python`: those in documents are run as programs
        elif paragraph != "Example::":
            lines += [paragraph, ""]
    return lines


def _code(text: str, language: str = "text") -> list[str]:
    return [f"```{language}", text, "```", ""]  # `text` where the formatter of Python would break the columns


def cli() -> str:
    """The reference of the command line: every help text."""
    lines = [
        "# Command line",
        "",
        "<!-- Written by docs/generate.py from the help texts. Change those and run it again. -->",
        "",
        "Every command has `--json` for programs that read the output. What `maos state` can do is also in the",
        "[Python API](python-api.md).",
        "",
    ]
    for context in _commands(program, None, "maos"):
        lines += [f"## {context.command_path}", "", "```text", context.get_help().rstrip(), "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def exit_codes() -> str:
    """The reference of exit codes: what a script can decide by."""
    lines = [
        "# Exit codes",
        "",
        "<!-- Written by docs/generate.py from maos/cli/failures.py. Change that and run it again. -->",
        "",
        "The exit codes of all commands. For commands that execute an agent or a run (`maos agent run`, `maos run`,",
        "`maos resume`, `maos chat`) the code says how to continue after a failure: after 6, 7 and 9 repeat the",
        "command or use `maos resume`; after 8 a person has to act first. Errors are printed on standard error, with",
        "a hint; [errors.md](errors.md) lists the exceptions of the Python API.",
        "",
        "| code | means |",
        "|---|---|",
        *(f"| {code} | {meaning} |" for code, meaning in failures.EXIT_CODES),
        "",
        "The reasons why an agent or a task fails (`failure` in `--json`), and their exit codes:",
        "",
        "| failure | means | code |",
        "|---|---|---|",
        *(f"| `{each.name}` | {each.meaning} | {code_of(each.name)} |" for each in TABLE.values()),
    ]
    return "\n".join(lines) + "\n"


def _commands(command: click.Command, parent: click.Context | None, name: str) -> Iterator[click.Context]:
    context = click.Context(command, info_name=name, parent=parent, terminal_width=WIDTH, **command.context_settings)
    yield context
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from _commands(found, context, each)


def cited(pattern: str = r"\bR-\d+\b") -> dict[str, dict[str, list[str]]]:
    """The tests of `make test` that cite each requirement in their docstrings, or their files': names by file."""
    found: dict[str, dict[str, list[str]]] = {}
    for path, name, docstring in _docstrings():
        for id in re.findall(pattern, docstring):
            found.setdefault(id, {}).setdefault(path, []).append(name)
    return found


@functools.cache
def _docstrings() -> tuple[tuple[str, str, str], ...]:
    """The file, the name and the docstring of each test of `make test`, and of each of their files as `all`."""
    found = []
    for path in sorted(TESTS.rglob("test_*.py")):
        if "agents_large" in path.parts:
            continue
        module = ast.parse(path.read_text())
        tests = [each for each in ast.walk(module) if isinstance(each, Function) and each.name.startswith("test_")]
        name = path.relative_to(TESTS).as_posix()
        found.append((name, "all", ast.get_docstring(module) or ""))
        found += [(name, each.name, ast.get_docstring(each) or "") for each in tests if not _is_left_out(each)]
    return tuple(found)


def _is_left_out(test: Function) -> bool:
    marks = [ast.unparse(each) for each in test.decorator_list]
    return any(each.startswith(("pytest.mark.soak", "pytest.mark.agents")) for each in marks)


def requirements() -> str:
    """What maos sets out to do, and the tests that show it."""
    tests = cited()
    lines = [
        "# Requirements",
        "",
        "<!-- Written by docs/generate.py from requirements.toml and the tests. Change those and run it again. -->",
        "",
        "The requirements of maos, and the files below `tests` with tests that cite each id. *Not yet* means that no",
        "test does. The [guarantees](#guarantees) and the [attacks](#attacks) are at the end.",
        "",
    ]
    for part in tomllib.loads((REFERENCE / "requirements.toml").read_text()).values():
        lines += [f"## {part.pop('title')}", "", "| id | what | tests |", "|---|---|---|"]
        for id, says in part.items():
            files = ", ".join(f"`{each}`" for each in tests.get(id, ())) or "not yet"
            lines.append(f"| {id} | {says} | {files} |")
        lines.append("")
    for title, page, name, letter in (
        ("Guarantees", "guarantees.md", "what is guaranteed", "I"),
        ("Attacks", "security.md", "the attacks on maos", "A"),
    ):
        found = cited(rf"\b{letter}\d+\b")
        text = (ROOT / "docs" / "explanation" / page).read_text()
        lines += [f"## {title}", "", f"By the numbers of [{name}](../explanation/{page}).", ""]
        lines += ["| id | what | tests |", "|---|---|---|"]
        for id, says in re.findall(rf"^\| ({letter}\d+) \| ([^|]+) \|", text, re.MULTILINE):
            lines.append(f"| {id} | {says} | {', '.join(f'`{each}`' for each in found.get(id, ())) or 'not yet'} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def settings() -> str:
    """The reference of the settings: each with its default, what it can be, and its variable."""
    lines = [
        "# Settings",
        "",
        "<!-- Written by docs/generate.py from src/maos/settings/schema.py. Change that and run it again. -->",
        "",
        "How to use them: [Change settings](../howto/change-settings.md). A setting is a key in a table of",
        f"`maos.toml`, or a variable. The file may begin with `version = {schema.VERSION}`. *Live* settings",
        "take effect in running engines within seconds; the others at the next start.",
        "",
    ]
    for section, about in schema.sections().items():
        lines += [f"## [{section}]", "", about, ""]
        lines += ["| setting | default | can be | | variable |", "|---|---|---|---|---|"]
        fields = [each for each in schema.fields().values() if each.name.startswith(f"{section}.")]
        for each in fields:
            default = f"`{loader.to_toml(each.default)}`" if each.variable else ""
            live = "live" if each.live else ""
            variable = f"`{each.variable}`" if each.variable else ""
            lines.append(f"| `{each.name.partition('.')[2]}` | {default} | {each.allowed} | {live} | {variable} |")
        lines += ["", *(f"* `{each.name.partition('.')[2]}`: {each.description}" for each in fields), ""]
    lines += [
        "## Only variables",
        "",
        "These cannot be set in a file:",
        "",
        "| variable | means |",
        "|---|---|",
        "| `MAOS_HOME` | the folder of running agents and their worktrees; default: `maos` in `XDG_STATE_HOME` |",
        "",
        "## Names of older versions",
        "",
        "A file with `version = 0` can use the names of maos-cli:",
        "",
        "| name | is |",
        "|---|---|",
        *(f"| `{old}` | `{new}` |" for old, new in schema.UPGRADES[0].items()),
        "",
    ]
    return "\n".join(lines).rstrip() + "\n"


def event_types() -> str:
    """The reference of events: every field of every class, from the source."""
    lines = [
        "# Event types",
        "",
        "<!-- Written by docs/generate.py from maos.model.events. Change that and run it again. -->",
        "",
        "The data of an event is a JSON object with these fields; a field with its default value is left out.",
        "Types are registered when a journal is opened; reading an event of an unknown type or of a newer format",
        "raises `UnknownFormat`, with its name, and reading a field of another type raises `Corrupt`. All types below",
        "have format 1. Fields that end with `_us` are times: microseconds since 1970, UTC.",
        "",
    ]
    for title, name in EVENT_PAGES:
        module = ast.parse((SOURCE / "model" / "events" / f"{name}.py").read_text())
        classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
        lines += [f"## {title}", "", *_prose(ast.get_docstring(module))]
        for node in classes.values():
            lines += _event_type(node, classes)
            if node.name == "StateUpdated":
                lines += ["All changes of a state have the fields of `state_updated`.", ""]
                for stored, meaning in STATE_TYPES.items():
                    lines += [f"### {stored}", "", meaning, ""]
    lines += [
        "## Events of your own",
        "",
        'Any stream and any type, registered with `maos.open(…, types=[maos.EventType("step_done")])`; how to change',
        "one later is in [add-an-event-type.md](../howto/add-an-event-type.md). The streams on this page, and those",
        "whose names begin with `journal/`, are reserved for maos; `journal/dictionaries` has compression dictionaries",
        "(`dictionary_trained`), not JSON.",
    ]
    return "\n".join(lines).rstrip() + "\n"


def _event_type(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> list[str]:
    """A class that is stored: an event with its name, a fact with its kind, or a part of others."""
    names = [each.args[0] for each in node.decorator_list if isinstance(each, ast.Call)]
    names += [each.value for each in node.keywords if each.arg == "tag"]
    bases = [each.id for each in node.bases if isinstance(each, ast.Name)]
    if not names and bases not in (["TypedDict"], ["RunVersion"]):
        return []
    title = ast.literal_eval(names[0]) if names else node.name
    lines = [f"### {title}", "", *_prose(ast.get_docstring(node))]
    rows = list(_event_fields(node, classes))
    if rows:
        lines += ["| field | type | default | |", "|---|---|---|---|", *rows, ""]
    return lines


def _event_fields(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> Iterator[str]:
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in classes:
            yield from _event_fields(classes[base.id], classes)
    for index, each in enumerate(node.body):
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            name, default = each.target.id, "" if each.value is None else ast.unparse(each.value)
            if isinstance(each.value, ast.Call):  # a field whose name in JSON is another one
                given = {one.arg: ast.unparse(one.value) for one in each.value.keywords}
                name, default = given["name"].strip("'"), given.get("default", "")
            kind = ast.unparse(_plain_type(each.annotation)).replace("|", "\\|")
            text = " ".join(_text_after(node.body, index).split())
            yield f"| `{name}` | `{kind}` | {f'`{default}`' if default else ''} | {text} |"


def _plain_type(annotation: ast.expr) -> ast.expr:
    """A type without what `Annotated` says of it."""
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
        assert isinstance(annotation.slice, ast.Tuple)
        return annotation.slice.elts[0]
    return annotation


PLAN_YAML = """\
name: release
request: Release version 1.2
summary: Test, write the notes, publish
variables: {version: "1.2"}
concurrency: 3
tasks:
  - name: test
    command: tox -e {{ matrix.python }}
    matrix: {python: [py311, py312]}
    time_limit_s: 600
  - name: notes
    task: Write the release notes of version {{ version }} into NOTES.md
    agent: developer
    needs: test
    budget_usd: 0.5
    gates:
      - command: grep -q {{ version }} NOTES.md
      - review: Do the notes name every change that users see?
  - name: size
    python: release:measure
    with: {version: "{{ version }}", limit_mb: 20}
    needs: test
  - name: publish
    command: [sh, -c, "twine upload dist/*-{{ version }}*"]
    needs: [notes, size]
    gates:
      - person: Is {{ version }} to be announced?
"""
PLAN_TOML = """\
name = "release"
request = "Release version 1.2"
summary = "Test, write the notes, publish"
variables = {version = "1.2"}
concurrency = 3

[[tasks]]
name = "test"
command = "tox -e {{ matrix.python }}"
matrix = {python = ["py311", "py312"]}
time_limit_s = 600

[[tasks]]
name = "notes"
task = "Write the release notes of version {{ version }} into NOTES.md"
agent = "developer"
needs = "test"
budget_usd = 0.5
[[tasks.gates]]
command = "grep -q {{ version }} NOTES.md"
[[tasks.gates]]
review = "Do the notes name every change that users see?"

[[tasks]]
name = "size"
python = "release:measure"
with = {version = "{{ version }}", limit_mb = 20}
needs = "test"

[[tasks]]
name = "publish"
command = ["sh", "-c", "twine upload dist/*-{{ version }}*"]
needs = ["notes", "size"]
gates = [{person = "Is {{ version }} to be announced?"}]
"""


def plan_format() -> str:
    """The reference of plan files: each field with its type, its default and its meaning."""
    lines = [
        "# Plan format",
        "",
        "<!-- Written by docs/generate.py from src/maos/plans/parser.py. Change that and run it again. -->",
        "",
        "A plan lists tasks, and for each task the tasks that it needs. It is a file in YAML, TOML or JSON, with the",
        "same fields in each; a file whose name ends in none of `.yaml`, `.yml`, `.toml` and `.json` is recognised by",
        "its content. `maos run -f FILE` and `maos workflow run FILE` execute it, `maos resume --task",
        "@FILE` adds its tasks to a run, and `m.runs.start` takes its path or the same fields as data.",
        "`maos workflow validate FILE` names every problem by file, line and column, and the",
        "[JSON Schema](plan.schema.json), which `maos workflow schema` prints, lets editors do so while you type.",
        "",
        "## Example",
        "",
        "```yaml",
        *PLAN_YAML.splitlines(),
        "```",
        "",
        "The same in TOML:",
        "",
        "```toml",
        *PLAN_TOML.splitlines(),
        "```",
        "",
    ]
    for title, struct in (("The plan", plans.FilePlan), ("A task", plans.FileTask), ("A gate", plans.FileGate)):
        lines += [f"## {title}", "", inspect.cleandoc(struct.__doc__ or ""), ""]
        lines += ["| field | type | default | means |", "|---|---|---|---|"]
        lines += [_plan_field(each) for each in types.type_info(struct).fields]
        lines.append("")
    lines += [
        "## Texts",
        "",
        "`{{ NAME }}` is replaced by the value of a variable as it is written in the file: `1.10` stays `1.10`. In a",
        "command a value with spaces stays one word. `{{ '{{' }}` is replaced by two braces.",
        "",
        "YAML is version 1.2 with its core schema: `yes`, `22:22` and `2026-01-02` are text. Dates in TOML are text",
        "too.",
        "",
        "## Limits",
        "",
        f"A file has at most {BYTES_MAX >> 20} MB, in YAML {YAML_BYTES_MAX >> 20} MB; a plan has at most",
        f"{TASKS_MAX:,} tasks, a task at most {COMBINATIONS_MAX} combinations.",
    ]
    return "\n".join(lines) + "\n"


def _plan_field(field: types.Field) -> str:
    assert isinstance(field.type, types.Metadata)
    means = (field.type.extra_json_schema or {})["description"]
    default = "required" if field.required else ""
    if field.default not in (msgspec.NODEFAULT, None, ""):
        default = _json(field.default)
    return f"| `{field.encode_name}` | {_type(field.type.type)} | {default} | {means} |"


def _json(value: object) -> str:
    return f"`{json.dumps(value)}`"


def _type(type_: types.Type) -> str:
    """A type in words."""
    match type_:
        case types.Metadata():
            return _type(type_.type)
        case types.StrType():
            return f"text of up to {type_.max_length} letters, digits, - and _" if type_.pattern else "text"
        case types.IntType() | types.FloatType():
            kind = "whole number" if isinstance(type_, types.IntType) else "number"
            return f"{kind}, {type_.ge:,} or more" if type_.ge is not None and type_.ge in (0, 1) else kind
        case types.BoolType():
            return "true or false"
        case types.LiteralType():
            return " or ".join(_json(each) for each in type_.values)
        case types.ListType(item_type=types.StructType(cls=cls)):
            return f"list of {'tasks' if cls is plans.FileTask else 'gates'}"
        case types.ListType():
            return f"list of {_type(type_.item_type)}"
        case types.DictType(key_type=types.StrType(pattern=str())):
            return f"names, each with {_type(type_.value_type)}"
        case types.DictType():
            return "names, each with a value"
        case types.UnionType():
            kinds = [_type(each) for each in type_.types if not isinstance(each, types.NoneType)]
            return "text, number, true or false" if len(kinds) > 2 else " or ".join(kinds)
    raise SystemExit(f"docs/generate.py: {type_} has no words")


def plan_schema() -> str:
    """The JSON Schema of plan files."""
    return json.dumps(plans.schema(), indent=2) + "\n"


def states() -> str:
    """The reference of states: each with what it means and what leads out of it, from the text below its constant."""
    lines = [
        "# States",
        "",
        "<!-- Written by docs/generate.py from the text below each name in the code. Change that and run it again. -->",
        "",
        "What things can be, as commands show it, `--json` says it and [events](event-types.md) record it. Everything",
        "but what is marked as *seen* is a fold of recorded events; what is seen also depends on which processes live.",
        "",
    ]
    for title, text, sources in STATES:
        lines += [f"## {title}", "", text, ""]
        lines += ["| state | means | what leads out of it |", "|---|---|---|"] if sources else []
        for file, names in sources:
            body = ast.parse((SOURCE / file).read_text()).body
            for state, says in (each for name in names.split() for each in _states(body, name)):
                means, _, way = says.partition(". ")
                lines.append(f"| `{state}` | {means} | {way} |")
        lines.append("")
        if table := TRANSITIONS.get(title):
            lines += ["| from | to |", "|---|---|"]
            for state, following in table.items():
                ways = [f"`{each}`" for each in type(state) if each in following]
                lines.append(f"| `{state}` | {', '.join(ways) or 'none'} |")
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _states(body: list[ast.stmt], name: str) -> list[tuple[str, str]]:
    """A constant, or the members of an enumeration: all of them, or the one after the dot."""
    enumeration, _, member = name.partition(".")
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name == enumeration:
            names = [each.targets[0].id for each in node.body
                     if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name)]  # fmt: skip
            return [_constant(node.body, each) for each in names if member in ("", each)]
    return [_constant(body, name)]


def _constant(body: list[ast.stmt], name: str) -> tuple[str, str]:
    for index, node in enumerate(body):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            text = " ".join(_text_after(body, index).split())
            if not isinstance(node.value, ast.Constant) or ". " not in text:
                raise SystemExit(
                    f"docs/generate.py: {name} needs two sentences: what it means, and what leads out of it"
                )
            return str(node.value.value), text
    raise SystemExit(f"docs/generate.py: there is no {name} any more")


HTTP_API = """
Every request needs a credential: `Authorization: Bearer TOKEN`, or the cookie of a session. Roles are viewer, answerer,
operator and admin; each allows what those before it do. Bodies are JSON objects with the fields below; other fields,
and other parameters, are refused. Times end in `_us`: microseconds since 1970.

Errors are `application/problem+json`: `detail` says what happened, `hint` what to do. Lists have `limit` and `cursor`;
`next` of a page is the cursor of the next one. With an `Idempotency-Key`, a repeated request to start or fork a run, to
send a message or a signal, or to update a state changes nothing more; the other requests can be repeated as they are.

A run and a state have their version as ETag; with `If-Match`, a request is refused with 412 when it is at another
version. The version of a state is compared in the transaction that changes it. The version of a run is compared when
the request arrives, before its command is recorded: what is recorded of the run in between, by its engine for instance,
does not refuse the request.

`/api/v1/stream` sends server-sent events. The id of an event is its position in the journal, so `Last-Event-ID`
continues after it: every event comes once. The event `recorded` has a document; `position` says that everything up to
its id was sent; `snapshot`, only with `lag_max`, that the events up to its id were left out. A comment comes every 15
seconds.

Beside the API, `GET /metrics` (viewer) has the figures of `maos stats --prometheus`, and `GET /health` says without a
credential that the server is alive.
"""


def http_api() -> str:
    """The reference of the HTTP API, from the table of endpoints and the classes in it."""
    lines = [
        "# HTTP API",
        "",
        "<!-- Written by docs/generate.py from the endpoints and documents of maos.web. Change those and run it",
        "again. -->",
        "",
        "The API of `maos serve` ([how to run it](../howto/run-as-a-service.md)). `/api/v1/openapi.json` describes it",
        "as OpenAPI 3.1, from the same classes.",
        "",
        *HTTP_API.strip().splitlines(),
        "",
        "| request | verb | on | |",
        "|---|---|---|---|",
    ]
    shown: dict[str, type[msgspec.Struct]] = {}
    for each in ENDPOINTS:
        path = re.sub(r"{(\w+):path}", r"{\1}", each.path)
        parts = [(word, kind) for word, kind in (("parameters", each.query), ("body", each.body)) if kind is not None]
        uses = [f"{word}: [{kind.__name__}](#{kind.__name__.lower()})" for word, kind in parts]
        uses += [f"returns [{each.result.__name__}](#{each.result.__name__.lower()})"] if each.result else []
        summary = each.summary.replace("|", "\\|")
        about = f"{summary} ({'; '.join(uses)})" if uses else summary
        lines.append(
            f"| `{each.method} {path}` | {'none' if each.on == 'nothing' else each.verb} | {each.on} | {about} |"
        )
        shown |= {kind.__name__: kind for kind in (each.query, each.body, each.result) if kind is not None}
    lines += ["", "## Documents", ""]
    for name, described in sorted(schemas(list(shown.values()), "{name}").items()):
        lines += [f"### {name}", "", " ".join(described.get("description", "").split()), ""]
        required = described.get("required", ())
        fields = described.get("properties", {}).items()
        if fields:
            lines += ["| field | type | |", "|---|---|---|"]
        elif "enum" in described:
            lines.append(f"One of {', '.join(f'`{each}`' for each in described['enum'])}.")
        for field, of in fields:
            what = " ".join(str(of.get("description", "")).split()).replace("|", "\\|")
            default = "" if field in required else f"default `{json.dumps(of.get('default'))}`"
            lines.append(f"| `{field}` | {_schema_type(of)} | {'. '.join(each for each in (what, default) if each)} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _schema_type(of: Mapping[str, Any]) -> str:
    """The type of a field in words."""
    if "$ref" in of:
        return f"[{of['$ref']}](#{of['$ref'].lower()})"
    if "enum" in of:
        return " or ".join(f"`{each}`" if each != "" else "empty" for each in of["enum"])
    if "anyOf" in of:
        return " or ".join(_schema_type(each) for each in of["anyOf"])
    if "prefixItems" in of:
        return f"[{', '.join(_schema_type(each) for each in of['prefixItems'])}]"
    if of.get("type") == "array":
        return f"list of {_schema_type(of.get('items', {}))}"
    return str(of.get("type", "anything"))


def examples() -> str:
    """The list of the examples, with what each shows."""
    lines = [
        "# Examples",
        "",
        "<!-- Written by docs/generate.py from the docstrings of the examples. Change those and run it again. -->",
        "",
        "Programs to read and to run, in this order: `python examples/01_first_state.py`. Each says in its first lines",
        "what it prints, and the tests compare.",
        "",
        "| | shows |",
        "|---|---|",
    ]
    for path in sorted((ROOT / "examples").glob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        lines.append(f"| [{path.stem}](../examples/{path.name}) | {' '.join(text.partition(chr(10) * 2)[0].split())} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the files, or only compare."""
    stale = []
    pages = {
        "reference/python-api.md": python_api(), "reference/cli.md": cli(), "reference/exit-codes.md": exit_codes(),
        "reference/event-types.md": event_types(), "reference/settings.md": settings(), "reference/states.md": states(),
        "reference/plan-format.md": plan_format(), "reference/plan.schema.json": plan_schema(),
        "reference/requirements.md": requirements(), "examples.md": examples(),
        "reference/http-api.md": http_api(),
    }  # fmt: skip
    for name, text in pages.items():
        path = ROOT / "docs" / name
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
                sys.stdout.write(f"wrote docs/{name}\n")
    if stale and "--check" in sys.argv:
        sys.stdout.write(f"out of date: {', '.join(stale)}; run `python docs/generate.py`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
