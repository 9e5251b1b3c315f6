"""The checksum of a state: what it tells apart and what it refuses."""

import datetime
import decimal
from collections import OrderedDict
from typing import Any

import pytest

from maos.errors import InvalidInput
from maos.model import checksum
from maos.model.changes import MISSING, MapView
from tests.model.data import nested


class Text(str):
    """A string that JSON would turn into an ordinary one."""


REFUSED: dict[str, tuple[Any, str]] = {
    "nan": (float("nan"), "/a/0/b is nan"),
    "infinity": (float("inf"), "/a/0/b is inf"),
    "minus infinity": (float("-inf"), "/a/0/b is -inf"),
    "lone surrogate": ("\ud800", "/a/0/b: .*surrogates not allowed"),
    "tuple": ((1, 2), "/a/0/b is a builtins.tuple"),
    "set": ({1, 2}, "/a/0/b is a builtins.set"),
    "bytes": (b"bytes", "/a/0/b is a builtins.bytes"),
    "datetime": (datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), "/a/0/b is a datetime.datetime"),
    "decimal": (decimal.Decimal(1), "/a/0/b is a decimal.Decimal"),
    "object": (object(), "/a/0/b is a builtins.object"),
    "subclass of str": (Text("x"), "/a/0/b is a tests.model.test_checksum.Text"),
    "subclass of dict": (OrderedDict(a=1), "/a/0/b is a collections.OrderedDict"),
    "view": (MapView({}), "/a/0/b is a maos.model.changes.MapView"),
    "marker": (MISSING, "/a/0/b is a maos.model.changes._Marker"),
    "number as key": ({1: "one"}, "/a/0/b: the key 1 is a int"),
    "None as key": ({None: "none"}, "/a/0/b: the key None is a NoneType"),
    "surrogate in key": ({"\udc00": 1}, r"a key below .* is not text"),
    "5000 digits": (10**5000, "/a/0/b is too large a number"),
    "deep dictionaries": (nested(97), "nested more than 96 levels deep"),
    "deep lists": (nested(97, kind=list), "nested more than 96 levels deep"),
}


@pytest.mark.parametrize(("value", "complaint"), REFUSED.values(), ids=REFUSED.keys())
def test_what_json_would_change_or_lose_is_refused_by_its_path(value: Any, complaint: str) -> None:
    """A6: no fallback, no guess; the caller learns what and where."""
    with pytest.raises(InvalidInput, match=complaint):
        checksum.checksum({"a": [{"b": value}]})
    state = {"a": [{}]}
    with pytest.raises(InvalidInput, match=complaint):
        checksum.after(checksum.checksum(state), state, [["set", "/a/0/b", value]])
    with pytest.raises(InvalidInput, match=complaint.replace("/a/0/b", "/a/1/b")):
        checksum.after(checksum.checksum(state), state, [["ext", "/a", 1, [{"b": value}]]])


def test_the_depth_that_is_allowed_is_that_of_the_whole_state() -> None:
    """However it came about: otherwise a state could grow until it fits into no event any more."""
    total, state = checksum.after(checksum.EMPTY, {}, [["set", "/x", nested(96)]])
    assert total == checksum.checksum(state)
    bottom = "/x" + "/k" * 95
    total, state = checksum.after(total, state, [["set", f"{bottom}/v", "a value goes in"]])
    assert total == checksum.checksum(state)
    with pytest.raises(InvalidInput, match="nested more than 96"):
        checksum.after(total, state, [["set", f"{bottom}/v", {}]])
    with pytest.raises(InvalidInput, match="nested more than 96"):
        checksum.after(total, {"x": []}, [["ext", "/x", 0, [nested(96)]]])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {"a": 1.0}),
        ({"a": 1}, {"a": True}),
        ({"a": None}, {}),
        ({"a": {}}, {"a": []}),
        ({"a": []}, {"a": [[]]}),
        ({"a": {"b": 1}}, {"a": {}, "b": 1}),
        ({"a": {"b": 1}}, {"a/b": 1, "a": {}}),
        ({"a": ["x", "y"]}, {"a": ["y", "x"]}),
        ({"a": ["x", "y"]}, {"a": {"0": "x", "1": "y"}}),
        ({"a~1b": 1}, {"a/b": 1}),
        ({"a": "x", "b": "y"}, {"a": "y", "b": "x"}),
        ({"a": ""}, {"a": None}),
        ({"": 1}, {"/": 1}),
        ({"a": "é"}, {"a": "e\u0301"}),
    ],
)
def test_different_data_has_different_checksums(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert checksum.checksum(one) != checksum.checksum(other)


def test_equal_data_has_equal_checksums() -> None:
    assert checksum.checksum({"a": 1, "b": [{"c": 2, "d": 3}]}) == checksum.checksum({"b": [{"d": 3, "c": 2}], "a": 1})


def test_the_checksum_of_a_deleted_value_is_taken_away() -> None:
    """Also of one that lies deep in what is deleted."""
    state = {"keep": 1, "drop": {"deep": [1, {"x": "y"}]}, "list": [1, [2, 3]]}
    total, after = checksum.after(
        checksum.checksum(state), state, [["del", "/drop"], ["del", "/list/1"], ["set", "/keep", 2]]
    )
    assert after == {"keep": 2, "list": [1]}
    assert total == checksum.checksum(after)


def test_a_whole_state_takes_the_place_of_everything() -> None:
    total, after = checksum.after(checksum.checksum({"a": 1}), {"a": 1}, [["set", "", {"b": 2}], ["set", "/c", 3]])
    assert after == {"b": 2, "c": 3}
    assert total == checksum.checksum(after)


def test_a_checksum_is_shown_as_32_digits() -> None:
    assert checksum.text(255) == "0" * 30 + "ff"
    assert len(checksum.text(checksum.MODULUS - 1)) == 32


def test_checksums_stay_what_they_are() -> None:
    """They are stored with every event: a change of the algorithm is a change of the format."""
    state = {"status": "idle", "n": -1, "x": 1.5, "t": True, "z": None, "l": [1, {"a/b": "~"}], "e": {}, "big": 2**70}
    assert checksum.text(checksum.EMPTY) == "b86b72c102423dcd686fc4ed9058e0c2"
    assert checksum.text(checksum.checksum(state)) == "f79551bf8d7829260d1eddb42316cb4b"
