"""What a plan file holds, and its text as a plan: variables filled in, matrices spread out, problems with positions."""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from maos.model import preparation
from maos.model.plan import BadPlan, Gate, Guesses, Plan, Problem, Task, check, shown, unknown_need
from maos.model.preparation import Preparation
from maos.patterns import regex
from maos.plans.source import JSON, Located, Scalar, Source, of_data, read
from maos.settings.positions import Path
from maos.tuples import NamedTuple

VERSION = 1
Word = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=40)]
Priority = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Concurrency = Annotated[int, Meta(ge=1, le=1000)]
Command = str | list[str]
COMBINATIONS_MAX = 256
BRACES = "write {{ '{{' }} for two braces"

_USE = regex(r"\{\{\s*(?:'([^'\n]*)'|\"([^\"\n]*)\"|([A-Za-z0-9_.-]*))\s*\}\}")
_QUOTED = regex(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.")
_OPERATOR = regex(r"(?:^|\s)(&&|\|\|?|;|>>?|<)(?=\s|$)")
"""What a shell would act on, between words and not quoted; without one it is an argument."""
_KEPT = regex("\x00(\\d+)\x00")
_INDEX = regex(r"\.?([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_WORDS = {
    "array": "a list", "object": "a mapping", "str": "text", "int": "a whole number", "float": "a number",
    "bool": "true or false", "null": "nothing",
}  # fmt: skip
_OLD_NAMES = {
    "steps": "tasks", "jobs": "tasks", "description": "summary", "vars": "variables",
    "depends_on": "needs", "dependencies": "needs", "after": "needs", "prompt": "task", "instructions": "task",
    "run": "command", "cmd": "command", "script": "command", "type": "agent", "checks": "gates", "gate": "gates",
    "timeout": "time_limit_s", "time_limit": "time_limit_s", "budget": "budget_usd", "tokens": "tokens_max",
    "environment": "env", "args": "with", "arguments": "with",
}  # fmt: skip
"""What other programs and earlier versions call a field."""
_RETRIES = "how often is decided by why it failed; a task that failed for good is retried with `maos retry`"


SETUP = (
    "Commands that run before an agent starts, in this order, in a workspace of their own; what they make is copied "
    "into the agents' workspaces. They run once for all agents that need the same. Each is written like `command`."
)
SETUP_INPUTS = (
    "Patterns of the files that the result of `setup` depends on: it runs again when one of them has changed. By "
    "default lists of dependencies, build files and sources of compiled languages; `**` stands for all files."
)
COPY_IGNORED = (
    "Patterns of ignored files of your folder that the workspaces get copies of, such as `.env` or `node_modules`. "
    "None by default."
)
ENV = (
    "Variables of the agents: a table of names and values, or a list of `NAME=VALUE`. A `NAME` in the list, and an "
    "empty value in a table of YAML or JSON, stand for a variable of yours that is passed on; secrets are given in "
    "this way only."
)
UNCOMMITTED = (
    "Whether the workspaces start with your uncommitted changes; or patterns of the files whose changes they start "
    "with."
)
Setup = Annotated[str | list[Command] | None, Meta(description=SETUP)]
Env = Annotated[dict[str, Scalar | None] | list[str], Meta(description=ENV)]


class FileGate(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A check that a task must pass before it is done: exactly one of these."""

    command: Annotated[Command, Meta(description="A command that must succeed.")] = ""
    person: Annotated[str, Meta(description="A question that a person answers with yes or no.")] = ""
    review: Annotated[str, Meta(description="Instructions for an agent that reviews the work.")] = ""


class FileTask(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One piece of work: a `task` for an agent, a `command` (a `task` beside it says what it is for), or `python`."""

    name: Annotated[Word, Meta(description="The name of the task, which no other task of the plan has.")]
    task: Annotated[str, Meta(description="The task of an agent, in words.")] = ""
    command: Annotated[
        Command,
        Meta(description="A command. A string is split into words as a shell does; no shell runs it, so there are "
             "no pipes and no `$VARIABLES`. A list is used as it is."),
    ] = ""  # fmt: skip
    python: Annotated[str, Meta(description="A function, as `module:name`, in a process of its own.")] = ""
    arguments: Annotated[dict[str, Any], Meta(description="Arguments of the function, as JSON, in `context.task`.")] = (
        msgspec.field(default_factory=dict, name="with")
    )
    needs: Annotated[
        str | list[str],
        Meta(description="Tasks that must be done before this one starts. The name of a task with a matrix means all "
             "its combinations."),
    ] = []  # fmt: skip
    matrix: Annotated[
        dict[Word, list[Scalar]],
        Meta(description="The task once for each combination of these values, used as `{{ matrix.NAME }}`."),
    ] = {}
    gates: Annotated[list[FileGate], Meta(description="Checks that the work must pass, in this order.")] = []
    agent: Annotated[
        str, Meta(description="The type of agent, such as `developer`; its settings apply where the task has none.")
    ] = ""
    kind: Annotated[str, Meta(description="The kind of agent, such as `claude`, `codex` or `acp:gemini`.")] = ""
    model: Annotated[str, Meta(description="The model that the agent uses.")] = ""
    tools: Annotated[list[str], Meta(description="The tools that the agent may use without asking.")] = []
    mcp: Annotated[
        bool,
        Meta(description="Whether a command gets the variables that `maos mcp` needs; an agent with a model always has "
             "its tools."),
    ] = False  # fmt: skip
    priority: Annotated[Priority, Meta(description="Of the tasks that can start, the highest starts first.")] = 0
    time_limit_s: Annotated[
        float, Meta(ge=0, le=1e9, description="The task fails after so many seconds; 0: the limit of the run.")
    ] = 0.0
    budget_usd: Annotated[
        float, Meta(ge=0, le=1e9, description="The task is stopped when it has cost so much; 0: no limit.")
    ] = 0.0
    tokens_max: Annotated[
        int, Meta(ge=0, le=1 << 53, description="The task is stopped after so many tokens; 0: no limit.")
    ] = 0
    setup: Annotated[Setup, Meta(description=f"{SETUP} Takes the place of the plan's; `[]` stands for none.")] = None
    setup_inputs: Annotated[list[str], Meta(description=SETUP_INPUTS)] = []
    copy_ignored: Annotated[list[str], Meta(description=f"{COPY_IGNORED} Those of the plan are copied as well.")] = []
    env: Annotated[Env, Meta(description=f"{ENV} Added to those of the plan.")] = {}


class FilePlan(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A plan: tasks, and for each task the tasks that it needs."""

    version: Annotated[int, Meta(ge=1, description="The version of this format.")] = VERSION
    name: Annotated[str, Meta(description="The name of the plan; by default that of the file.")] = ""
    request: Annotated[str, Meta(description="The request; by default the name of the plan.")] = ""
    summary: Annotated[str, Meta(description="The plan in a sentence, shown with it.")] = ""
    variables: Annotated[
        dict[Word, Scalar],
        Meta(description="Used as `{{ NAME }}` in texts and commands; `--var NAME=VALUE` overrides one."),
    ] = {}
    tasks: Annotated[list[FileTask], Meta(min_length=1, description="The work.")]
    concurrency: Annotated[
        Concurrency | None, Meta(description="How many agents work at once; `--concurrency` overrides it.")
    ] = None
    conflicts: Annotated[
        Literal["ask", "agent"],
        Meta(description="Who resolves conflicts between the files of tasks: `ask`, a person; `agent`, the task's "
             "agent, then a person."),
    ] = "ask"  # fmt: skip
    setup: Setup = None
    setup_inputs: Annotated[list[str], Meta(description=SETUP_INPUTS)] = []
    copy_ignored: Annotated[list[str], Meta(description=COPY_IGNORED)] = []
    include_uncommitted: Annotated[bool | list[str], Meta(description=UNCOMMITTED)] = False
    env: Env = {}


def schema() -> dict[str, Any]:
    """The JSON Schema of plan files, for editors."""
    made = msgspec.json.schema(FilePlan)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "maos plan", **made}


_ITEMS: dict[str | int, type[Any]] = {"tasks": FileTask, "gates": FileGate}
"""The structures that the items of a list have, by the name of its field."""


class ParsedPlan(NamedTuple):
    """A plan, and the text that it was read from."""

    plan: Plan
    file: FilePlan
    source: Source
    located: Located
    origins: tuple[int, ...]
    """For each task of the plan, the number of the one in the text that it is from; from 0."""
    prepared: Preparation
    """How the workspaces of all tasks are prepared."""

    @property
    def options(self) -> dict[str, Any]:
        """What the text says about the whole run."""
        found = {"concurrency": self.file.concurrency, "include_uncommitted": self.file.include_uncommitted or None}
        said = {name: value for name, value in found.items() if value is not None}
        return {**said, **preparation.to_options(self.prepared)}

    def locate(self, problem: Problem) -> Problem:
        """A problem of the plan, at its position in the text."""
        path = problem.path
        if self.located.positions is None:
            return problem
        if len(path) > 1 and isinstance(path[1], int):
            path = ("tasks", self.origins[path[1]], *self._field(path))
        return self.located.problem(path, problem.what, problem.hint)

    def _field(self, path: Path) -> Path:
        """The rest of a path below a task: a task may need more than is written, where a matrix is spread out."""
        match path:
            case ("tasks", int(task), "needs", int(number)):
                written = self.file.tasks[self.origins[task]].needs
                need = self.plan.tasks[task].needs[number]
                return ("needs", written.index(need)) if need in written and isinstance(written, list) else ("needs",)
        return path[2:]


def parse(source: Source, *, agents: Collection[str] | None = None, is_whole: bool = True) -> ParsedPlan:
    """The plan in a text; BadPlan has everything that is wrong with it.

    `agents` are the types of agents that there are, if that is to be checked. A plan that is not whole may need tasks
    that it does not have: it is checked together with those of a run.
    """
    return _parse(read(source), source, agents, is_whole)


def parse_data(data: Any, agents: Collection[str] | None = None) -> ParsedPlan:
    """The plan in data that has the form of a plan file; BadPlan has everything that is wrong with it."""
    return _parse(of_data(data), Source("", JSON, ""), agents, is_whole=True)


def _parse(located: Located, source: Source, agents: Collection[str] | None, is_whole: bool) -> ParsedPlan:
    version = located.data.get("version") if isinstance(located.data, dict) else None
    if isinstance(version, int) and version > VERSION:
        what = f"format {version} is newer than this maos knows ({VERSION})"
        raise BadPlan([located.problem(("version",), what, "use a newer maos")])
    return _Builder(located, source, _Typed(located)).parsed(agents, is_whole)


def to_source(plan: Plan, name: str) -> Source:
    """A plan as a text that can be edited; `parse` makes the same plan of it."""
    data = _each_text(msgspec.to_builtins(plan), lambda text, _: _USE.sub(lambda use: "{{ '{{' }}" + use[0][2:], text))
    return Source(json.dumps(data, indent=2, ensure_ascii=False) + "\n", JSON, name)


def _each_text(value: Any, change: Callable[[str, Path], str], path: Path = ()) -> Any:
    """Data with each text in it changed; `change` is given a text and its path."""
    if isinstance(value, str):
        return change(value, path)
    if isinstance(value, list):
        return [_each_text(each, change, (*path, index)) for index, each in enumerate(value)]
    if isinstance(value, dict):
        return {name: _each_text(each, change, (*path, name)) for name, each in value.items()}
    return value


# --- types -------------------------------------------------------------------------------------------------------


class _Typed:
    """What of the data has the types of the format, and every problem of the rest."""

    def __init__(self, located: Located) -> None:
        self._located = located
        self._guesses = Guesses()
        self.problems: list[Problem] = []
        self.wrong: set[Path] = set()
        """Parts that are left out of the file; the checks after this one do not know what they are."""
        try:
            self.file = msgspec.convert(located.data, FilePlan)
        except msgspec.ValidationError as error:
            self.file = self._found(located.data, FilePlan, ()) or FilePlan(tasks=[])
            if not self.problems:
                self._add((), str(error))

    def _found(self, data: Any, struct: type[Any], path: Path) -> Any:
        """A structure with those fields of the data that are right; None when it lacks one that it must have."""
        if not isinstance(data, dict):
            begin = "a plan is a mapping" if not path else f"expected a mapping, got {_kind(data)}"
            self._add(path, begin, "" if path else "begin with `tasks`")
            return None
        fields = {each.encode_name: each for each in msgspec.structs.fields(struct)}
        found = {}
        meant = ""
        for name, value in data.items():
            if name not in fields:
                meant += self._unknown(str(name), path, [*fields])
            else:
                kept = self._value(value, fields[name].type, (*path, name))
                if kept is not msgspec.UNSET:
                    found[fields[name].name] = kept
        for each in fields.values():
            if each.required and each.encode_name not in data and f"mean {each.encode_name!r}?" not in meant:
                self._add(path, f"{each.encode_name!r} is missing")
        return struct(**found) if all(each.name in found for each in fields.values() if each.required) else None

    def _value(self, value: Any, type_: Any, path: Path) -> Any:
        struct = _ITEMS.get(path[-1])
        if struct is not None and isinstance(value, list) and value:
            return [self._item(each, struct, (*path, number)) for number, each in enumerate(value)]
        try:
            return msgspec.convert(value, type_)
        except msgspec.ValidationError as error:
            if isinstance(value, dict) and len(value) > 1:
                for name, each in value.items():
                    self._value({name: each}, type_, path)
                return msgspec.UNSET
            what, _, where = str(error).partition(" - at `")
            if value == [] and path == ("tasks",):
                self._add(path, "there is nothing to do", "give it at least one task")
            else:
                self._add((*path, *_path(where.rstrip("`"), value)), _plain(what))
            self.wrong.add(path)
            return msgspec.UNSET

    def _item(self, data: Any, struct: type[Any], path: Path) -> Any:
        """An item of a list; or what is known of one that is wrong, as others may need it."""
        found = self._found(data, struct, path)
        if found is not None or struct is not FileTask:
            return found or struct()
        name = data.get("name") if isinstance(data, dict) else None
        return FileTask(name=name if isinstance(name, str) else "")

    def _unknown(self, name: str, path: Path, known: list[str]) -> str:
        """Add a problem with a key; the hint that it gives."""
        hint = f"did you mean {_OLD_NAMES[name]!r}?" if _OLD_NAMES.get(name) in known else ""
        if path[:1] == ("tasks",) and name in FilePlan.__struct_fields__:
            hint = "give it once for all tasks, beside `tasks`"
            hint += ": they start from one commit" if name == "include_uncommitted" else ""
        hint = _RETRIES if name in ("retries", "retry", "max_attempts") else hint
        hint = hint or self._guesses.hint(name, known, f"there are: {', '.join(known)}")
        self._add((*path, name), f"nothing is called {shown(name)} here", hint, is_key=True)
        return hint

    def _add(self, path: Path, what: str, hint: str = "", *, is_key: bool = False) -> None:
        self.problems.append(self._located.problem(path, what, hint, is_key=is_key))
        self.wrong |= {path, path[:2]}


def _kind(value: Any) -> str:
    return {dict: "a mapping", list: "a list", str: "text", type(None): "nothing"}.get(type(value), "a number")


def _plain(message: str) -> str:
    """What the type check says, in the words of people who write files."""

    def in_words(found: re.Match[str]) -> str:
        return " or ".join(_WORDS.get(each, each) for each in found[1].split(" | "))

    message = re.sub(r"`([a-z]+(?: \| [a-z]+)*)`", in_words, message)
    message = re.sub(r"text matching regex .*", "letters, digits, - and _", message)
    return message[:1].lower() + message[1:].replace("nvalid enum value", "t cannot be")


def _path(reported: str, data: Any) -> Path:
    """`$[0].needs` as a path; as far as it can be followed."""
    found: list[str | int] = []
    for name, index in _INDEX.findall(reported.removeprefix("$")):
        step: str | int = int(index) if index.isdigit() else name
        if index == "..." and isinstance(data, dict) and len(data) == 1:
            step = next(iter(data))
        if isinstance(data, dict) and step not in data:
            break
        found.append(step)
        data = data[step] if isinstance(data, dict) else data[int(step)] if isinstance(data, list) else None
    return tuple(found)


# --- meaning -----------------------------------------------------------------------------------------------------


class _Builder:
    """Makes a plan of a file whose types are right, as far as they are."""

    def __init__(self, located: Located, source: Source, typed: _Typed) -> None:
        self._located = located
        self._source = source
        self._file = typed.file
        self._wrong = typed.wrong
        self._guesses = Guesses()
        self._problems = dict.fromkeys(typed.problems)
        self._variables = {
            **{name: self._text(value, "variables", name) for name, value in self._file.variables.items()},
            **{name: _as_text(value) for name, value in source.variables.items() if name in self._file.variables},
        }
        self._spread: dict[str, list[str]] = {}

    def parsed(self, agents: Collection[str] | None, is_whole: bool) -> ParsedPlan:
        """All tasks; BadPlan with what is wrong with the types and the meaning."""
        for name in self._source.variables:
            if name not in self._file.variables:
                there = f"there are: {', '.join(self._file.variables) or 'none'}"
                hint = self._guesses.hint(name, self._file.variables, there)
                self._add(("variables",), f"it has no variable {shown(name)}", hint)
        rows = [self._combinations(number, task) for number, task in enumerate(self._file.tasks)]
        for task, combinations in zip(self._file.tasks, rows, strict=True):
            self._spread.setdefault(task.name, [_named(task.name, each) for each in combinations])
        origins, tasks = [], []
        for number, (task, combinations) in enumerate(zip(self._file.tasks, rows, strict=True)):
            for each in combinations:
                origins.append(number)
                tasks.append(self._task(number, task, each, is_whole))
        file = self._file
        request = file.request or self._source.title(file.name)
        plan = Plan(tasks=tasks, request=request, summary=file.summary, conflicts=file.conflicts)
        prepared = Preparation(
            setup=self._setup(file.setup, self._variables, ("setup",)),
            setup_inputs=file.setup_inputs,
            copy_ignored=file.copy_ignored,
            env=self._env(file.env, self._variables, ("env",)),
        )
        for field, what, hint in preparation.check(prepared):
            self._add((field,), what, hint)
        parsed = ParsedPlan(plan, file, self._source, self._located, tuple(origins), prepared)
        for problem in check(plan, agents=agents) if is_whole and tasks else ():
            if not self._is_known(problem, origins):
                self._problems.setdefault(parsed.locate(problem))
        if self._problems:
            raise BadPlan(list(self._problems))
        return parsed

    def _is_known(self, problem: Problem, origins: list[int]) -> bool:
        """Whether a problem of the plan follows from one that was found in the file."""
        match problem.path:
            case ("tasks", int(_), "needs", int(_)):
                return True
            case ("tasks", int(number), *field):
                return ("tasks", origins[number]) in self._wrong and field != ["agent"]
        return False

    def _combinations(self, number: int, task: FileTask) -> list[dict[str, str]]:
        path: Path = ("tasks", number, "matrix")
        choices = [
            [self._text(value, *path, name, index) for index, value in enumerate(row)]
            for name, row in task.matrix.items()
        ]
        count = math.prod(map(len, choices))
        if count == 0:
            self._add(path, "a row of the matrix is empty")
        elif count > COMBINATIONS_MAX:
            self._add(path, f"{count} combinations are too many", f"at most {COMBINATIONS_MAX}")
        else:
            return [dict(zip(task.matrix, values, strict=True)) for values in itertools.product(*choices)]
        return []

    def _task(self, number: int, task: FileTask, combination: Mapping[str, str], is_whole: bool) -> Task:
        path: Path = ("tasks", number)
        given = {**self._variables, **{f"matrix.{name}": value for name, value in combination.items()}}
        ways = [name for name in ("task", "command", "python") if getattr(task, name)]
        if len(ways) != 1 and ways != ["task", "command"] and path not in self._wrong:
            there = f"it has {' and '.join(ways)}" if ways else "it has none"
            self._add(path, f"a task has one of task, command and python: {there}")
        kind, command = task.kind, self._command(task.command, given, (*path, "command"))
        text = self._filled(task.task, given, (*path, "task"))
        if task.python:
            kind, command = "python", [self._filled(task.python, given, (*path, "python"))]
            filled = _each_text(task.arguments, lambda each, at: self._filled(each, given, at), (*path, "with"))
            text = json.dumps(filled)
        elif task.arguments:
            self._add((*path, "with"), "only a task with `python` is given arguments")
        changed = {
            "name": _named(task.name, combination), "task": text, "kind": kind, "command": command,
            "needs": list(self._needs(path, task, is_whole)), "gates": list(self._gates(path, task, given)),
            "setup": self._setup(task.setup, given, (*path, "setup")),
            "env": self._env(task.env, given, (*path, "env")),
        }  # fmt: skip
        return Task(**{each: changed.get(each, getattr(task, each)) for each in Task.__struct_fields__})

    def _gates(self, path: Path, task: FileTask, given: Mapping[str, str]) -> Iterator[Gate]:
        for index, gate in enumerate(task.gates):
            where: Path = (*path, "gates", index)
            yield Gate(
                command=self._command(gate.command, given, (*where, "command")),
                person=self._filled(gate.person, given, (*where, "person")),
                review=self._filled(gate.review, given, (*where, "review")),
            )

    def _setup(self, setup: str | list[Command] | None, given: Mapping[str, str], path: Path) -> list[list[str]] | None:
        """Commands as lists of words; a single text is one command."""
        if setup is None:
            return None
        commands = [setup] if isinstance(setup, str) else setup
        return [self._command(each, given, (*path, index)) for index, each in enumerate(commands)]

    def _env(self, env: Mapping[str, Scalar | None] | list[str], given: Mapping[str, str], path: Path) -> list[str]:
        if isinstance(env, list):
            return [self._filled(each, given, (*path, index)) for index, each in enumerate(env)]
        written = {
            name: None if value is None else self._filled(self._text(value, *path, name), given, (*path, name))
            for name, value in env.items()
        }
        return preparation.variables(written)

    def _needs(self, path: Path, task: FileTask, is_whole: bool) -> Iterator[str]:
        """The tasks that a task needs, with all combinations of each."""
        for index, need in enumerate([task.needs] if isinstance(task.needs, str) else task.needs):
            if need in self._spread:
                yield from self._spread[need]
            elif not is_whole:
                yield need
            elif ("tasks",) not in self._wrong:
                self._add((*path, "needs", index), unknown_need(need), self._guesses.hint(need, self._spread))

    def _command(self, command: Command, given: Mapping[str, str], path: Path) -> list[str]:
        if isinstance(command, list):
            return [self._filled(each, given, (*path, index)) for index, each in enumerate(command)]
        # Variables are kept whole while the command is split into words, so that a value with spaces stays one word.
        uses: list[str] = []

        def keep(found: re.Match[str]) -> str:
            uses.append(found[0])
            return f"\x00{len(uses) - 1}\x00"

        if found := _OPERATOR.search(_QUOTED.sub("", command)):
            self._add(path, f"no shell runs the command, which would get {found[1]!r} as an argument",
                      'write [sh, -c, "…"] for one; in a list, every word is used as it is')  # fmt: skip
            return []
        try:
            words = shlex.split(_USE.sub(keep, command))
        except ValueError as error:
            self._add(path, f"the command cannot be read: {error}", "check its quotes")
            return []
        whole = [_KEPT.sub(lambda found: uses[int(found[1])], word) for word in words]
        return [self._filled(word, given, path) for word in whole]

    def _filled(self, text: str, given: Mapping[str, str], path: Path) -> str:
        """A text with the values of its variables; `{{ '{{' }}` stands for the braces themselves."""

        def value(found: re.Match[str]) -> str:
            name = found[3]
            if name is None:
                return str(found[1] or found[2] or "")
            if name not in given and ("variables",) not in self._wrong:
                there = f"there are: {', '.join(given)}; {BRACES}" if given else f"there are none; {BRACES}"
                self._add(path, f"there is no variable {shown(name)}", self._guesses.hint(name, given, there))
            return given.get(name, "")

        return _USE.sub(value, text) if "{{" in text else text

    def _text(self, value: Scalar, *path: str | int) -> str:
        """A value as it is written in the file: 1.10 stays that, and is not the number 1.1."""
        if isinstance(value, str):
            return value
        return self._located.written(path) or _as_text(value)

    def _add(self, path: Path, what: str, hint: str = "") -> None:
        self._problems.setdefault(self._located.problem(path, what, hint))
        if path[0] == "tasks":
            self._wrong.add(path[:2])


def _as_text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _named(name: str, combination: Mapping[str, str]) -> str:
    parts = [re.sub(r"[^A-Za-z0-9_-]", "-", value) for value in combination.values()]
    return "-".join([name, *parts])
