"""What callers see who may not read what agents wrote: of texts only those whose type says that no agent wrote them."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import inspect

from maos.model.read_models import Label, LabelData
from maos.web.endpoints.table import ENDPOINTS, PAGES
from maos.web.visibility import is_shown, without_output

SAID = "printed by an agent"


class Inner(msgspec.Struct):
    name: Label
    new: str = SAID


class Outer(msgspec.Struct):
    id: Label
    number: int
    inner: Inner
    inners: list[Inner]
    by_name: dict[Label, Inner]
    counts: dict[Label, int]
    pair: tuple[int, Label]
    setting: LabelData
    maybe: Inner | None
    nothing: Label | None
    new: str = SAID
    new_or_none: str | None = SAID
    new_list: list[str] = msgspec.field(default_factory=lambda: [SAID])
    new_data: Any = SAID
    new_dict: dict[str, int] = msgspec.field(default_factory=lambda: {SAID: 1})
    new_values: dict[Label, Any] = msgspec.field(default_factory=lambda: {"a": SAID})
    new_pair: tuple[int, str] = (1, SAID)
    new_union: Inner | int = msgspec.field(default_factory=lambda: Inner("x"))


def test_a_new_field_is_hidden_until_its_type_says_what_it_holds() -> None:
    some = Inner("a")
    made = Outer("r-1", 7, some, [some], {"a": some}, {"done": 2}, (1, "done"), {"path": "x"}, some, None)
    shown = without_output({**msgspec.to_builtins(made), "unknown": SAID}, Outer)
    assert SAID not in repr(shown)
    inner = {"name": "a", "new": ""}
    assert shown == {
        "id": "r-1", "number": 7, "inner": inner, "inners": [inner], "by_name": {"a": inner}, "counts": {"done": 2},
        "pair": [1, "done"], "setting": {"path": "x"}, "maybe": inner, "nothing": None, "new": "", "new_or_none": "",
        "new_list": [], "new_data": "", "new_dict": {}, "new_values": {"a": ""}, "new_pair": [1, ""], "new_union": {},
    }  # fmt: skip


def test_every_text_that_is_shown_to_all_callers_is_listed(golden: Callable[[str, str], None]) -> None:
    """Read the difference: what is new in the list must never hold words of an agent."""
    kinds = {each.result for each in (*ENDPOINTS, *PAGES) if each.result is not None}
    found = {name for kind in kinds for name in _shown_texts(inspect.type_info(kind), set())}
    golden("web/shown_texts.txt", "".join(f"{name}\n" for name in sorted(found)))


def _shown_texts(kind: inspect.Type, seen: set[type], name: str = "") -> Iterator[str]:
    """The texts in a type that are shown to every caller, as "Class.field"."""
    match kind:
        case inspect.Metadata() if is_shown(kind) and not is_shown(kind.type):
            yield name
        case inspect.Metadata():
            yield from _shown_texts(kind.type, seen, name)
        case inspect.StructType() if kind.cls not in seen:
            seen.add(kind.cls)
            for field in kind.fields:
                yield from _shown_texts(field.type, seen, f"{kind.cls.__name__}.{field.encode_name}")
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            yield from _shown_texts(kind.item_type, seen, name)
        case inspect.TupleType():
            for each in kind.item_types:
                yield from _shown_texts(each, seen, name)
        case inspect.DictType():
            yield from _shown_texts(kind.key_type, seen, name)
            yield from _shown_texts(kind.value_type, seen, name)
        case inspect.UnionType():
            for each in kind.types:
                yield from _shown_texts(each, seen, name)
