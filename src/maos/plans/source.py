"""The text of a plan as plain data, with the position of everything in it: a problem is named by line and column."""

from __future__ import annotations

import functools
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

import msgspec

from maos.errors import InvalidInput
from maos.model.plan import BadPlan, Problem, shown
from maos.patterns import regex
from maos.settings.positions import DIGITS_MAX, START, NotToml, Path, Position, Positions, find_positions, parse_toml
from maos.tuples import NamedTuple

Scalar = str | int | float | bool
YAML, TOML, JSON = "YAML", "TOML", "JSON"
FORMATS = {".yaml": YAML, ".yml": YAML, ".toml": TOML, ".json": JSON}
"""By the ending of a file's name."""
BYTES_MAX = 32 << 20
YAML_BYTES_MAX = 1 << 20
"""YAML takes a hundred times as long to read."""
DEPTH_MAX = 64

_BITS_MAX = DIGITS_MAX * 10 // 3
_NOT_TEXT = regex("[\x00\ud800-\udfff]")
_TOML_LINE = regex(r"""(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*(?:\[|(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*[.=])""")


class Source(NamedTuple):
    """The text of a plan as its author wrote it."""

    text: str
    format: str
    name: str
    """Where it is from: a file."""
    variables: Mapping[str, Scalar] = {}
    """Values that override those in the text."""

    @property
    def suffix(self) -> str:
        """The ending of a file with such a text."""
        return f".{self.format.lower()}"

    def title(self, name: str) -> str:
        """What the plan is called: the name that it has, else that of the file."""
        return name or os.path.splitext(os.path.basename(self.name))[0]


def is_plan_file(path: str) -> bool:
    """Whether the name of a file says that it is a plan."""
    return os.path.splitext(path)[1].lower() in FORMATS


