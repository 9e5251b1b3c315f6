"""YAML text as plain data, read from nodes so that the position of each is known."""

from __future__ import annotations

import re
from typing import Any

import yaml

from maos.model.plan import shown
from maos.settings.positions import Path, Position, Positions

NODES_MAX = 100_000
"""What a text may hold once its aliases are followed: a small one could stand for billions."""
_START = Position(1, 1)


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # yaml has no types
    """Plain data only, told from words as the core schema of YAML 1.2 says: `yes`, `22:22` and `1_000` are words."""


_PLAIN = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
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


class NotYaml(Exception):
    """A text that is not YAML, or holds more than plain data."""

    def __init__(self, what: str, position: Position, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.position = position
        self.hint = hint


def read(text: str) -> tuple[Any, Positions]:
    """The data of a text, and where everything is; NotYaml says what is wrong."""
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                raise NotYaml("there is nothing in it", _START, "give it `tasks`")
            return _Reader().read(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = Position(mark.line + 1, mark.column + 1) if mark else _START
        raise NotYaml(f"not YAML: {error.problem or error.context}", at) from error
    except yaml.YAMLError as error:
        raise NotYaml(f"not YAML: {error}", _START) from error
    except (ValueError, OverflowError) as error:
        raise NotYaml("not YAML: an escape stands for no character", _START) from error


class _Reader:
    """Makes data of nodes, and notes where each is."""

    def __init__(self) -> None:
        self._count = 0
        self._positions = Positions({}, {}, {}, [])

    def read(self, node: yaml.Node) -> tuple[Any, Positions]:
        """The data of a node and those below it."""
        return self._value(node, (), ()), self._positions

    def _value(self, node: yaml.Node, path: Path, above: tuple[int, ...]) -> Any:
        self._count += 1
        if self._count > NODES_MAX or id(node) in above:
            raise _bad(node, "it stands for more than a plan can hold", "use fewer aliases, or write it as JSON")
        self._positions.values[path] = _position(node)
        above = (*above, id(node))
        if not isinstance(node, yaml.ScalarNode) and node.tag not in _PLAIN:
            raise _bad(node, f"{node.tag} is not plain data", "leave the tag out")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, above)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(each, (*path, number), above) for number, each in enumerate(node.value)]
        self._positions.texts[path] = str(node.value)
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: Path, above: tuple[int, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _bad(key, "a key is a word")
            name = str(key.value)
            if name in found:
                raise _bad(key, f"{shown(name)} is there twice")
            self._positions.keys[(*path, name)] = _position(key)
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
            raise _bad(node, f"{shown(node.value)} is no number") from error
        raise _bad(node, f"{node.tag} is not plain data", "leave the tag out")


def _position(node: yaml.Node) -> Position:
    return Position(node.start_mark.line + 1, node.start_mark.column + 1)


def _bad(node: yaml.Node, what: str, hint: str = "") -> NotYaml:
    return NotYaml(what, _position(node), hint)
