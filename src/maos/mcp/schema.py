"""Arguments compared with a tool's schema: the few words of JSON Schema that our schemas use."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from maos.errors import InvalidInput
from maos.mcp.tools import VALUE_BYTES_MAX, Tool

DEPTH_MAX = 32

_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
}


def checked(tool: Tool, arguments: Any) -> dict[str, Any]:
    """The arguments, with defaults filled in; InvalidInput names everything that is wrong with them."""
    if not isinstance(arguments, dict):
        raise InvalidInput(f"the arguments of {tool.name} are not an object", hint=_usage(tool))
    problems = [f"{name!r:.60} is not an argument of it" for name in arguments if name not in tool.properties]
    problems += [f"{name} is missing" for name in tool.required if name not in arguments]
    given: dict[str, Any] = {}
    for name, schema in tool.properties.items():
        if name in arguments:
            problems += [f"{name} {problem}" for problem in _problems(arguments[name], schema)]
            given[name] = arguments[name]
        elif "default" in schema:
            given[name] = schema["default"]
    if problems:
        raise InvalidInput(f"{tool.name}: {'; '.join(problems[:5])}", hint=_usage(tool))
    return given


def _problems(value: Any, schema: Mapping[str, Any]) -> list[str]:
    kind = schema.get("type")
    if kind is None:
        return _size_problems(value)
    if type(value) not in _KINDS[kind]:
        return [f"is not a {kind}"]
    if kind == "string":
        return _text_problems(value, schema)
    if kind == "number" and not schema["minimum"] <= value <= schema["maximum"]:
        return [f"is not between {schema['minimum']:g} and {schema['maximum']:g}"]
    if kind == "array":
        if len(value) > schema["maxItems"]:
            return [f"has {len(value)} items; at most {schema['maxItems']} are taken"]
        return [f"[{n}] {problem}" for n, each in enumerate(value) for problem in _problems(each, schema["items"])]
    return []


def _text_problems(value: str, schema: Mapping[str, Any]) -> list[str]:
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"is not one of {', '.join(schema['enum'])}"]
    if not value.strip():
        return ["is empty"]
    if len(value) > schema["maxLength"]:
        return [f"has {len(value)} characters; at most {schema['maxLength']} are taken"]
    if "pattern" in schema and not re.fullmatch(schema["pattern"], value):
        return ["has characters that are not taken"]
    return []


def _size_problems(value: Any) -> list[str]:
    if _depth(value) > DEPTH_MAX:
        return [f"is nested deeper than {DEPTH_MAX} levels"]
    size = len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    return [f"takes {size} bytes; at most {VALUE_BYTES_MAX} are taken"] if size > VALUE_BYTES_MAX else []


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level and depth <= DEPTH_MAX:
        depth += 1
        inside: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inside += each.values()
            elif isinstance(each, list):
                inside += each
        level = inside
    return depth


def _usage(tool: Tool) -> str:
    named = [name if name in tool.required else f"{name}?" for name in tool.properties]
    return f"call it as {tool.name}({', '.join(named)})"
