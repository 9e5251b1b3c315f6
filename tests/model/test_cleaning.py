"""What a policy removes: as a naive reader of it would say (R-704)."""

from hypothesis import given
from hypothesis import strategies as st

from maos.model.cleanup import AGE, NUMBER, SIZE, Old, Rule, Statistics, choose
from tests.events import event

OLD = st.builds(
    Old,
    id=st.uuids().map(str),
    kind=st.sampled_from(["orchestration", "nightly"]),
    ended_us=st.integers(1, 20),
    bytes=st.integers(0, 10),
)
RULES = st.builds(
    Rule, before_us=st.integers(0, 20), keep_runs=st.integers(0, 5), bytes_max=st.integers(0, 40)
)  # fmt: skip


def naively(completed: list[Old], rule: Rule) -> set[str]:
    """Take the oldest away for as long as there is a reason to."""
    left = sorted(completed, key=lambda each: (each.ended_us, each.id))
    gone = set()
    while left and (
        left[0].ended_us < rule.before_us
        or (rule.keep_runs and len(left) > rule.keep_runs)
        or (rule.bytes_max and sum(each.bytes for each in left) > rule.bytes_max)
    ):
        gone.add(left.pop(0).id)
    return gone


@given(st.lists(OLD, max_size=12, unique_by=lambda each: each.id), RULES, RULES)
def test_a_policy_removes_the_oldest_of_each_kind_as_long_as_there_is_a_reason(
    completed: list[Old], orchestration: Rule, nightly: Rule
) -> None:
    rules = {"orchestration": orchestration, "nightly": nightly}
    chosen = choose(completed, rules.__getitem__)
    expected = set[str]()
    for kind, rule in rules.items():
        expected |= naively([each for each in completed if each.kind == kind], rule)
    assert chosen.keys() == expected
    by_id = {each.id: each for each in completed}
    for id, why in chosen.items():
        is_old = by_id[id].ended_us < rules[by_id[id].kind].before_us
        assert (why == AGE) == is_old
        assert why in (AGE, NUMBER, SIZE)


def test_no_limits_remove_nothing() -> None:
    assert choose([Old("a", "x", 1, 1 << 40)], lambda _kind: Rule()) == {}


def test_a_worktree_that_was_begun_twice_counts_once_and_one_that_was_refused_does_not() -> None:
    known = Statistics()
    for agent, size in (("a", 10), ("a", 0), ("b", 5), ("c", 7)):
        known.apply(event("removal_started", run="r", agent=agent, bytes=size, tree="", why="", by="", at_us=1))
    known.apply(event("cleanup_ended", by="", runs=1, removed=2, kept=1, bytes=3, refused=[["r", "c"]], at_us=9))
    assert (known.worktrees, known.bytes, known.ended_us) == (2, 15, 9)
