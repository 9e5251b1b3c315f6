"""The result of an attempt: what its program says it is, else its last words."""

from typing import Any

import pytest

from maos.model import facts
from maos.model.attempt import Attempt
from maos.model.facts import Fact, last_message


def after(*heard: Fact) -> Attempt:
    """An attempt that has heard facts."""
    attempt = Attempt(id="a.1")
    for fact in heard:
        getattr(attempt, f"_on_{fact['kind']}")(fact)
    return attempt


SPOKEN: list[list[Any]] = [
    [facts.text("One."), facts.text("Two.")],
    [facts.text("One.", message="m1"), facts.text("Two.", message="m2")],
    [facts.text("line 1", message="m1"), facts.text("line 2", message="m1")],
    [facts.text("half ", message="m1"), facts.text("a line", message="m1", part=True)],
    [facts.text("One.", message="m1"), facts.tool_use("t", "x", {}), facts.text("more", message="m1")],
]


@pytest.mark.parametrize("spoken", SPOKEN)
def test_the_last_message_is_the_result_of_a_turn_that_names_none(spoken: list[Fact]) -> None:
    """Codex and ACP agents do not repeat their last words when a turn ends."""
    assert after(*spoken, facts.turn_ended("")).result == last_message(spoken)


def test_a_result_that_is_named_is_taken() -> None:
    assert after(facts.text("words"), facts.turn_ended("the result")).result == "the result"


def test_a_turn_that_failed_or_said_nothing_has_no_result() -> None:
    assert after(facts.text("words"), facts.turn_ended("", failed=True)).result == ""
    assert after(facts.text("words"), facts.turn_ended(""), facts.turn_ended("")).result == ""
