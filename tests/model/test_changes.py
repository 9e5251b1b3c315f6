"""From what is wanted to what is stored: markers, paths, lists, and wishes that make no sense."""

from typing import Any

import pytest

from maos.errors import Corrupt, InvalidInput
from maos.model import checksum
from maos.model.changes import (
    DELETE,
    MISSING,
    Change,
    Extend,
    Replace,
    apply,
    changes,
    describe,
    difference,
    operations,
    parse_pointer,
    pointer,
)
from tests.model.data import nested, same

STATE: dict[str, Any] = {
    "status": "idle",
    "memory": {"k": 1, "deep": {"x": [1, 2, 3]}},
    "messages": [{"role": "user"}, {"role": "agent"}],
    "none": None,
}


def after(wanted: dict[str, Any], state: dict[str, Any] = STATE) -> dict[str, Any]:
    """The state after an update."""
    return apply(state, operations(state, wanted))


class TestMarkers:
    def test_delete_removes_a_field(self) -> None:
        assert operations(STATE, {"status": DELETE}) == [["del", "/status"]]
        assert "status" not in after({"status": DELETE})
        assert after({"memory": {"deep": DELETE}})["memory"] == {"k": 1}

    def test_deleting_what_is_not_there_changes_nothing(self) -> None:
        assert operations(STATE, {"nothing": DELETE, "memory": {"nothing": DELETE}}) == []

    def test_a_field_that_is_none_is_there(self) -> None:
        assert operations(STATE, {"none": None}) == []
        assert operations(STATE, {"none": DELETE}) == [["del", "/none"]]
        assert operations(STATE, {"other": None}) == [["set", "/other", None]]

    def test_replace_puts_a_dictionary_in_the_place_of_another(self) -> None:
        assert after({"memory": Replace({"new": 1})})["memory"] == {"new": 1}
        assert after({"memory": {"new": 1}})["memory"] == {**STATE["memory"], "new": 1}

    def test_replace_says_only_what_differs(self) -> None:
        assert operations(STATE, {"memory": Replace({"k": 1, "deep": {"x": [1, 2, 3, 4]}})}) == [
            ["ext", "/memory/deep/x", 3, [4]]
        ]

    def test_extending_what_is_not_there_creates_it(self) -> None:
        assert operations(STATE, {"tasks": Extend(["one"])}) == [["set", "/tasks", ["one"]]]

    def test_extending_by_nothing_changes_nothing(self) -> None:
        assert operations(STATE, {"messages": Extend([])}) == []

    def test_extending_what_is_no_list_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="/status is not a list"):
            operations(STATE, {"status": Extend([1])})

    def test_markers_inside_new_dictionaries_mean_what_they_would_mean_there(self) -> None:
        assert after({"new": {"list": Extend([1]), "gone": DELETE, "map": Replace({"a": 1}), "in": {"x": DELETE}}})[
            "new"
        ] == {"list": [1], "map": {"a": 1}, "in": {}}

    @pytest.mark.parametrize("value", [[DELETE], Replace(DELETE), Extend([Extend([1])]), Replace({"a": Replace(1)})])
    def test_markers_where_they_mean_nothing_are_refused(self, value: Any) -> None:
        ops = operations(STATE, {"x": value})
        with pytest.raises(InvalidInput, match=r"/x.* is a maos\.model\.changes\."):
            checksum.after(checksum.checksum(STATE), STATE, ops)

    def test_extend_takes_any_sequence_and_keeps_none_of_it(self) -> None:
        items = [{"role": "user"}]
        ops = operations(STATE, {"messages": Extend(tuple(items)), "memory": {"note": items}})
        items[0]["role"] = "changed"
        items.append({})
        assert ops == [["ext", "/messages", 2, [{"role": "user"}]], ["set", "/memory/note", [{"role": "user"}]]]

    def test_markers_say_what_they_are(self) -> None:
        assert repr(DELETE) == "maos.DELETE"
        assert repr(MISSING) == "maos.MISSING"


