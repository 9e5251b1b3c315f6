"""Agents watched, spoken to and stopped from other processes while one runs them."""

import json
from pathlib import Path

import pytest

from tests.cli.agent.conftest import TICKING, Agents, Call, Start, enough, lives
from tests.cli.conftest import Terminal
from tests.cli.test_terminal import OUR_STYLES

ECHOING = 'while read -r x; do echo "got $x"; if [ "$x" = end ]; then exit 0; fi; done'


def test_a_second_process_watches_while_it_runs(here: Path, start: Start) -> None:
    """Part of R-102: anybody can watch, and sees what the first one sees."""
    engine = start("agent", "run", "--name", "ticker", TICKING)
    engine.wait_for("line 2")
    logs, attached = start("agent", "logs", "-f", "ticker"), start("agent", "attach", "tick")
    attached.wait_for("is run by process")
    logs.wait_for("line 20")
    attached.wait_for("line")
    enough(here)
    assert engine.end() == 0
    assert logs.end() == 0
    assert attached.end() == 0
    assert logs.stdout == engine.stdout + "done\n"
    assert engine.stdout.endswith(attached.stdout)
    assert f"process {engine.process.pid} on" in attached.stderr
    assert "following its output" in attached.stderr


def test_messages_reach_an_agent_with_input(here: Path, start: Start, call: Call, agents: Agents) -> None:
    engine = start("agent", "run", "--input", "--name", "parrot", ECHOING)
    engine.wait_for("parrot runs in")
    said = call("agent", "send", "parrot", "hello\nthere")
    assert said.stdout == "message 1 for parrot; delivered as soon as it can accept one\n"
    engine.wait_for("got there")
    assert json.loads(call("agent", "send", "p", "-", "--json", stdin="end\n").stdout) == {
        "agent": "parrot", "message": 2, "running": True,
    }  # fmt: skip
    assert engine.end() == 0
    assert agents.log("parrot") == ["got hello", "got there", "got end"]
    assert "» hello there" in engine.stderr.splitlines()
    late = call("agent", "send", "parrot", "are you there?")
    assert "delivered when it is resumed: maos agent resume parrot" in late.stdout


def test_messages_that_nobody_would_read_are_refused(here: Path, call: Call) -> None:
    call("agent", "run", "--name", "deaf", "true")
    refused = call("agent", "send", "deaf", "hello")
    assert refused.returncode == 2
    assert "started without input" in refused.stderr
    assert call("agent", "send", "deaf", " ").returncode == 2
    assert call("agent", "send", "nobody", "hello").returncode == 3


def test_stopping_from_elsewhere(here: Path, start: Start, call: Call, agents: Agents) -> None:
    engine = start("agent", "run", "--name", "ticker", TICKING)
    engine.wait_for("line 2")
    pid = agents.shown("ticker")["pid"]
    done = call("agent", "stop", "ticker")
    assert done.stdout == "ticker stopped on request\nresume with: maos agent resume ticker\n"
    assert not lives(pid)
    assert engine.end() == 6
    assert "stopping, as requested" in engine.stderr
    again = call("agent", "stop", "ticker")
    assert (again.stdout, again.returncode) == ("ticker had ended already: stopped on request\n", 0)
    enough(here)
    assert call("agent", "resume", "ticker").stdout == "last 0\n"


def test_stopping_what_nobody_runs(here: Path, start: Start, call: Call, agents: Agents) -> None:
    engine = start("agent", "run", "--name", "ticker", TICKING)
    engine.wait_for("line 2")
    engine.kill()
    pid = agents.shown("ticker")["pid"]
    stopped = json.loads(call("agent", "stop", "ticker", "--grace", "1s", "--json").stdout)
    assert (stopped["status"], stopped["failure"]["name"]) == ("stopped", "stopped")
    assert not lives(pid)


def test_only_one_may_resume(here: Path, start: Start, call: Call) -> None:
    engine = start("agent", "run", "--name", "ticker", TICKING)
    engine.wait_for("line 2")
    refused = call("agent", "resume", "ticker")
    assert refused.returncode == 4
    assert f"ticker is run by process {engine.process.pid}" in refused.stderr.replace("'", "")
    told = call("agent", "resume", "ticker", "more")
    assert told.returncode == 2
    assert "accepts no further task" in told.stderr


def test_the_log_by_attempt_and_time(here: Path, call: Call) -> None:
    call("agent", "run", "--name", "twice", "echo once; exit 1")
    call("agent", "resume", "twice")
    whole = "once\nfailed: exit code 1\n"
    assert call("agent", "logs", "twice").stdout == f"{whole}--- attempt 2\n{whole}"
    assert call("agent", "logs", "twice", "--attempt", "1").stdout == whole
    assert call("agent", "logs", "twice", "--since", "1h", "-f").stdout == f"{whole}--- attempt 2\n{whole}"
    assert call("agent", "logs", "twice", "--since", "2100-01-01").stdout == ""
    missing = call("agent", "logs", "twice", "--attempt", "3")
    assert missing.returncode == 3
    assert "its attempts are 1 to 2" in missing.stderr


def test_raw_output_is_what_was_printed(here: Path, start: Start, call: Call, terminal: type[Terminal]) -> None:
    call("agent", "run", "--name", "binary", r"printf 'a\tb\033[1m\r\n\377\376\n'")
    raw = start("agent", "logs", "binary", "--raw")
    assert raw.end() == 0
    assert raw._out.read_bytes() == b"a\tb\x1b[1m\r\n\xff\xfe\n"
    assert call("agent", "logs", "binary").stdout == "a       b\n\\xff\\xfe\ndone\n"
    assert call("agent", "logs", "binary", "--raw", "--json").returncode == 2
    screen = terminal("agent", "logs", "binary", "--raw")
    assert screen.end() == 2
    assert "raw output could steer your terminal" in screen.text


@pytest.mark.parametrize("args", [["run", "--json"], ["logs", "--json"], ["list"], ["show"], ["logs"]])
def test_hostile_output_steers_no_terminal(here: Path, call: Call, terminal: type[Terminal], args: list[str]) -> None:
    hostile = r"\033]0;owned\007\033[2J\233 \342\200\256gnp.exe found: \033[31mred"
    command = ["agent", "run", "--name", "evil", f"printf '{hostile}\\n{hostile}\\n' >&2; printf '{hostile}\\r\\n'"]
    if args[0] != "run":
        assert call(*command).returncode == 0
        command = ["agent", args[0], *([] if args[0] == "list" else ["evil"]), *args[1:]]
    else:
        command += args[1:]
    screen = terminal(*command)
    assert screen.end() == 0
    shown = OUR_STYLES.sub("", screen.text.replace("\r\n", "\n"))
    assert [char for char in shown if not char.isprintable() and char != "\n"] == []
    assert "gnp.exe found: " in shown
