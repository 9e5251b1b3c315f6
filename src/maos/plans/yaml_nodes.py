"""YAML text as plain data, read from nodes so that the position of each is known."""

from __future__ import annotations

import re
from typing import Any

import yaml

from maos.model.plan import BadPlan, Problem, shown
from maos.settings.positions import START, Path, Position, Positions

NODES_MAX = 100_000
"""What a text may hold once its aliases are followed: a small one could stand for billions."""


NESTING_MAX = 128
"""How deep lists and tables in brackets may be nested: each more costs the scanner time for all that are open."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # yaml has no types
    """Plain data only, with the core schema of YAML 1.2: `yes`, `22:22` and `1_000` are text."""

    def fetch_flow_collection_start(self, token: Any) -> None:
        """Read the start of a list or table in brackets; RecursionError when it is nested too deeply."""
        if self.flow_level >= NESTING_MAX:
            raise RecursionError
        super().fetch_flow_collection_start(token)


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


def read(text: str, name: str) -> tuple[Any, Positions]:
    """The data of a text, and where everything is; BadPlan when it is not YAML, or holds more than plain data."""
    what, at = "", START
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                raise BadPlan([Problem(name, "there is nothing in it", "give it `tasks`", position=START)])
            reader = _Reader(name)
            return reader.value(node, (), ()), reader.positions
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what, at = str(error.problem or error.context), Position(mark.line + 1, mark.column + 1) if mark else START
    except yaml.YAMLError as error:
        what = str(error)
    except (ValueError, OverflowError):
        what = "an escape stands for no character"
    raise BadPlan([Problem(name, f"not YAML: {what}", position=at)])


class _Reader:
    """Makes data of nodes, and notes where each is."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._count = 0
        self.positions = Positions({}, {}, {}, [])

    def value(self, node: yaml.Node, path: Path, above: tuple[int, ...]) -> Any:
        """The data of a node at a path; `above` are the nodes that it is in."""
        self._count += 1
        if self._count > NODES_MAX or id(node) in above:
            raise self._bad(node, "it stands for more than a plan can hold", "use fewer aliases, or write it as JSON")
        self.positions.values[path] = _position(node)
        above = (*above, id(node))
        if not isinstance(node, yaml.ScalarNode) and node.tag not in _PLAIN:
            raise self._bad(node, f"{node.tag} is not plain data", "leave the tag out")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, above)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(each, (*path, number), above) for number, each in enumerate(node.value)]
        self.positions.texts[path] = str(node.value)
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: Path, above: tuple[int, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._bad(key, "a key is a word")
            name = str(key.value)
            if name in found:
                raise self._bad(key, f"{shown(name)} is there twice")
            self.positions.keys[(*path, name)] = _position(key)
            found[name] = self.value(value, (*path, name), above)
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
            raise self._bad(node, f"{shown(node.value)} is no number") from error
        raise self._bad(node, f"{node.tag} is not plain data", "leave the tag out")

    def _bad(self, node: yaml.Node, what: str, hint: str = "") -> BadPlan:
        return BadPlan([Problem(self._name, what, hint, position=_position(node))])


def _position(node: yaml.Node) -> Position:
    return Position(node.start_mark.line + 1, node.start_mark.column + 1)
