"""Arguments of workflows as a person types them."""

from __future__ import annotations

import json
import math
from typing import Any

from maos.errors import InvalidInput


def value(text: str) -> Any:
    """An argument as a person typed it: JSON, or text. What no number can hold is text too, such as 12e4567."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if found.__class__ is float and not math.isfinite(found) else found


def named_value(text: str) -> tuple[str, Any]:
    """An argument with its name."""
    name, rest = named_text(text, "--arg")
    return name, value(rest)


def named_text(text: str, option: str) -> tuple[str, str]:
    """Text with its name."""
    name, equals, rest = text.partition("=")
    if not equals or not name.isidentifier():
        raise InvalidInput(f"{text!r} is no argument", hint=f"use {option} NAME=VALUE")
    return name, rest
