"""Questions and permissions of a run, answered where it is watched; anywhere else, told with how to answer."""

import re
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from maos.engine.principals import person
from tests.cli.agent.conftest import Call, Start, wait_until
from tests.cli.agent.test_questions import AGENT
from tests.cli.conftest import Terminal
from tests.cli.orchestrate.conftest import Plan, documents

Open = Callable[..., Terminal]
GATED = {"command": ["true"], "gates": [{"person": "Is it good?"}]}


def asking(*commands: str) -> list[str]:
    return ["--kind", f"acp:{shlex.join([sys.executable, str(AGENT), *commands])}"]


def test_a_question_is_answered_in_the_live_view(repository: Path, plan: Plan, terminal: Open) -> None:
    screen = terminal("run", "-f", str(plan(a=GATED)), "--auto")
    screen.wait_for("yes or no › ")
    screen.type("perhaps\r")
    screen.wait_for("'perhaps' is neither yes nor no")
    screen.type("yex\x7fs\r")
    assert screen.end() == 0
    assert f"a  · is answered by {person()}: yes" in screen.text


def test_a_check_is_shown_while_it_runs(repository: Path, plan: Plan, terminal: Open) -> None:
    go = repository / "check.go"
    check = ["sh", "-c", f"until [ -e {go} ]; do sleep 0.02; done"]
    screen = terminal("run", "-f", str(plan(a={"command": ["true"], "gates": [{"command": check}]})), "--auto")
    screen.wait_for("0 running · 1 being checked")
    screen.wait_until(lambda: f"a  checked    until [ -e {go}"[:40] in screen.shown)
    go.touch()
    assert screen.end() == 0


def test_permissions_are_asked_one_after_the_other(repository: Path, plan: Plan, terminal: Open, call: Call) -> None:
    path = plan(a={"task": "do something"})
    screen = terminal("run", "-f", str(path), "--auto", "--permission", "ask", *asking("first", "second"))
    screen.wait_for("asks to use Run first")
    screen.wait_for("yes, no, always or never › ")
    screen.type("yes\r")
    screen.wait_for("asks to use Run second")
    screen.type("no, use git mv\r")
    assert screen.end() == 0
    run = documents(call("ps", "--json").stdout.replace("\n", ""))[0]["runs"][0]["id"]
    log = call("agent", "logs", f"{run}.a").stdout
    assert "answered allow_it reject_it" in log
    assert f"refused by {person()}: Run  second (use git mv)" in log
    for shown in (screen.words, " ".join(call("logs", run).stdout.split())):
        assert f"a · allowed by {person()}: Run first" in shown
        assert f"a · refused by {person()}: Run second (use git mv)" in shown


def test_what_is_answered_elsewhere_is_asked_no_more(repository: Path, plan: Plan, terminal: Open, call: Call) -> None:
    screen = terminal("run", "-f", str(plan(a=GATED)), "--auto")
    screen.wait_for("yes or no › ")
    screen.wait_for("(`maos answer")
    screen.type("ye")
    command = screen.text.partition("(`maos ")[2].partition(" …`)")[0].split()
    assert call(*command, "no").returncode == 0
    screen.wait_for("a  ▸ resumed, attempt 2")
    screen.wait_for("/0/2 …`")  # asked again, of the second attempt, with nothing typed
    screen.type("yes\r")
    assert screen.end() == 0


def test_a_question_can_be_left_to_others(repository: Path, plan: Plan, terminal: Open, call: Call) -> None:
    screen = terminal("run", "-f", str(plan(a=GATED)), "--auto")
    screen.wait_for("yes or no › ")
    screen.type("\x04")
    screen.wait_for("left for later: maos answer r-")
    command = screen.text.partition("left for later: maos ")[2].split(" <yes|no>")[0].split()
    assert call(*command, "yes").returncode == 0
    assert screen.end() == 0


def test_without_a_terminal_it_is_told_how_to_answer(repository: Path, plan: Plan, start: Start, call: Call) -> None:
    path = plan(a={"task": "do something"})
    engine = start("run", "-f", str(path), "--auto", "--permission", "ask", *asking("rm -rf build"))
    engine.wait_for("a  ? asks to use Run rm -rf build  (`maos answer ")
    command = engine.stdout.partition("(`maos ")[2].partition("`)")[0].split()
    assert call(*command).returncode == 0
    assert engine.end() == 0


def test_what_was_asked_before_a_crash_is_asked_again_on_resuming(
    repository: Path, plan: Plan, start: Start, terminal: Open
) -> None:
    """R-202: an agent that waits for a permission is taken up, and the person sees what it asks."""
    path = plan(a={"task": "do something"})
    engine = start("run", "-f", str(path), "--auto", "--permission", "ask", *asking("rm -rf build"))
    engine.wait_for("asks to use Run")
    engine.kill()
    screen = terminal("resume")
    screen.wait_for("asks to use Bash")
    screen.wait_for("rm -rf build")
    screen.wait_for("yes, no, always or never › ")
    screen.type("yes\r")
    assert screen.end() == 0
    wait_until(lambda: "completed" in screen.text)


def test_without_a_terminal_resuming_prints_what_was_asked_before(
    repository: Path, plan: Plan, start: Start, call: Call
) -> None:
    engine = start("run", "-f", str(plan(a=GATED)), "--auto")
    engine.wait_for("? Is it good?")
    engine.kill()
    again = start("resume")
    again.wait_for(" asks: Is it good?")
    again.wait_for("answer with: maos answer r-")
    again.signal(signal.SIGINT)
    assert again.end() == 130
    assert again.stdout.count("answer with: maos answer") == 1
    summary = again.stdout.partition("\npaused · ")[2]
    assert "asks: Is it good?: `maos answer r-" in summary
    as_json = start("resume", "--json")
    as_json.wait_for('"kind": "question_open"')
    (asked,) = [each for each in documents(as_json.stdout) if each["kind"] == "question_open"]
    assert asked["question"]["question"] == "Is it good?"
    as_json.kill()
    assert call("answer", "gate/a", "perhaps").returncode == 2
    assert call("answer", "gate/a", "no, it lacks a title").returncode == 0
    assert call("resume", "--dry-run").returncode == 0
    last = start("resume")
    last.wait_for("no: it lacks a title")
    last.kill()


def test_questions_are_answered_in_a_live_view_without_colours(
    repository: Path, plan: Plan, terminal: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    screen = terminal("run", "-f", str(plan(a=GATED)), "--auto")
    screen.wait_for("yes or no › ")
    screen.type("yes\r")
    assert screen.end() == 0
    assert not re.search(r"\x1b\[[0-9;]*[34][0-9][0-9;]*m", screen.text)
