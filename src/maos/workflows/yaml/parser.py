"""A workflow file as a plan: variables filled in, matrices spread out, every mistake named by its place."""

from __future__ import annotations

import difflib
import itertools
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from maos.errors import InvalidInput
from maos.model.plan import Gate, Plan, Problem, Task, check
from maos.workflows.yaml.format import FileStep, Scalar, WorkflowFile
from maos.workflows.yaml.positions import BadFile, Located, Mistake, Path, Place, read

FORMAT = 1
COMBINATIONS_MAX = 256
BYTES_MAX = 1 << 20

_USE = re.compile(r"\{\{\s*([A-Za-z0-9_.-]*)\s*\}\}")
_INDEX = re.compile(r"\.?([^.\[\]]+)|\[(\d+|\.\.\.)\]")


class Read(NamedTuple):
    """A workflow file that makes sense."""

    plan: Plan
    file: WorkflowFile
    text: str


def load(path: str) -> str:
    """The text of a workflow file."""
    try:
        if not os.path.isfile(path) and os.path.exists(path):
            raise InvalidInput(f"{path} is not a file", hint="name a workflow file")
        if os.path.getsize(path) > BYTES_MAX:
            raise InvalidInput(f"{path} is larger than a workflow can be", hint=f"at most {BYTES_MAX >> 20} MB")
        with open(path, encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not text in UTF-8", hint="a workflow is YAML") from error
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}", hint="name a workflow file") from error


def parse(text: str, name: str, given: Mapping[str, Scalar] | None = None) -> Read:
    """The plan that a file stands for; BadFile has everything that is wrong with it."""
    located = read(text, name)
    file = _typed(located, name)
    if file.version > FORMAT:
        place = located.places.get(("version",), Place(1, 1))
        what = f"format {file.version} is newer than this maos knows ({FORMAT})"
        raise BadFile(name, [Mistake(place, what, "use a newer maos")])
    return Read(_Builder(located, file, name, dict(given or {})).plan(), file, text)


def _typed(located: Located, name: str) -> WorkflowFile:
    if not isinstance(located.data, dict):
        raise BadFile(name, [Mistake(Place(1, 1), "a workflow is a mapping", "begin with `steps:`")])
    try:
        return msgspec.convert(located.data, WorkflowFile)
    except msgspec.ValidationError as error:
        raise BadFile(name, [_mistake(located, str(error))]) from error


