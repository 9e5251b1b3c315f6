"""Plans: what is wrong with one is said at once, with its place."""

import pytest

from maos.model.plan import BadPlan, batches, from_data


def tasks(*rows: dict[str, object]) -> dict[str, object]:
    return {"tasks": [{"task": "x", **row} for row in rows]}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"tasks": []}, "nothing to do"),
        (tasks({"name": "a", "needs": ["b"]}), "task 1 (a): needs 'b', which does not exist"),
        (tasks({"name": "first"}, {"name": "b", "needs": ["frist"]}), "did you mean 'first'"),
        (tasks({"name": "a"}, {"name": "A"}), "task 2 (A): task 1 has the same name"),
        (
            tasks({"name": "a", "needs": ["c"]}, {"name": "b", "needs": ["a"]}, {"name": "c", "needs": ["b"]}),
            "a → c → b → a",
        ),
        (tasks({"name": "a", "needs": ["a"]}), "a → a"),
        ({"tasks": [{"name": "a"}]}, "nothing says what to do"),
        (tasks({"name": "a/b"}), "cannot name a task"),
        (tasks({"name": "a", "gates": [{}]}), "a gate is one of"),
        (tasks({"name": "a", "time_limit_s": -1}), "below zero"),
        ({"tasks": [{"name": "a", "tsak": "x"}]}, "task 1: Object contains unknown field `tsak`"),
        ({"tasks": [{"name": "a", "needs": "b"}]}, "task 1, needs: Expected `array`, got `str`"),
        ({"task": []}, "plan: Object"),
        ([], "plan: Expected `object`, got `array`"),
    ],
)
def test_a_bad_plan_says_what_is_wrong_and_where(data: object, said: str) -> None:
    with pytest.raises(BadPlan) as caught:
        from_data(data)
    assert said in str(caught.value)


def test_batches_are_as_early_as_they_can_be() -> None:
    plan = from_data(
        tasks({"name": "a"}, {"name": "b", "needs": ["a"]}, {"name": "c"}, {"name": "d", "needs": ["b", "c"]})
    )
    assert batches(plan) == [["a", "c"], ["b"], ["d"]]


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(BadPlan) as caught:
        from_data(tasks({"name": ""}, {"name": "b", "needs": ["x", "y"]}))
    assert len(caught.value.problems) == 3