class TestPaths:
    @pytest.mark.parametrize(
        ("parts", "text"),
        [
            ((), ""),
            (("",), "/"),
            (("a", 0, "b"), "/a/0/b"),
            (("a/b", "m~n", "~1"), "/a~1b/m~0n/~01"),
            (("tab\there", "🦑"), "/tab\there/🦑"),
        ],
    )
    def test_a_path_is_a_json_pointer(self, parts: tuple[str | int, ...], text: str) -> None:
        assert pointer(parts) == text
        state: Any = "end"
        for part in reversed(parts):
            state = [state] if part == 0 else {part: state}
        assert parse_pointer(text, state) == parts

    def test_a_number_is_an_index_only_where_there_is_a_list(self) -> None:
        assert parse_pointer("/a/0", {"a": [1]}) == ("a", 0)
        assert parse_pointer("/a/0", {"a": {"0": 1}}) == ("a", "0")
        assert parse_pointer("/a/٣", {"a": [1]}) == ("a", "٣"), "only plain digits count"

    def test_a_wish_may_name_a_path(self) -> None:
        assert after({"/memory/deep/x/1": "two"})["memory"]["deep"]["x"] == [1, "two", 3]
        assert after({"/messages/0/role": "system"})["messages"][0] == {"role": "system"}
        assert after({"/memory": {"k": 2}})["memory"] == {"k": 2, "deep": {"x": [1, 2, 3]}}

    def test_a_path_one_beyond_the_end_of_a_list_adds_to_it(self) -> None:
        assert after({"/memory/deep/x/3": 4})["memory"]["deep"]["x"] == [1, 2, 3, 4]

    @pytest.mark.parametrize(
        ("wanted", "reason"),
        [
            ({"/memory/deep/x/4": 4}, "beyond the end of a list of 3"),
            ({"/memory/deep/x/-1": 4}, "beyond the end"),
            ({"/memory/deep/x/" + "9" * 5000: 4}, "beyond the end"),
            ({"/nothing/here": 1}, "/nothing is not there"),
            ({"/nothing/here": Extend([1])}, "/nothing is not there"),
            ({"/nothing/here": Replace([1])}, "/nothing is not there"),
            ({"/status/letter": 1}, "/status is not there or holds no fields"),
            ({"": 1, "/": 2, "/status/x/y": 3}, "/status/x is not there"),
            ({1: 2}, "the key 1 is a int"),
            ({"memory": {1: 2}}, "/memory: the key 1 is a int"),
        ],
    )
    def test_a_path_to_nowhere_is_refused_by_name(self, wanted: Any, reason: str) -> None:
        with pytest.raises(InvalidInput, match=reason):
            operations(STATE, wanted)

    def test_a_text_without_a_slash_is_no_path(self) -> None:
        with pytest.raises(InvalidInput, match="'status' is not a path"):
            parse_pointer("status", STATE)

    def test_the_empty_key_is_a_field_like_any_other(self) -> None:
        assert after({"": 1})[""] == 1
        assert after({"/": 2}, {"": 1}) == {"": 2}


class TestLists:
    def test_only_the_items_that_differ_are_stored(self) -> None:
        assert operations(STATE, {"messages": [{"role": "user"}, {"role": "tool"}, {"role": "new"}]}) == [
            ["set", "/messages/1/role", "tool"],
            ["ext", "/messages", 2, [{"role": "new"}]],
        ]

    def test_a_shorter_list_loses_items_from_its_end(self) -> None:
        assert difference({"x": [1, 2, 3]}, {"x": [1]}) == [["del", "/x/2"], ["del", "/x/1"]]

    @pytest.mark.parametrize("index", [0, 1, 2])
    def test_deleting_an_item_moves_the_others_up(self, index: int) -> None:
        x = [1, 2, 3]
        del x[index]
        assert after({f"/memory/deep/x/{index}": DELETE})["memory"]["deep"]["x"] == x

    def test_one_true_and_1_0_are_different_values(self) -> None:
        for old in (1, 1.0, True):
            for new in (1, 1.0, True):
                result = apply({"x": [old]}, difference({"x": [old]}, {"x": [new]}))
                assert same(result, {"x": [new]})

    def test_zero_has_no_sign(self) -> None:
        """0.0 and -0.0 are equal, so there is no change between them and they have one checksum."""
        assert difference({"x": 0.0}, {"x": -0.0}) == []
        assert checksum.checksum({"x": 0.0}) == checksum.checksum({"x": -0.0})