def _mistake(located: Located, told: str) -> Mistake:
    """A complaint of the type check, with its place."""
    what, _, where = told.partition(" - at `")
    path = _path(where.rstrip("`"), located.data)
    unknown = re.search(r"unknown field `(.*)`", what)
    if unknown is not None:
        field = unknown.group(1)
        known = [each.encode_name for each in msgspec.structs.fields(FileStep if "steps" in path else WorkflowFile)]
        near = difflib.get_close_matches(field, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
        place = located.keys.get((*path, field), located.places.get(path, Place(1, 1)))
        return Mistake(place, f"nothing is called {field!r} here", hint)
    return Mistake(located.places.get(path, Place(1, 1)), what[:1].lower() + what[1:])


def _path(told: str, data: Any) -> Path:
    """`$.steps[0].needs` as a path; as far as it can be followed."""
    found: list[str | int] = []
    for name, index in _INDEX.findall(told.removeprefix("$")):
        step: str | int = int(index) if index.isdigit() else name
        if index == "..." or (isinstance(data, dict) and step not in data):
            break
        found.append(step)
        data = data.get(step) if isinstance(data, dict) else data[int(step)] if isinstance(data, list) else None
    return tuple(found)


class _Builder:
    def __init__(self, located: Located, file: WorkflowFile, name: str, given: dict[str, Scalar]) -> None:
        self._located = located
        self._file = file
        self._name = name
        self._mistakes: list[Mistake] = []
        for each in given:
            if each not in file.variables:
                near = difflib.get_close_matches(each, file.variables, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(file.variables) or 'none'}"
                self._wrong(("variables",), f"it has no variable {each!r}", hint)
        self._variables = {
            **{each: self._text(value, "variables", each) for each, value in file.variables.items()},
            **{each: _as_text(value) for each, value in given.items()},
        }
        self._spread: dict[str, list[str]] = {}
        self._origins: list[int] = []

    def plan(self) -> Plan:
        """All steps as tasks."""
        rows = [list(self._combinations(number, step)) for number, step in enumerate(self._file.steps)]
        for step, combinations in zip(self._file.steps, rows, strict=True):
            self._spread.setdefault(step.name, [_named(step.name, each) for each in combinations])
        tasks = []
        for number, (step, combinations) in enumerate(zip(self._file.steps, rows, strict=True)):
            for each in combinations:
                self._origins.append(number)
                tasks.append(self._task(number, step, each))
        plan = Plan(
            tasks=tasks,
            request=self._file.name or self._name,
            summary=self._file.description,
            conflicts=self._file.conflicts,
        )
        if not self._mistakes:
            for problem in check(plan):
                self._mistakes.append(self._of_plan(problem))
        if self._mistakes:
            raise BadFile(self._name, self._mistakes)
        return plan

    def _combinations(self, number: int, step: FileStep) -> Iterator[dict[str, str]]:
        names = list(step.matrix)
        choices = [
            [self._text(value, "steps", number, "matrix", name, index) for index, value in enumerate(row)]
            for name, row in step.matrix.items()
        ]
        if any(not each for each in choices):
            self._wrong(("steps", number, "matrix"), "a row of the matrix is empty")
            return
        count = 1
        for each in choices:
            count *= len(each)
        if count > COMBINATIONS_MAX:
            self._wrong(
                ("steps", number, "matrix"), f"{count} combinations are too many", f"at most {COMBINATIONS_MAX}"
            )
            return
        for values in itertools.product(*choices):
            yield dict(zip(names, values, strict=True))

    def _task(self, number: int, step: FileStep, combination: Mapping[str, str]) -> Task:
        path: Path = ("steps", number)
        given = {**self._variables, **{f"matrix.{name}": value for name, value in combination.items()}}

        def filled(text: str, *where: str | int) -> str:
            return self._filled(text, given, (*path, *where))

        kinds = [name for name in ("task", "command", "python") if getattr(step, name)]
        if len(kinds) != 1:
            there = f"it has {' and '.join(kinds)}" if kinds else "it has none"
            self._wrong(path, f"a step has one of task, command and python: {there}")
        command = self._command(step.command, given, (*path, "command"))
        task, kind = filled(step.task, "task"), step.kind
        if step.python:
            kind, command = "python", [filled(step.python, "python")]
            task = json.dumps(self._data(step.arguments, given, (*path, "with")))
        elif step.arguments:
            self._wrong((*path, "with"), "only a python step is given arguments")
        gates = []
        for index, gate in enumerate(step.gates):
            where: Path = (*path, "gates", index)
            if sum(map(bool, (gate.command, gate.person, gate.review))) != 1:
                self._wrong(where, "a gate is one of command, person and review")
            gates.append(
                Gate(
                    command=self._command(gate.command, given, (*where, "command")),
                    person=self._filled(gate.person, given, (*where, "person")),
                    review=self._filled(gate.review, given, (*where, "review")),
                )
            )
        return Task(
            name=_named(step.name, combination),
            task=task,
            agent=step.agent,
            kind=kind,
            command=command,
            needs=self._needs(path, step),
            priority=step.priority,
            time_limit_s=step.time_limit_s or 0.0,
            budget_usd=step.budget_usd or 0.0,
            tokens_max=step.tokens_max or 0,
            gates=gates,
            model=step.model,
            tools=step.tools,
        )

    def _needs(self, path: Path, step: FileStep) -> list[str]:
        needs = [step.needs] if isinstance(step.needs, str) else step.needs
        found: list[str] = []
        for index, need in enumerate(needs):
            if need not in self._spread:
                where: Path = (*path, "needs") if isinstance(step.needs, str) else (*path, "needs", index)
                near = difflib.get_close_matches(need, self._spread, n=1)
                self._wrong(where, f"there is no step {need!r}", f"did you mean {near[0]!r}?" if near else "")
            found += self._spread.get(need, [])
        return found

    def _command(self, command: str | list[str], given: Mapping[str, str], path: Path) -> list[str]:
        if isinstance(command, list):
            return [self._filled(each, given, (*path, index)) for index, each in enumerate(command)]
        # Names are kept whole while the words are told apart, so that a value with spaces stays one word.
        uses: list[str] = []

        def keep(match: re.Match[str]) -> str:
            uses.append(match.group(0))
            return f"\x00{len(uses) - 1}\x00"

        try:
            words = shlex.split(_USE.sub(keep, command))
        except ValueError as error:
            self._wrong(path, f"the command cannot be read: {error}", "check its quotes")
            return []
        whole = [re.sub("\x00(\\d+)\x00", lambda match: uses[int(match.group(1))], word) for word in words]
        return [self._filled(word, given, path) for word in whole]

    def _data(self, value: Any, given: Mapping[str, str], path: Path) -> Any:
        if isinstance(value, str):
            return self._filled(value, given, path)
        if isinstance(value, list):
            return [self._data(each, given, (*path, index)) for index, each in enumerate(value)]
        if isinstance(value, dict):
            return {name: self._data(each, given, (*path, name)) for name, each in value.items()}
        return value

    def _filled(self, text: str, given: Mapping[str, str], path: Path) -> str:
        def value(match: re.Match[str]) -> str:
            name = match.group(1)
            if name in given:
                return given[name]
            near = difflib.get_close_matches(name, given, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(given) or 'none'}"
            self._wrong(path, f"there is no variable {name!r}", hint)
            return ""

        return _USE.sub(value, text)

    def _text(self, value: Scalar, *path: str | int) -> str:
        """A value as it is written in the file: 1.10 stays that, and is not the number 1.1."""
        return self._located.texts.get(path, _as_text(value))

    def _wrong(self, path: Path, what: str, hint: str = "") -> None:
        while path and path not in self._located.places:
            path = path[:-1]
        mistake = Mistake(self._located.places.get(path, Place(1, 1)), what, hint)
        if mistake not in self._mistakes:
            self._mistakes.append(mistake)

    def _of_plan(self, problem: Problem) -> Mistake:
        """What is wrong with the plan, at the step that the task comes from."""
        number = re.match(r"task (\d+)", problem.where)
        path: Path = ("steps", self._origins[int(number.group(1)) - 1]) if number else ("steps",)
        return Mistake(self._located.places[path], problem.what, problem.hint)


def _as_text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _named(name: str, combination: Mapping[str, str]) -> str:
    parts = [re.sub(r"[^A-Za-z0-9_-]", "-", value) for value in combination.values()]
    return "-".join([name, *parts])
