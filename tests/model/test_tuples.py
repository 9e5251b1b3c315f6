"""Named tuples: everything that `typing.NamedTuple` does and maos relies on, for less time at the start."""

import copy
import pickle
import typing
from typing import Any, Generic, TypeVar

import msgspec
import pytest

from maos.tuples import NamedTuple

T = TypeVar("T")


class Ours(NamedTuple):
    """A docstring."""

    number: int
    text: str = ""
    items: tuple[str, ...] = ()

    @property
    def twice(self) -> int:
        return 2 * self.number


class Theirs(typing.NamedTuple):
    number: int
    text: str = ""
    items: tuple[str, ...] = ()


class Box(NamedTuple, Generic[T]):
    inside: T


class Larger(Ours):
    """With another method, and the same items."""

    def total(self) -> int:
        return self.twice + 1


def both(function: Any) -> tuple[Any, Any]:
    def outcome(kind: Any) -> Any:
        try:
            return function(kind)
        except (AttributeError, TypeError, ValueError) as error:
            return type(error)

    return outcome(Ours), outcome(Theirs)


@pytest.mark.parametrize(
    "function",
    [
        lambda kind: kind(1),
        lambda kind: kind(1, "a", items=("b",)),
        lambda kind: kind(),
        lambda kind: kind(1, 2, 3, 4),
        lambda kind: kind(1, number=2),
        lambda kind: kind(1, other=2),
        lambda kind: kind(1)._replace(text="x"),
        lambda kind: kind(1)._replace(other="x"),
        lambda kind: kind._make([1, "a", ()]),
        lambda kind: kind._make([1]),
        lambda kind: kind(1)._asdict(),
        lambda kind: repr(kind(1)).replace(kind.__name__, ""),
        lambda kind: (kind._fields, kind._field_defaults, kind.__match_args__),
        lambda kind: kind(1) < kind(2),
        lambda kind: hash(kind(1)),
        lambda kind: [*kind(1)],
        lambda kind: setattr(kind(1), "number", 2),
        lambda kind: setattr(kind(1), "other", 2),
        typing.get_type_hints,
        lambda kind: copy.deepcopy(kind(1)),
        lambda kind: msgspec.json.encode(kind(1, "a")),
        lambda kind: msgspec.json.decode(b'[1,"a",["b"]]', type=kind),
        lambda kind: msgspec.json.decode(b'["1"]', type=kind),
        lambda kind: msgspec.convert([1], kind),
    ],
)
def test_it_does_what_the_one_of_typing_does(function: Any) -> None:
    ours, theirs = both(function)
    assert ours == theirs


def test_methods_subclasses_and_parameters() -> None:
    assert Ours(2).twice == 4
    assert Ours.__doc__ == "A docstring."
    larger = Larger(2, "x")
    assert (type(larger), larger.total(), larger._replace(number=3).total()) == (Larger, 5, 7)
    assert Ours(1) != Larger(2)
    assert Box[int](3).inside == 3
    match Ours(7):
        case Ours(number, text):
            assert (number, text) == (7, "")
    assert pickle.loads(pickle.dumps(Ours(1, "a"))) == Ours(1, "a")


def test_an_item_without_a_default_cannot_follow_one_with_a_default() -> None:
    with pytest.raises(TypeError, match="Wrong: an item without a default"):

        class Wrong(NamedTuple):
            first: int = 1
            second: int  # type: ignore[misc]