class TestContradictions:
    @pytest.mark.parametrize(
        "wanted",
        [
            {"/memory/deep/x/0": DELETE, "/memory/deep/x/1": DELETE},
            {"memory": {"k": DELETE}, "/memory/k": DELETE},
            {"messages": Extend([1]), "/messages": Extend([2])},
            {"memory": DELETE, "/memory/k": 2},
        ],
    )
    def test_changes_that_contradict_each_other_do_not_apply(self, wanted: dict[str, Any]) -> None:
        with pytest.raises(Corrupt, match="does not fit the state"):
            apply(STATE, operations(STATE, wanted))

    @pytest.mark.parametrize(
        "op",
        [
            ["set", "/nothing/x", 1],
            ["set", "/messages/5", 1],
            ["set", "/status/x", 1],
            ["del", "/nothing"],
            ["del", "/messages/0"],
            ["ext", "/messages", 1, [1]],
            ["ext", "/status", 4, "y"],
            ["ext", "/nothing", 0, [1]],
            ["move", "/status", "/state"],
            ["set", "status", 1],
            ["set"],
            [],
            ["set", "", 5],
            ["set", 7, 5],
        ],
    )
    def test_an_operation_that_does_not_fit_is_corrupt(self, op: list[Any]) -> None:
        """I11: no value is made up for it."""
        before = checksum.checksum(STATE)
        with pytest.raises(Corrupt, match="does not fit the state"):
            apply(STATE, [op])
        assert checksum.checksum(STATE) == before

    @pytest.mark.parametrize("levels", [2_000, 50_000])
    def test_bottomless_wishes_are_refused(self, levels: int) -> None:
        with pytest.raises(InvalidInput, match="nested too deep"):
            operations(STATE, {"x": nested(levels)})

    def test_a_wish_that_contains_itself_is_refused(self) -> None:
        wish: dict[str, Any] = {}
        wish["wish"] = wish
        with pytest.raises(InvalidInput, match="contains itself"):
            operations(STATE, {"x": wish})


class TestChanges:
    def test_each_path_is_shown_with_old_and_new_and_kind(self) -> None:
        """R-402."""
        ops = operations(STATE, {"status": "busy", "memory": {"k": DELETE}, "messages": Extend([{"role": "tool"}, 5])})
        assert list(changes(STATE, ops)) == [
            Change("/status", "idle", "busy", "update"),
            Change("/memory/k", 1, MISSING, "delete"),
            Change("/messages/2", MISSING, {"role": "tool"}, "create"),
            Change("/messages/3", MISSING, 5, "create"),
        ]

    def test_a_whole_state_is_shown_field_by_field(self) -> None:
        assert list(changes({"a": 1}, [["set", "", {"a": 2, "b/c": 3}]])) == [
            Change("/a", 1, 2, "update"),
            Change("/b~1c", MISSING, 3, "create"),
        ]

    def test_what_is_shown_is_the_reader_s_own(self) -> None:
        shown = list(changes(STATE, [["set", "/memory/k", {"a": []}], ["del", "/messages/1"], ["del", "/memory"]]))
        shown[1].old["role"] = "changed"
        shown[2].old["k"]["a"].append("changed")
        assert STATE["messages"][1] == {"role": "agent"}
        assert STATE["memory"]["k"] == 1

    def test_equal_wishes_are_described_alike_and_others_are_not(self) -> None:
        """What an idempotency key stands for."""
        wishes = [
            {"a": 1},
            {"a": [1]},
            {"a": Extend([1])},
            {"a": Replace([1])},
            {"a": DELETE},
            {"a": {"delete": True}},
            {"a": {"extend": [1]}},
            {"a": {}},
            {"a": Replace({})},
            {},
        ]
        described = [describe(wish) for wish in wishes]
        assert described == [describe(wish) for wish in wishes]
        for index, one in enumerate(described):
            assert one not in described[index + 1 :]
