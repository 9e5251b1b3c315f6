"""What holds for all states and all changes."""

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from maos.model import checksum
from maos.model.changes import DELETE, MISSING, Extend, apply, changes, difference, lookup, operations, parse_pointer
from tests.model.data import KEYS, STATES, VALUES, related_states, same

often = settings(max_examples=80, deadline=None)

PAIRS = related_states()


@often
@given(PAIRS)
def test_the_difference_leads_from_one_state_to_the_other(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """I12: what is stored of a change is enough to make it again."""
    old, new = pair
    assert same(apply(old, difference(old, new)), new)


@often
@given(PAIRS)
def test_there_and_back_again(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """I14: a rollback is a difference like any other."""
    old, new = pair
    there = apply(old, difference(old, new))
    assert same(apply(there, difference(there, old)), old)


@often
@given(PAIRS)
def test_nothing_is_altered_by_being_changed(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """States are shared by readers, caches and later versions."""
    old, new = pair
    before, after = copy.deepcopy(old), copy.deepcopy(new)
    ops = difference(old, new)
    stored = copy.deepcopy(ops)
    apply(old, ops)
    list(changes(old, ops))
    checksum.after(checksum.checksum(old), old, ops)
    assert same(old, before)
    assert same(new, after)
    assert same(ops, stored)


@often
@given(PAIRS)
def test_the_checksum_follows_the_changes(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """I13: the checksum recorded with a change is that of the state it leads to."""
    old, new = pair
    total, state = checksum.after(checksum.checksum(old), old, difference(old, new))
    assert same(state, new)
    assert total == checksum.checksum(new)


@often
@given(PAIRS)
def test_there_is_no_difference_only_between_equal_states(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    old, new = pair
    assert difference(old, copy.deepcopy(old)) == []
    assert (difference(old, new) == []) == same(old, new)
    assert (checksum.checksum(old) == checksum.checksum(new)) == same(old, new)


@often
@given(PAIRS)
def test_changes_tell_everything(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """R-402: from path, old, new and kind alone the new state can be made from the old one."""
    old, new = pair
    state = copy.deepcopy(old)
    for change in changes(old, difference(old, new)):
        *parents, last = parse_pointer(change.path, state)
        node = lookup(state, tuple(parents))
        there = lookup(state, (*parents, last))
        assert there is MISSING if change.old is MISSING else same(there, change.old)
        assert (
            change.kind
            == {
                (True, False): "create",
                (False, True): "delete",
                (False, False): "update",
            }[change.old is MISSING, change.new is MISSING]
        )
        if change.kind == "delete":
            del node[last]
        elif type(node) is list and last == len(node):
            node.append(change.new)
        else:
            node[last] = change.new
    assert same(state, new)


def merged(old: Any, wanted: Any) -> Any:
    """What an update with plain values means, said as simply as possible."""
    if type(old) is dict and type(wanted) is dict:
        return {**old, **{key: merged(old.get(key), value) for key, value in wanted.items()}}
    return wanted


WISHES = st.dictionaries(KEYS.filter(lambda key: not key.startswith("/")), VALUES, max_size=4)


@often
@given(STATES, WISHES)
def test_an_update_merges_dictionaries_and_replaces_the_rest(state: dict[str, Any], wanted: dict[str, Any]) -> None:
    """R-403: what is not named stays."""
    after = apply(state, operations(state, wanted))
    assert same(after, merged(state, wanted))
    assert operations(after, wanted) == [], "wanting what is so already changes nothing"


@often
@given(STATES, st.data())
def test_every_value_can_be_addressed_by_its_path(state: dict[str, Any], data: st.DataObject) -> None:
    """RFC 6901, whatever characters the keys have."""
    everything = list(changes({}, difference({}, state)))
    path = data.draw(st.sampled_from([change.path for change in everything])) if everything else None
    if path is None:
        return
    after = apply(state, operations(state, {path: "here"}))
    assert lookup(after, parse_pointer(path, after)) == "here"
    gone = apply(after, operations(after, {path: DELETE}))
    assert same(gone, {key: value for key, value in state.items() if key != parse_pointer(path, state)[0]})


@often
@given(st.lists(VALUES, max_size=5), st.lists(VALUES, max_size=5))
def test_extending_adds_to_the_end_and_stores_only_what_is_new(items: list[Any], more: list[Any]) -> None:
    state = {"log": items}
    ops = operations(state, {"log": Extend(more)})
    assert same(apply(state, ops), {"log": items + more})
    assert ops == ([["ext", "/log", len(items), more]] if more else [])


@often
@given(STATES, st.randoms())
def test_the_checksum_does_not_depend_on_the_order_of_keys(state: dict[str, Any], random: Any) -> None:
    """I15: two processes that built the same data in another order agree."""

    def shuffled(value: Any) -> Any:
        if type(value) is dict:
            keys = list(value)
            random.shuffle(keys)
            return {key: shuffled(value[key]) for key in keys}
        return [shuffled(item) for item in value] if type(value) is list else value

    assert checksum.checksum(shuffled(state)) == checksum.checksum(state)
