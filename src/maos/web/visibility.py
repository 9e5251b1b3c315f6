"""Which texts of a document are shown to a caller that may not read what agents wrote.

Everything in a document that can hold words of an agent is hidden from callers without the verb `read_output`, unless
its type says that it holds none: a number, a state of a fixed list, or a `Label`. A new field with a text is hidden
until its type is `Label`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from maos.model.read_models import LABEL

Hide = Callable[[Any], Any]
_SHOWN = (
    inspect.IntType,
    inspect.FloatType,
    inspect.BoolType,
    inspect.NoneType,
    inspect.EnumType,
    inspect.LiteralType,
)


def without_output(data: Any, kind: type[msgspec.Struct]) -> Any:
    """A document of a class, as plain data, without anything that an agent may have written: texts are empty."""
    return _hiding(kind)(data)


def is_shown(kind: inspect.Type) -> bool:
    """Whether all values of a type are shown to every caller who sees the document."""
    if isinstance(kind, inspect.Metadata):
        return bool((kind.extra or {}).get(LABEL)) or is_shown(kind.type)
    if isinstance(kind, inspect.UnionType):
        return all(is_shown(each) for each in kind.types)
    return isinstance(kind, _SHOWN)


@cache
def _hiding(kind: type[msgspec.Struct]) -> Hide:
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    fields = {each.encode_name: _hidden(each.type) for each in found.fields}

    def hide(data: Any) -> Any:
        # A field that the class does not have is left out: it has no type that says what it holds.
        return {name: work(data[name]) for name, work in fields.items() if name in data}

    return hide


def _hidden(kind: inspect.Type) -> Hide:
    """What hides the words of agents in values of a type."""
    if is_shown(kind):
        return _same
    match kind:
        case inspect.Metadata():
            return _hidden(kind.type)
        case inspect.StructType():
            return _hiding(kind.cls)
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            return _each(kind.item_type)
        case inspect.TupleType():
            works = [_hidden(each) for each in kind.item_types]
            return lambda data: [work(each) for work, each in zip(works, data, strict=True)]
        case inspect.DictType() if is_shown(kind.key_type):
            return _values(_hidden(kind.value_type))
        case inspect.UnionType():
            return _optional([each for each in kind.types if not isinstance(each, inspect.NoneType)])
    return _emptied


def _same(data: Any) -> Any:
    return data


def _emptied(data: Any) -> Any:
    return type(data)() if isinstance(data, str | list | dict) else None


def _each(kind: inspect.Type) -> Hide:
    work = _hidden(kind)
    # A list of texts is emptied as a whole: how many there are is not worth a row of empty texts.
    return _emptied if work is _emptied else lambda data: [work(each) for each in data]


def _values(work: Hide) -> Hide:
    return lambda data: {name: work(each) for name, each in data.items()}


def _optional(kinds: list[inspect.Type]) -> Hide:
    """A value that may be missing; one of several classes or types is hidden as a whole."""
    work = _hidden(kinds[0]) if len(kinds) == 1 else _emptied
    return lambda data: None if data is None else work(data)
