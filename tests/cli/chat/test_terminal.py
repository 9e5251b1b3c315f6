"""A conversation at a terminal: what happens meanwhile is shown above the line that is being typed."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.agent.conftest import Call, wait_until
from tests.cli.chat.conftest import Talk
from tests.cli.conftest import Terminal
from tests.cli.orchestrate.conftest import Plan, begun, go, waits

Open = Callable[..., Terminal]


def test_a_person_talks_while_agents_work(repository: Path, plan: Plan, terminal: Open) -> None:
    """R-109: typing is not disturbed by what is shown, and a question is answered where it appears."""
    gated = {"command": ["sh", "-c", waits(repository, "b")], "gates": [{"person": "Is it good?"}]}
    path = plan(a=waits(repository, "a"), b=gated)
    screen = terminal("chat", "--kind", "shell")
    screen.wait_for("what is to be done? › ")
    screen.type(f"/pl\t{path}\r")
    screen.wait_for("start it? yes, no, edit, or what to change › ")
    screen.type("yes\r")
    wait_until(lambda: begun(repository, "a") and begun(repository, "b"))
    screen.type("qqq")
    screen.wait_for("qqq")
    go(repository, "b")
    screen.wait_for("? Is it good?  (`maos answer")
    screen.wait_for("1 running")
    screen.type("q\r")  # still what it was when it was begun, and no answer
    screen.wait_for("sent to a, b")
    screen.wait_for("yes or no › ")
    screen.type("yes\r")
    screen.wait_for("b  ✓ done")
    go(repository, "a")
    screen.wait_for("what else? › ")
    screen.type("\x04")
    assert screen.end() == 0
    assert "2 of 2 tasks done" in screen.text


def test_something_left_in_the_middle_is_offered(
    repository: Path, plan: Plan, talk: Talk, terminal: Open, call: Call
) -> None:
    """R-201: after kill -9, `maos chat` alone asks whether to go on, and shows what was said."""
    path = plan(a=waits(repository, "a"))
    chat = talk("--kind", "shell")
    chat.say(f"/plan {path}", "yes")
    wait_until(lambda: begun(repository, "a"))
    chat.say("@a quickly")
    chat.wait_for("error")  # a command hears nothing, but it was said
    chat.process.kill()
    chat.process.wait()
    go(repository, "a")
    screen = terminal("chat")
    screen.wait_for("is interrupted, 0 of 1 tasks done")
    screen.wait_for("resume? yes or no › ")
    assert "› @a quickly" in screen.text
    screen.type("\x1b[A\x15yes\r")
    screen.wait_for("completed")
    screen.wait_for("what else? › ")
    screen.type("/quit\r")
    assert screen.end() == 0
    assert begun(repository, "a") == 1


def test_a_new_request_instead_of_what_is_offered(
    repository: Path, plan: Plan, talk: Talk, terminal: Open, kind: str
) -> None:
    chat = talk("--kind", "shell")
    chat.say(f"/plan {plan(a='exit 1')}", "yes")
    assert chat.end() == 1
    screen = terminal("chat", "--kind", kind)
    screen.wait_for("resume? yes or no › ")
    screen.type("Build a door\r")
    screen.wait_for("Two steps")
    screen.wait_for("or what to change › ")
    screen.type("no\r")
    screen.wait_for("nothing was started")
    screen.wait_for("what is to be done? › ")
    screen.type("\x04")
    assert screen.end() == 0


def test_a_plan_is_edited_in_the_editor(
    repository: Path, plan: Plan, terminal: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = repository.parent / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/do it/do it well/' $1\n")
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    monkeypatch.setenv("EDITOR", str(editor))
    screen = terminal("chat", "--kind", "shell")
    screen.wait_for("what is to be done? › ")
    screen.type(f"/plan {plan(a='true')}\r")
    screen.wait_for("or what to change › ")
    screen.type("edit\r")
    screen.wait_for("do it well")
    screen.type("yes\r")
    screen.wait_for("what else? › ")
    screen.type("\x04")
    assert screen.end() == 0


def test_ctrl_c_drops_what_is_typed_and_then_leaves(repository: Path, terminal: Open) -> None:
    screen = terminal("chat", "--kind", "shell")
    screen.wait_for("what is to be done? › ")
    screen.type("never mind")
    screen.wait_for("never mind")
    screen.interrupt()
    screen.wait_until_idle()
    screen.type("/help\r")
    screen.wait_for("/wait")
    screen.wait_until_idle()
    screen.interrupt()
    assert screen.end() == 130
    assert "› never mind" not in screen.text.replace("what is to be done? › ", "")


def test_ctrl_c_as_a_key_pauses_the_run(repository: Path, plan: Plan, terminal: Open, call: Call) -> None:
    screen = terminal("orchestrate", "--plan", str(plan(a=waits(repository, "a"))), "--auto", "--kind", "shell")
    wait_until(lambda: begun(repository, "a"))
    screen.wait_for("1 running")
    screen.type("\x03")
    assert screen.end() == 130
    assert "press Ctrl+C again to detach" in screen.text
    assert "paused" in screen.shown
    assert screen.echoes


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_terminal_that_does_not_read_delays_no_run(
    unbuffered: str, repository: Path, plan: Plan, terminal: Open, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine records what its agents do, and finishes the run, while its terminal takes nothing."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    noisy = f"i=0; while [ $i -lt 50 ]; do echo found: thing $i {'x' * 150}; i=$((i+1)); done"
    tasks = {f"a{number}": noisy for number in range(12)}
    screen = terminal("orchestrate", "--plan", str(plan(**tasks, b=("echo done", "a0"))), "--auto", "--kind", "shell")

    def completed() -> bool:
        listed = call("orchestration", "list", "--json")
        found = json.loads(listed.stdout)["runs"] if listed.returncode == 0 else []
        return [each["status"] for each in found] == ["completed"]

    wait_until(completed)
    assert screen.end() == 0  # only now it is read
    assert all(re.search(rf"{name} +★ found: thing 49", screen.text) for name in tasks)
