"""Which id a person means."""

from __future__ import annotations

import pytest

from maos.errors import InvalidInput, NotFound
from maos.ids import match_id


@pytest.mark.parametrize(
    ("given", "meant"), [("order-7", "order-7"), ("order-71", "order-71"), ("order-8", "order-80"), ("r", "r-1")]
)
def test_a_whole_id_wins_over_a_longer_one_and_a_beginning_is_enough(given: str, meant: str) -> None:
    assert match_id(given, ["order-7", "order-71", "order-80", "r-1", "r-1"], "run") == meant


@pytest.mark.parametrize("given", ["", "x", "r-2"])
def test_what_nothing_begins_with_is_not_found(given: str) -> None:
    with pytest.raises(NotFound, match=f"there is no run '{given}'") as caught:
        match_id(given, ["r-1"], "run", hint="list them")
    assert caught.value.hint == "list them"


def test_an_ambiguous_beginning_names_the_candidates_but_not_all_of_many() -> None:
    with pytest.raises(InvalidInput, match="'r' could be any of 2 runs: r-1, r-2"):
        match_id("r", ["r-1", "r-2"], "run")
    with pytest.raises(InvalidInput, match="any of 9 runs: r0, r1, r2, r3, r4, …"):
        match_id("r", [f"r{number}" for number in range(9)], "run")
