"""YAML as plain data, with the place of everything in it: a mistake is named by line and column."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from maos.errors import InvalidInput

NODES_MAX = 100_000
"""What a file may hold once its aliases are followed: a small one could stand for billions."""

Path = tuple[str | int, ...]


class Place(NamedTuple):
    """Where something is in a file, counted from 1."""

    line: int
    column: int


class Mistake(NamedTuple):
    """Something wrong with a file."""

    place: Place
    what: str
    hint: str = ""


class BadFile(InvalidInput):
    """A file that is no workflow; `mistakes` has everything that is wrong with it."""

    def __init__(self, name: str, mistakes: Sequence[Mistake]) -> None:
        self.name = name
        self.mistakes = tuple(sorted(mistakes))
        first = self.mistakes[0]
        more = f", and {len(mistakes) - 1} more" if len(mistakes) > 1 else ""
        where = f"{name}:{first.place.line}:{first.place.column}"
        super().__init__(f"{where}: {first.what}{more}", hint=first.hint or "mend it and try again")

    def __str__(self) -> str:
        return self.what if not self.hint else f"{self.what} ({self.hint})"


class Located(NamedTuple):
    """Data, and where each part of it is."""

    data: Any
    places: Mapping[Path, Place]
    """Of values, by their path."""
    keys: Mapping[Path, Place]
    """Of the keys of mappings, by the path of the value."""
    texts: Mapping[Path, str]
    """Of words and numbers, as they are written: 1.10 is the number 1.1, and 010 is 10."""


_PLAIN = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # yaml has no types
    """Plain data only, told from words as the core schema of YAML 1.2 says: `yes`, `22:22` and `1_000` are words."""


_BASES = {"0x": 16, "0o": 8}
_Loader.yaml_implicit_resolvers = {}
for _kind, _pattern, _firsts in (
    ("null", r"~|null|Null|NULL|", ("~", "n", "N", "")),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(rf"^(?:{_pattern})$"), list(_firsts))


def read(text: str, name: str) -> Located:
    """The data of a file; BadFile when it is not YAML."""
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                raise BadFile(name, [Mistake(Place(1, 1), "there is nothing in it", "give it `steps`")])
            return _Reader(loader, name).read(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
        raise BadFile(name, [Mistake(place, f"not YAML: {error.problem or error.context}")]) from error
    except yaml.YAMLError as error:
        raise BadFile(name, [Mistake(Place(1, 1), f"not YAML: {error}")]) from error
    except RecursionError as error:
        raise BadFile(name, [Mistake(Place(1, 1), "it is nested too deeply")]) from error


class _Reader:
    def __init__(self, loader: _Loader, name: str) -> None:
        self._loader = loader
        self._name = name
        self._count = 0
        self._places: dict[Path, Place] = {}
        self._keys: dict[Path, Place] = {}
        self._texts: dict[Path, str] = {}

    def read(self, node: yaml.Node) -> Located:
        return Located(self._value(node, (), ()), self._places, self._keys, self._texts)

    def _value(self, node: yaml.Node, path: Path, above: tuple[int, ...]) -> Any:
        self._count += 1
        if self._count > NODES_MAX or id(node) in above:
            raise self._bad(node, "it stands for more than a workflow can hold", "use fewer aliases")
        self._places[path] = _place(node)
        above = (*above, id(node))
        if not isinstance(node, yaml.ScalarNode) and node.tag not in _PLAIN:
            raise self._bad(node, f"{node.tag} is not plain data", "leave the tag out")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, above)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(each, (*path, number), above) for number, each in enumerate(node.value)]
        self._texts[path] = str(node.value)
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: Path, above: tuple[int, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._bad(key, "a key is a word")
            name = str(key.value)
            if name in found:
                raise self._bad(key, f"{name!r} is there twice")
            self._keys[(*path, name)] = _place(key)
            found[name] = self._value(value, (*path, name), above)
        return found

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        try:
            match node.tag.rpartition(":")[2]:
                case "str":
                    return str(node.value)
                case "int":
                    base = _BASES.get(node.value[:2])
                    return int(node.value[2:], base) if base else int(node.value)
                case "float":
                    return float(node.value.lower().replace(".inf", "inf").replace(".nan", "nan"))
                case "bool":
                    return node.value.lower() == "true"
                case "null":
                    return None
        except (ValueError, OverflowError) as error:
            raise self._bad(node, f"{node.value[:40]!r} is no number") from error
        raise self._bad(node, f"{node.tag} is not plain data", "leave the tag out")

    def _bad(self, node: yaml.Node, what: str, hint: str = "") -> BadFile:
        return BadFile(self._name, [Mistake(_place(node), what, hint)])


def _place(node: yaml.Node) -> Place:
    return Place(node.start_mark.line + 1, node.start_mark.column + 1)
