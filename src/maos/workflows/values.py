"""What steps are given and what they return, as plain data: nothing is ever unpickled."""

from __future__ import annotations

import asyncio
import concurrent
import hashlib
import inspect
import json
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import msgspec

from maos.errors import InvalidInput
from maos.journal.codec import BODY_BYTES_MAX, Codec, is_plain
from maos.redact import REDACTED, clean
from maos.text import cut

SHOWN_CHARS_MAX, BRIEF_CHARS_MAX = 200, 60
ERROR_CHARS_MAX = 100_000
TRACEBACK_CHARS_MAX = 20_000
FRAMES_MAX = -100
"""How many frames of an error are kept, the last: those of a function that calls itself are many."""
_OURS = tuple(
    os.path.dirname(each) + os.sep for each in (os.path.dirname(__file__), asyncio.__file__, concurrent.__file__)
)
PLAIN_BYTES_MAX = BODY_BYTES_MAX - (1 << 20)
"""The largest value that is recorded; the rest of an event has room beside it."""
_QUICK_CHARS_MAX = PLAIN_BYTES_MAX // 6  # a character becomes up to six, as in \u0000


def plain(value: Any, what: str, codec: Codec | None = None) -> Any:
    """The value as the journal of this codec keeps it, without secrets, so that it is the same when the function runs
    again; without a codec, it is not kept. InvalidInput says what cannot be kept."""
    kind = value.__class__
    if value is None or kind is bool or (kind is int and -(2**63) <= value < 2**63):
        return value
    if kind is str and value.isascii() and len(value) <= _QUICK_CHARS_MAX:
        return value if codec is None else _without_secrets(value, what, codec)
    try:
        try:
            body = _encode(value)  # sets in order, so that the digest of arguments is the same in another process
        except TypeError:  # or a key that is no text, which the plainer way takes
            body = msgspec.json.encode(value, enc_hook=_plain_of)
        if codec is not None and len(body) > PLAIN_BYTES_MAX:
            raise ValueError(f"it has {len(body):,} bytes, and at most {PLAIN_BYTES_MAX:,} are kept")
        made = msgspec.json.decode(body)  # what another process would find, as a list where a tuple was
        if b"null" in body and not _is_finite(value):
            raise ValueError("a number in it is not finite")
        if not is_plain(made):
            raise ValueError("it is too deep")
        if len(msgspec.json.encode(made)) != len(body):  # as text, 1 and "1" are one key
            raise ValueError("two of its keys are the same as text")
        if codec is not None and codec.redactor.spans(body):
            made = _without_secrets(made, what, codec)
    except (TypeError, NotImplementedError, ValueError, RecursionError, OverflowError) as error:
        raise InvalidInput(
            f"{what} cannot be recorded: {error}",
            hint="use plain data, dataclasses, msgspec.Struct, pydantic models or typed dictionaries",
        ) from error
    return made


def _without_secrets(value: Any, what: str, codec: Codec) -> Any:
    """The value with what was redacted; InvalidInput for a secret that is passed on by itself, since only the first
    execution could use it."""

    def redact(text: str) -> str:
        redacted = codec.redactor.text(text)
        if redacted != text and redacted.startswith(REDACTED) and redacted.find("]") == len(redacted) - 1:
            raise InvalidInput(
                f"{what} is a secret ({redacted[len(REDACTED) : -1]}), which is never recorded",
                hint="have the step that needs it read it from a file or a variable",
            )
        return redacted

    return clean(value, redact)


def typed(value: Any, annotation: Any, what: str) -> Any:
    """Recorded data as what it was: of the type that the function's signature names, and never the record itself."""
    if value.__class__ is dict or value.__class__ is list:
        value = msgspec.to_builtins(value)  # the caller may change it
    if annotation is Any or annotation is None or (annotation.__class__ is type and value.__class__ is annotation):
        return value
    try:
        return msgspec.convert(value, annotation, str_keys=True, dec_hook=_of_plain)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{what} is not what its signature says: {error}") from error
    except TypeError:
        return value  # an annotation that is no type of data


def answered(answer: str, form: str, annotation: Any) -> Any:
    """The answer of an agent as it is recorded: the data that it means, if it is JSON or a type is wanted.
    InvalidInput when it is not of that type."""
    if form == "none" or (not form and annotation in (Any, str)):
        return None if form else answer
    try:
        found = msgspec.json.decode(answer)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"what the agent answered is not JSON: {error}") from error
    typed(found, annotation, "what the agent answered")
    return found