def load(path: str | os.PathLike[str], variables: Mapping[str, Scalar] | None = None) -> Source:
    """The text of a plan file; InvalidInput when it cannot be read."""
    name = os.fspath(path)
    try:
        # A pipe that no process writes to must not keep us waiting.
        with open(name, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InvalidInput(f"{name} is not a file", hint="name a plan file; - reads standard input")
            return receive(file, name, variables)
    except IsADirectoryError as error:
        raise InvalidInput(f"{name} is not a file", hint="name a plan file") from error
    except OSError as error:
        raise InvalidInput(f"{name} cannot be read: {error.strerror}", hint="name a plan file") from error
    except ValueError as error:  # a NUL in the name
        raise InvalidInput(f"{shown(name)} names no file", hint="name a plan file") from error


def receive(stream: BinaryIO, name: str, variables: Mapping[str, Scalar] | None = None) -> Source:
    """The text of a plan that a stream brings; `name` is where it is from."""
    content = stream.read(BYTES_MAX + 1)
    try:
        text = content[:BYTES_MAX].decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if len(content) <= BYTES_MAX:
            raise InvalidInput(f"{name} is not text in UTF-8", hint="a plan is YAML, TOML or JSON") from error
        text = ""
    format = FORMATS.get(os.path.splitext(name)[1].lower()) or recognise(text)
    limit = YAML_BYTES_MAX if format == YAML else BYTES_MAX
    if len(content) > limit:
        more = ", or write it as JSON" if format == YAML else ""
        raise InvalidInput(f"{name} is larger than a plan can be", hint=f"at most {limit >> 20} MB in {format}{more}")
    return Source(text.replace("\r\n", "\n"), format, name, variables or {})


def recognise(text: str) -> str:
    """The format of a text whose name does not tell."""
    if text.lstrip().startswith("{"):
        return JSON
    return TOML if _TOML_LINE.match(text) else YAML


class Located:
    """Data, and where each part of it is; BadPlan when it holds what no plan does."""

    def __init__(self, data: Any, name: str, find: Callable[[], Positions | None]) -> None:
        self.data = data
        self.name = name
        self._find = find
        if problems := list(_unsafe(self)):
            raise BadPlan(problems)

    @functools.cached_property
    def positions(self) -> Positions | None:
        """Where everything is; None for data that is not from a text."""
        return self._find()

    def problem(self, path: Path, what: str, hint: str = "", *, is_key: bool = False) -> Problem:
        """Something wrong with a part of the data, or with its key."""
        if self.positions is None:
            return Problem(_spoken(path, self.data), what, hint, path)
        at = self.positions.keys.get(path) if is_key else None
        while at is None:
            at = self.positions.values.get(path) or self.positions.keys.get(path) or (None if path else START)
            path = path[:-1]
        return Problem(self.name, what, hint, position=at)

    def written(self, path: Path) -> str | None:
        """A number as it is written in the text; None for what is not from a text, and for words."""
        return self.positions.texts.get(path) if self.positions else None


def read(source: Source) -> Located:
    """The data of a text; BadPlan when it is not what its format says, or holds what no plan does."""
    reader = {YAML: _yaml, TOML: _toml, JSON: _json}[source.format]
    try:
        return reader(source)
    except RecursionError as error:
        raise _bad(source, "it is nested too deeply", hint=f"at most {DEPTH_MAX} levels") from error


def of_data(data: Any) -> Located:
    """Data that a program has made."""
    return Located(data, "plan", lambda: None)


def _unsafe(located: Located) -> Iterator[Problem]:
    """Values that cannot be recorded or printed, and nesting without end."""
    left: list[tuple[Any, Path]] = [(located.data, ())]
    while left:
        value, path = left.pop()
        if isinstance(value, (dict, list, tuple)) and len(path) >= DEPTH_MAX:
            yield located.problem(path[:4], "it is nested too deeply", f"at most {DEPTH_MAX} levels")
            return
        if isinstance(value, dict):
            if any(_NOT_TEXT.search(key) for key in value if isinstance(key, str)):
                yield located.problem(path, "a key has a character that is not text")
            left += [(each, (*path, key)) for key, each in value.items()]
        elif isinstance(value, (list, tuple)):
            left += [(each, (*path, number)) for number, each in enumerate(value)]
        elif isinstance(value, str) and (found := _NOT_TEXT.search(value)):
            yield located.problem(path, f"U+{ord(found[0]):04X} is not a character of text", "leave it out")
        elif isinstance(value, int) and value.bit_length() > _BITS_MAX:
            yield located.problem(path, f"the number has more than {DIGITS_MAX} digits")


def _spoken(path: Path, data: Any) -> str:
    """A place in the data as a person would say it: tasks, 2, needs is task 3 (ship), needs."""
    if not path:
        return "plan"
    if len(path) == 1 or path[0] != "tasks" or not isinstance(path[1], int):
        return str(path[0])
    name = data["tasks"][path[1]].get("name") if isinstance(data["tasks"][path[1]], dict) else None
    named = f" ({name})" if isinstance(name, str) and name.isprintable() and 0 < len(name) <= 40 else ""
    is_about_field = len(path) == 3 or (len(path) > 3 and path[2] != "needs")
    return f"task {path[1] + 1}{named}" + (f", {path[2]}" if is_about_field else "")


def _yaml(source: Source) -> Located:
    from maos.plans import yaml_nodes  # takes long to load

    data, positions = yaml_nodes.read(source.text, source.name)
    return Located(data, source.name, lambda: positions)


def _json(source: Source) -> Located:
    repeats = False

    def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeats
        found = dict(pairs)
        repeats = repeats or len(found) < len(pairs)
        return found

    try:
        data = json.loads(source.text, object_pairs_hook=made, parse_int=_integer)
    except json.JSONDecodeError as error:
        what = f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        raise _bad(source, what, Position(error.lineno, error.colno)) from error
    if repeats:
        twice = find_positions(source.text, is_json=True).repeated
        raise BadPlan([Problem(source.name, f"{shown(name)} is there twice", position=at) for name, at in twice])
    return Located(data, source.name, lambda: find_positions(source.text, is_json=True))


def _integer(text: str) -> int:
    return int(text) if len(text) <= DIGITS_MAX else 1 << (_BITS_MAX + 1)  # which is refused, with its position


def _toml(source: Source) -> Located:
    try:
        data = parse_toml(source.text)
    except NotToml as error:
        raise _bad(source, str(error), error.position) from error
    data = msgspec.to_builtins(data)  # dates and times are text: a plan has no use for them as such
    return Located(data, source.name, lambda: find_positions(source.text))


def _bad(source: Source, what: str, at: Position = START, hint: str = "") -> BadPlan:
    return BadPlan([Problem(source.name, what, hint, position=at)])
