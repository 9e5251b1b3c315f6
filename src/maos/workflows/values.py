"""What steps are given and what they return, as plain data: nothing is ever unpickled."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from maos.errors import InvalidInput

SHOWN_CHARS_MAX = 200


def plain(value: Any, what: str) -> Any:
    """The value as the journal keeps it; InvalidInput says what cannot be kept."""
    if value is None or value.__class__ in (str, bool, float) or (value.__class__ is int and -(2**63) <= value < 2**63):
        return value
    try:
        made = msgspec.to_builtins(value, str_keys=True, enc_hook=_plain_of)
        msgspec.json.encode(made)
    except (TypeError, NotImplementedError, ValueError, RecursionError, OverflowError) as error:
        raise InvalidInput(
            f"{what} cannot be recorded: {error}",
            hint="use plain data, dataclasses, msgspec.Struct or typed dictionaries",
        ) from error
    return made


def typed(value: Any, annotation: Any, what: str) -> Any:
    """Recorded data as what it was: of the type that the function's signature names."""
    if annotation is Any or annotation is None or (annotation.__class__ is type and value.__class__ is annotation):
        return value
    try:
        return msgspec.convert(value, annotation, str_keys=True, dec_hook=_of_plain)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{what} is not what its signature says: {error}") from error
    except TypeError:
        return value  # an annotation that is no type of data


def returned(function: Callable[..., Any]) -> Any:
    """What a function says it returns."""
    try:
        return get_type_hints(function).get("return", Any)
    except (NameError, TypeError):
        return Any


def digest(args: tuple[Any, ...], kwargs: Mapping[str, Any], what: str) -> str:
    """Of the arguments of a call, to tell whether it is the same call."""
    if not args and not kwargs:
        return ""
    made = plain([args, kwargs], what)
    return hashlib.sha256(msgspec.json.encode(made, order="sorted")).hexdigest()[:16]


def shown(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """The beginning of what a call was given, for a person."""
    parts = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
    text = ", ".join(parts)
    return text if len(text) <= SHOWN_CHARS_MAX else text[: SHOWN_CHARS_MAX - 1] + "…"


def told(error: BaseException) -> dict[str, Any]:
    """What is recorded of something that was raised."""
    return {"type": type(error).__name__, "message": str(error)}


def _plain_of(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(f"a {type(value).__name__} is no plain data")


def _of_plain(type_: type, value: Any) -> Any:
    if issubclass(type_, Path):
        return type_(value)
    raise TypeError(f"{type_.__name__} is no type of data")
