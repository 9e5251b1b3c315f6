"""What an agent asks to be allowed to do: answered at the terminal, or from anywhere."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from maos.engine.principals import person
from tests.cli.agent.conftest import Agents, Call, Start, wait_until
from tests.cli.conftest import Terminal

AGENT = Path(__file__).with_name("asking_agent.py")


def asking(*commands: str) -> list[str]:
    kind = shlex.join([sys.executable, str(AGENT), *commands])
    return ["agent", "run", "--name", "asker", "--kind", f"acp:{kind}", "do something"]


@pytest.mark.parametrize(("typed", "answer"), [("y\n", "allow_it"), ("no\n", "reject_it"), ("what\nYes\n", "allow_it")])
def test_a_person_at_the_terminal_is_asked(
    here: Path, terminal: Callable[..., Terminal], typed: str, answer: str
) -> None:
    screen = terminal(*asking("rm -rf build"))
    screen.wait_for("rm -rf build?")
    screen.wait_for("[yes, no, always, never]: ")
    for line in typed.splitlines(keepends=True):
        screen.type(line)
        if line == "what\n":
            screen.wait_for("neither yes nor no")
    screen.wait_for(f"answered {answer}")
    assert screen.end() == 0
    assert "I look around." in screen.text


def test_questions_are_asked_one_after_the_other(here: Path, terminal: Callable[..., Terminal]) -> None:
    screen = terminal(*asking("first", "second"))
    screen.wait_for("first?")
    screen.type("y\n")
    screen.wait_for("second?")
    screen.type("n\n")
    screen.wait_for("answered allow_it reject_it")
    assert screen.end() == 0


def test_a_question_is_answered_from_elsewhere(here: Path, start: Start, call: Call, agents: Agents) -> None:
    engine = start(*asking("rm -rf build"))
    engine.wait_for("answer with: maos agent answer asker")
    assert "asks to use Run  rm -rf build" in engine.stderr
    (asked,) = agents.shown("asker")["permissions"]
    assert "asks" in call("agent", "show", "asker").stdout
    unclear = call("agent", "answer", "asker", "perhaps")
    assert unclear.returncode == 2
    assert call("agent", "answer", "asker", "no-such-request", "yes").returncode == 3
    done = call("agent", "answer", "asker", asked, "no", "--why", "not today")
    assert done.stdout == f"asker/{asked} is answered: no\n"
    engine.wait_for("answered reject_it")
    assert engine.end() == 0
    assert f"refused by {person()}: Run  rm -rf build (not today)" in call("agent", "logs", "asker").stdout
    nothing = call("agent", "answer", "asker", "yes")
    assert nothing.returncode == 3
    assert "asks for nothing" in nothing.stderr


def test_an_answer_from_elsewhere_takes_the_question_from_the_terminal(
    here: Path, terminal: Callable[..., Terminal], call: Call
) -> None:
    screen = terminal(*asking("first", "second"))
    screen.wait_for("first?")
    call("agent", "answer", "asker", "yes")
    screen.wait_for("second?")
    screen.type("\x04")
    screen.wait_for("answer with: maos agent answer asker")
    wait_until(lambda: call("agent", "answer", "asker", "yes").returncode == 0)
    screen.wait_for("answered allow_it allow_it")
    assert screen.end() == 0


def test_an_interrupt_at_a_question_stops_the_agent(
    here: Path, terminal: Callable[..., Terminal], agents: Agents
) -> None:
    screen = terminal(*asking("first"))
    screen.wait_for("first?")
    screen.interrupt()
    assert screen.end() == 130
    assert "resume with: maos agent resume asker" in screen.text
    assert agents.status("asker") == "stopped"


def test_a_detached_agent_asks_again_when_it_is_taken_up(
    here: Path, start: Start, terminal: Callable[..., Terminal]
) -> None:
    engine = start(*asking("first"))
    engine.wait_for("asks to use")
    engine.kill()
    screen = terminal("agent", "attach", "asker")
    screen.wait_for("first?")
    screen.type("y\n")
    screen.wait_for("answered allow_it")
    assert screen.end() == 0
