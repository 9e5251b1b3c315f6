"""Questions are named by as much of their id as a person needs, and what is shown is what can be typed."""

from maos.model.question import Open, find, short

ASKED = [
    Open("r-1", "merge/edit-a/1", "question", "How is it merged?"),
    Open("r-1", "gate/edit-a/0/1", "gate", "Is it good?"),
    Open("r-1", "q-3fa2b1c4d5e6", "question", "Which one?"),
    Open("r-2", "merge/edit-b/1", "question", "How is it merged?"),
    Open("r-2", "merge/edit-bb/1", "question", "How is it merged?"),
]


def test_an_id_is_cut_behind_what_the_question_is_about() -> None:
    assert [short(each, ASKED, ASKED) for each in ASKED] == [
        "merge/edit-a", "gate/edit-a", "q-3fa2", "merge/edit-b/1", "merge/edit-bb",
    ]  # fmt: skip
    of_one_run = ASKED[:3]
    assert [short(each, of_one_run) for each in of_one_run] == [
        "r-1/merge/edit-a", "r-1/gate/edit-a", "r-1/q-3fa2",
    ]  # fmt: skip


def test_what_is_shown_can_be_typed() -> None:
    for each in ASKED:
        assert find(ASKED, short(each, ASKED, ASKED)) is each
        assert find(ASKED, short(each, [other for other in ASKED if other.owner == each.owner])) is each
