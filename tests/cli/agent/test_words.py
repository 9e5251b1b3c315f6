"""How facts look to people, and how numbers are said."""

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from maos.cli import words
from maos.cli.agent import status
from maos.cli.agent.output import OutputPrinter
from maos.model.attempt import Attempt
from maos.model.events import facts
from maos.model.events.facts import Fact
from maos.model.failure import TABLE
from maos.views.agent_status import status_of
from maos.views.agents import AgentEvent


def heard(*found: Fact, messages: Mapping[int, str] | None = None) -> AgentEvent:
    data: dict[str, Any] = {"facts": [each.data for each in found], "offset": 1, "at_us": 1}
    return AgentEvent("attempt/a.1@1", "a", 1, "attempt_output", data, 1, 1, messages or {})


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        ([facts.ToolUse("1", "Bash", {"command": "ls\n-la", "description": "list"})], "→ Bash  ls -la\n"),
        ([facts.ToolUse("1", "Grep", {"glob": "*.py", "n": 1})], '→ Grep  {"glob": "*.py", "n": 1}\n'),
        ([facts.ToolUse("1", "Bash", {"command": "x" * 999})], f"→ Bash  {'x' * 151}…\n"),
        ([facts.ToolUse("1", "T", None), facts.ToolUse("1", "T", None), facts.ToolResult("1", "fine")], "→ T\n"),
        ([facts.ToolUse("1", "Terminal"), facts.ToolUse("1", "make", {"command": "make"})], "→ make\n"),
        ([facts.ToolResult("1", "fine")], ""),
        ([facts.ToolResult("1", "no such file\nat all", failed=True)], "  failed: no such file at all\n"),
        ([facts.Retry(attempt=1, delay_s=8, status=529)], "retries in 8.0 s (status 529)\n"),
        ([facts.Trouble("overloaded", "busy")], "the model's servers are overloaded (busy)\n"),
        ([facts.PermissionRequested("7", "Bash", {"command": "rm x"})], "asks to use Bash  rm x\n"),
        ([facts.PermissionDenied("Bash", "not here")], "was refused Bash: not here\n"),
        ([facts.SessionOpened("s", model="m-1")], "model m-1\n"),
        ([facts.SessionOpened("s", instead_of="r")], "its session could not be resumed; a new one is started\n"),
        ([facts.SessionOpened("s")], ""),
        ([facts.Thought("hm\nhm")], "… hm hm\n"),
        ([facts.Unknown.of("?")], "?\n"),
        ([facts.Diagnostic.of("starting up", stderr=True)], "starting up\n"),
        ([facts.Text("one\ntwo"), facts.TurnEnded("two")], "one\ntwo\n"),
        ([facts.Text("one", message="m"), facts.Text("two", message="m"), facts.TurnEnded("one two")], "one\ntwo\n"),
        ([facts.Text("one"), facts.TurnEnded("three")], "one\nthree\n"),
        ([facts.TurnEnded("broken", failed=True)], ""),
        ([facts.Line.of("found: gold"), facts.Discovery("found", "gold")], "found: gold\n"),
        ([facts.Text("hello"), facts.Discovery("found", "gold")], "hello\n★ found: gold\n"),
        ([facts.AgentPlan([{"content": "a", "status": "completed"}, {"content": "b", "status": "in_progress"}])],
         "plan: 1 of 2 done, now: b\n"),
        ([facts.Line.of("\x1b[2Jx\x08\r")], "x\\x08\n"),
    ],
    ids=lambda value: "".join(each.data["kind"] for each in value) if isinstance(value, list) else None,
)  # fmt: skip
def test_facts_as_lines(found: list[Fact], shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    OutputPrinter(beside=sys.stdout).show(heard(*found))
    assert capsys.readouterr().out == shown


def test_diagnostics_of_the_program_are_in_the_log_alone(capsys: pytest.CaptureFixture[str]) -> None:
    OutputPrinter(beside=sys.stderr).show(heard(facts.Diagnostic.of("starting up", stderr=True), facts.Text("hello")))
    assert capsys.readouterr() == ("hello\n", "")


def test_what_was_said_first_is_first_where_both_streams_are_one_pipe() -> None:
    """As with `maos agent run … 2>&1 | less`: Python writes to a pipe late, and to standard error at once."""
    program = """
import sys
from maos.cli.agent.output import OutputPrinter
from maos.model.events import facts
from tests.cli.agent.test_words import heard
said = (facts.Text("one"), facts.ToolUse("1", "T", {"command": "x"}), facts.Text("two"), facts.Line.of("three"))
OutputPrinter(beside=sys.stderr).show(heard(*said))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    assert done.stdout.splitlines() == ["one", "→ T  x", "two", "three"]


def test_a_message_is_shown_when_the_agent_gets_it(capsys: pytest.CaptureFixture[str]) -> None:
    got = heard(facts.InputReceived("inbox/3"), facts.InputReceived("end"), messages={3: "go\nleft"})
    OutputPrinter(beside=sys.stderr).show(got)
    assert capsys.readouterr() == ("", "» go left\n")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.4, "59 s"), (60, "1 min"), (200, "3 min 20 s"),
     (3600, "1 h"), (7530, "2 h 5 min"), (90_000, "1 d 1 h"), (86_400 * 3, "3 d")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (9949, "9.9k"), (9950, "10k"), (48_000, "48k"), (999_499, "999k"),
     (999_500, "1.0M"), (3_100_000, "3.1M"), (2_000_000_000, "2.0G")],
)  # fmt: skip
def test_counts(number: int, text: str) -> None:
    assert words.count(number) == text


@pytest.mark.parametrize(("usd", "text"), [(0.0, "$0.00"), (0.0024, "$0.0024"), (0.01, "$0.01"), (12.345, "$12.35")])
def test_money(usd: float, text: str) -> None:
    assert words.money(usd) == text


def exit_code(state: str, failure: str) -> int:
    return status.exit_code(status_of([Attempt(id="a.1", status=state, failure=failure)], 0))


def test_every_failure_has_an_exit_code() -> None:
    """R-107: a script can tell what to do from the number alone."""
    codes = {name: exit_code("failed", name) for name in TABLE}
    assert {name for name, code in codes.items() if code == 6} == {"stopped"}
    assert {name for name, code in codes.items() if code == 7} == {
        "timed_out", "silent", "turns_reached", "budget_reached",
    }  # fmt: skip
    assert {"login_expired", "no_credit", "permission_refused"} <= {n for n, code in codes.items() if code == 8}
    assert {"failed", "bad_request", "start_failed"} <= {name for name, code in codes.items() if code == 1}
    assert {"rate_limited", "overloaded", "killed", "holder_lost"} <= {n for n, code in codes.items() if code == 9}
    assert set(codes.values()) == {1, 6, 7, 8, 9}
    assert exit_code("done", "") == 0
    assert exit_code("failed", "unheard of") == 1