def bind(
    function: Callable[..., Any], arguments: Mapping[str, Any], name: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Recorded arguments with the types that the function's signature names; InvalidInput when they do not fit."""
    args, kwargs = arguments.get("args", ()), arguments.get("kwargs", {})
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidInput(
            f"the workflow {name} cannot be called: {error}", hint=f"it is {name}{inspect.signature(function)}"
        ) from error
    for each, value in bound.arguments.items():
        type_ = annotation(function, each)
        what = f"the argument {each} of the workflow {name}"
        kind = bound.signature.parameters[each].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            bound.arguments[each] = tuple(typed(one, type_, what) for one in value)
        elif kind is inspect.Parameter.VAR_KEYWORD:
            bound.arguments[each] = {key: typed(one, type_, what) for key, one in value.items()}
        else:
            bound.arguments[each] = typed(value, type_, what)
    return bound.args, bound.kwargs


def arguments(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], name: str, codec: Codec
) -> dict[str, Any]:
    """The arguments of a workflow as they are recorded; InvalidInput when its function does not accept them."""
    found: dict[str, Any] = plain({"args": list(args), "kwargs": dict(kwargs)}, f"an argument of {name}", codec)
    bind(function, found, name)
    return found


def annotation(function: Callable[..., Any], name: str) -> Any:
    """The type that a function's signature gives an argument, or its "return", also when others cannot be evaluated;
    names that only its surroundings know are found there."""
    hint = getattr(function, "__annotations__", {}).get(name, Any)
    around = inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else {}
    try:
        alone = SimpleNamespace(__annotations__={name: hint})
        return get_type_hints(alone, getattr(function, "__globals__", {}), dict(around))[name]
    except (NameError, TypeError, AttributeError):
        return Any


def digest(args: tuple[Any, ...], kwargs: Mapping[str, Any], what: str) -> str:
    """A digest of the arguments of a step, which tells whether it is the same step."""
    if not args and not kwargs:
        return ""
    made = plain([args, kwargs], what)  # only its digest is kept
    return fingerprint(made).hex()[:16]


def fingerprint(made: Any) -> bytes:
    """A hash of plain data that does not depend on the order of its keys."""
    return hashlib.sha256(msgspec.json.encode(made, order="sorted")).digest()


def shown(args: tuple[Any, ...], kwargs: Mapping[str, Any], codec: Codec) -> str:
    """The beginning of the arguments of a step, for a person."""
    parts = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
    return beginning(", ".join(parts), codec)


def brief(args: tuple[Any, ...], kwargs: Mapping[str, Any], codec: Codec) -> str:
    """The arguments of a step in few characters: short texts and numbers; of other data only the type."""

    def one(value: Any) -> str:
        is_short = value is None or (isinstance(value, str | int | float) and len(str(value)) <= SHOWN_CHARS_MAX)
        return repr(value) if is_short else f"{type(value).__name__}(…)"

    parts = [*map(one, args), *(f"{name}={one(value)}" for name, value in kwargs.items())]
    return beginning(", ".join(parts), codec, BRIEF_CHARS_MAX)


def beginning(text: str, codec: Codec, chars_max: int = SHOWN_CHARS_MAX) -> str:
    """The beginning of a text, without secrets: those are removed before one could be cut in two."""
    text = _text(text, codec)
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def error_data(error: BaseException, codec: Codec) -> dict[str, Any]:
    """What is recorded of an exception: its type, its message, and where it was raised, without secrets."""
    found = {"type": type(error).__name__, "message": cut(_text(str(error), codec), ERROR_CHARS_MAX)}
    if traceback := _traceback(error, codec):
        found["traceback"] = traceback
    return found


def _traceback(error: BaseException, codec: Codec) -> str:
    """The frames of the author's code, with those of the errors that it followed from; the end, if it is long. Empty
    for an error that was raised outside of that code."""
    told = traceback.TracebackException.from_exception(error, limit=FRAMES_MAX)
    todo: list[traceback.TracebackException | None] = [told]
    while todo:
        if (each := todo.pop()) is None:
            continue
        frames = [frame for frame in each.stack if not frame.filename.startswith(_OURS)]
        if not frames and each is told and told.__cause__ is None:
            return ""
        each.stack = traceback.StackSummary.from_list(frames or each.stack)
        todo += [each.__cause__, each.__context__, *(each.exceptions or ())]
    text = _text("".join(told.format()).strip(), codec)
    return text if len(text) <= TRACEBACK_CHARS_MAX else "…" + text[-TRACEBACK_CHARS_MAX:]


def _text(text: str, codec: Codec) -> str:
    return codec.redactor.text(text).encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def _plain_of(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if callable(dump := getattr(type(value), "model_dump", None)):  # a pydantic model, which maos does not import
        return dump(value, mode="json")
    for kind in (str, int, float):
        if isinstance(value, kind) and not isinstance(value, bool):  # a class of its own, as libraries for numbers have
            return kind(value)
    raise NotImplementedError(f"a {type(value).__name__} is no plain data")


def _of_plain(type_: type, value: Any) -> Any:
    if type_ is object:
        return value
    if issubclass(type_, Path):
        return type_(value)
    if callable(validate := getattr(type_, "model_validate", None)):
        return value if isinstance(value, type_) else validate(value)
    raise TypeError(f"{type_.__name__} is no type of data")


def _is_finite(value: Any) -> bool:
    try:
        json.dumps(msgspec.to_builtins(value, str_keys=True, enc_hook=_plain_of), allow_nan=False)
    except ValueError:
        return False
    return True


_encode = msgspec.json.Encoder(enc_hook=_plain_of, order="deterministic").encode
