"""What an agent is told when it continues: all that is known of the attempts before, however many were killed."""

from maos.model.attempt import TOOL_CHARS_MAX, Attempt, restoration
from maos.model.events import facts
from maos.model.events.attempt import AttemptEnded, AttemptOutput, AttemptPlanned
from maos.model.events.facts import Fact
from maos.model.status import AttemptStatus

UNKNOWN = "unknown whether these tool calls took effect"
PAY = facts.ToolUse("t1", "Bash", {"command": "pay the bill"})
SEND = facts.ToolUse("t2", "Bash", {"command": "send the letter"})


def attempt(number: int, before: Attempt | None, *heard: Fact, failure: str = "killed") -> Attempt:
    """An attempt after another one, with what its agent printed until it was killed."""
    found = Attempt(id=f"a.{number}")
    found.apply(
        AttemptPlanned(
            agent="a", number=number, agent_kind="claude", task="do it", session="s", owner={}, folder="",
            workspace={}, inbox_cursor=0, transcript=("", 0), at_us=1, order={"cwd": "/"},
            earlier=before.known if before is not None else None,
        )
    )  # fmt: skip
    found.apply(AttemptOutput(offset=1, at_us=1, facts=list(heard)))
    found.apply(AttemptEnded(status=AttemptStatus.FAILED, failure=failure, at_us=2))
    return found


def told(before: Attempt, *, remembers: bool = True) -> str:
    return restoration(before, remembers=remembers)


def test_two_kills_in_a_row_hide_no_tool() -> None:
    """I31: the second attempt may not have read what it was told, so the third is told again, with what is new."""
    first = attempt(1, None, PAY)
    second = attempt(2, first)
    third = attempt(3, second, SEND)
    for before, tools in ((first, 1), (second, 1), (third, 2)):
        assert UNKNOWN in told(before)
        assert ("pay the bill" in told(before), "send the letter" in told(before)) == (True, tools == 2)
        assert list(before.known.unknown) == ["t1", "t2"][:tools]


def test_a_turn_that_ended_well_settles_what_its_agent_was_told() -> None:
    first = attempt(1, None, PAY)
    second = attempt(2, first, facts.Text("It is paid."), facts.TurnEnded("It is paid."))
    assert UNKNOWN not in told(second)
    third = attempt(3, second, SEND)
    assert "pay the bill" not in told(third)
    assert "send the letter" in told(third)


def test_a_turn_that_failed_settles_nothing() -> None:
    """Its model may never have been asked."""
    first = attempt(1, None, PAY)
    limited = attempt(2, first, facts.TurnEnded("", failed=True), failure="rate_limited")
    assert "pay the bill" in told(limited)


def test_an_agent_that_remembers_nothing_gets_what_all_its_attempts_have_come_to() -> None:
    tool = facts.ToolUse("t0", "Read", {"path": "x"})
    work = [tool, facts.ToolResult("t0", "ok"), facts.Discovery("found", "the cache leaks"), facts.Text("Half done.")]
    first = attempt(1, None, *work, PAY)
    text = told(attempt(2, attempt(2, first)), remembers=False)
    for words in ("do it", "Half done.", "- the cache leaks", "1 tool calls were completed", "pay the bill"):
        assert words in text


def test_a_long_input_is_not_copied_from_attempt_to_attempt() -> None:
    long = facts.ToolUse("t1", "Write", {"content": "x" * 100_000})
    known = attempt(2, attempt(1, None, long)).known
    told_of = str(known.unknown["t1"].input)
    assert len(told_of) < TOOL_CHARS_MAX + 40
    assert told_of.endswith(f" … [{len(str(long.input)) - TOOL_CHARS_MAX:,} more characters]")


def test_an_agent_whose_turn_had_ended_is_not_told_that_it_was_interrupted() -> None:
    ended = attempt(1, None, facts.Text("Done."), facts.TurnEnded("Done."), failure="")
    said = restoration(ended, remembers=True, then="Your work did not pass a check.")
    assert said.startswith("Your previous turn ended. Your files are as you left them.")
    assert said.endswith("Your work did not pass a check.")
    assert "Continue from where you stopped" not in said
    killed = restoration(attempt(1, None, PAY), remembers=True, then="Your work did not pass a check.")
    assert killed.startswith("You were interrupted (")
    assert killed.endswith("Continue from where you stopped and finish the task.\n\nYour work did not pass a check.")
