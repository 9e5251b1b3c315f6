"""Views: everybody may look, nobody may alter."""

from typing import Any

import pytest

from maos.model.changes import ListView, MapView, copied, plain, view

DATA: dict[str, Any] = {"a": 1, "list": [1, {"x": 2}, [3]], "map": {"b": {"c": 3}}}


def test_a_view_shows_what_is_there() -> None:
    seen = MapView(DATA)
    assert seen["a"] == 1
    assert list(seen) == list(DATA)
    assert len(seen) == 3
    assert "map" in seen
    assert "nothing" not in seen
    assert seen.get("nothing") is None
    assert dict(seen.items())["a"] == 1
    assert seen["map"]["b"]["c"] == 3
    assert seen["list"][1]["x"] == 2
    assert seen["list"][-1][0] == 3
    assert len(seen["list"]) == 3
    assert [type(item) for item in seen["list"]] == [int, MapView, ListView]
    with pytest.raises(KeyError):
        seen["nothing"]
    with pytest.raises(IndexError):
        seen["list"][3]


def test_a_slice_is_a_view_too() -> None:
    part = MapView(DATA)["list"][1:]
    assert type(part) is ListView
    assert part == [{"x": 2}, [3]]
    assert list(reversed(part)) == [[3], {"x": 2}]
    assert part.index([3]) == 1


def test_views_equal_what_they_show() -> None:
    assert MapView(DATA) == DATA
    assert DATA == MapView(DATA)  # noqa: SIM300 - the other way round, too
    assert MapView(DATA) == MapView(dict(DATA))
    assert MapView(DATA)["list"] == DATA["list"]
    assert MapView(DATA) != {"a": 1}
    assert MapView(DATA)["list"] != DATA["map"]
    assert repr(MapView(DATA)) == repr(DATA)
    assert repr(ListView([1])) == "[1]"


@pytest.mark.parametrize("seen", [MapView(DATA), MapView(DATA)["list"], MapView(DATA)["map"]["b"]])
def test_nothing_can_be_altered_through_a_view(seen: Any) -> None:
    key = 0 if isinstance(seen, ListView) else "c"
    with pytest.raises(TypeError):
        seen[key] = 5
    with pytest.raises(TypeError):
        del seen[key]
    for name in ("append", "extend", "insert", "pop", "clear", "update", "setdefault", "sort", "popitem", "remove"):
        assert not hasattr(seen, name)
    with pytest.raises(AttributeError):
        seen.anything = 1
    with pytest.raises(TypeError):
        hash(seen)


def test_a_copy_is_the_caller_s_own() -> None:
    mine = copied(DATA)
    assert mine == DATA
    mine["list"][1]["x"] = mine["map"]["b"]["c"] = "changed"
    assert DATA["list"][1] == {"x": 2}
    assert DATA["map"]["b"] == {"c": 3}


def test_what_nobody_can_alter_needs_no_view() -> None:
    for value in (1, "text", None, True, 1.5):
        assert view(value) is value
        assert plain(value) is value
    assert plain(MapView(DATA)) is DATA
