"""The result of an attempt: what its program says it is, else its last words."""

from typing import Any

import pytest

from maos.model.attempt import Attempt
from maos.model.events import facts
from maos.model.events.attempt import AttemptOutput
from maos.model.events.facts import Fact
from tests.events import last_message


def after(*heard: Fact) -> Attempt:
    """An attempt that has heard facts."""
    attempt = Attempt(id="a.1")
    attempt.apply(AttemptOutput(offset=1, at_us=1, facts=list(heard)))
    return attempt


SPOKEN: list[list[Any]] = [
    [facts.Text("One."), facts.Text("Two.")],
    [facts.Text("One.", message="m1"), facts.Text("Two.", message="m2")],
    [facts.Text("line 1", message="m1"), facts.Text("line 2", message="m1")],
    [facts.Text("half ", message="m1"), facts.Text("a line", message="m1", part=True)],
    [facts.Text("One.", message="m1"), facts.ToolUse("t", "x", {}), facts.Text("more", message="m1")],
]


@pytest.mark.parametrize("spoken", SPOKEN)
def test_the_last_message_is_the_result_of_a_turn_that_names_none(spoken: list[Fact]) -> None:
    """Codex and ACP agents do not repeat their last words when a turn ends."""
    assert after(*spoken, facts.TurnEnded("")).result == last_message(spoken)


def test_a_result_that_is_named_is_taken() -> None:
    assert after(facts.Text("words"), facts.TurnEnded("the result")).result == "the result"


def test_a_turn_that_failed_or_said_nothing_has_no_result() -> None:
    assert after(facts.Text("words"), facts.TurnEnded("", failed=True)).result == ""
    assert after(facts.Text("words"), facts.TurnEnded(""), facts.TurnEnded("")).result == ""
