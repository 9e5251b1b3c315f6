"""Plain data for tests: every kind of value JSON has, and pairs of states that have something in common."""

import copy
from typing import Any

from hypothesis import strategies as st

KEYS = st.one_of(
    st.sampled_from(["a", "b", "messages", "", "0", "1", "-", "a/b", "~", "~1", "m~0n", "tab\there", "🦑", "é", " "]),
    st.text(max_size=5),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**63, -(2**63) - 1, 2**64, 10**30]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(KEYS, inner, max_size=5)),
    max_leaves=12,
)
STATES = st.dictionaries(KEYS, VALUES, max_size=6)


@st.composite
def related_states(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two states, the second of which is the first one altered here and there, or another one altogether."""
    old = draw(STATES)
    if draw(st.integers(0, 3)) == 0:
        return old, draw(STATES)
    new = copy.deepcopy(old)
    for _ in range(draw(st.integers(1, 4))):
        alter(draw, new)
    return old, new


def alter(draw: st.DrawFn, node: Any) -> None:
    """Change something somewhere below a node."""
    places = list(node) if type(node) is dict else list(range(len(node)))
    if places and draw(st.booleans()):
        inner = node[draw(st.sampled_from(places))]
        if type(inner) in (dict, list):
            alter(draw, inner)
            return
    what = draw(st.sampled_from(["put", "put", "drop", "add"]))
    if type(node) is dict:
        if what == "drop" and places:
            del node[draw(st.sampled_from(places))]
        else:
            node[draw(KEYS)] = draw(VALUES)
    elif what == "drop" and places:
        del node[draw(st.sampled_from(places))]
    elif what == "put" and places:
        node[draw(st.sampled_from(places))] = draw(VALUES)
    else:
        node.insert(draw(st.integers(0, len(node))), draw(VALUES))


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: unlike in Python, 1, 1.0 and True are three things."""
    if type(one) is not type(other):
        return False
    if type(one) is dict:
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if type(one) is list:
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def nested(levels: int, *, kind: type = dict) -> Any:
    """Data that many levels deep."""
    value: Any = {} if kind is dict else []
    for _ in range(levels - 1):
        value = {"k": value} if kind is dict else [value]
    return value
