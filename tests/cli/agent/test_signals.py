"""Ctrl+C, a closed terminal, a reader that goes away: the agent is stopped, or left in peace."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.agent.conftest import TICKING, Agents, Call, Start, lives, wait_until
from tests.cli.conftest import WAIT_S_MAX


def test_an_interrupt_stops_the_agent_and_says_how_to_go_on(here: Path, start: Start, agents: Agents) -> None:
    engine = start("agent", "run", "--name", "ticker", TICKING)
    engine.wait_for("line 3")
    pid = agents.shown("ticker")["pid"]
    engine.signal(signal.SIGINT)
    assert engine.end() == 130
    assert engine.stderr.splitlines()[1] == "stopping ticker; Ctrl+C again kills it"
    assert engine.stderr.splitlines()[-2].startswith("stopped on request · ")
    assert engine.stderr.splitlines()[-1] == "  resume with: maos agent resume ticker"
    assert not lives(pid)
    assert agents.status("ticker") == "stopped"


def test_a_second_interrupt_kills_one_that_does_not_listen(here: Path, start: Start, agents: Agents) -> None:
    engine = start("agent", "run", "--name", "deaf", "trap '' TERM; echo ready; while :; do echo tick; sleep 0.1; done")
    engine.wait_for("ready")
    pid = agents.shown("deaf")["pid"]
    engine.signal(signal.SIGINT)
    engine.wait_for("Ctrl+C again kills it")
    assert lives(pid)
    before = engine.stdout.count("tick")
    engine.signal(signal.SIGINT)
    assert engine.end() == 130
    assert engine.stdout.count("tick") - before < 60  # a hundred, if it had been given its time
    assert "killing it" in engine.stderr
    assert not lives(pid)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 129), (signal.SIGTERM, 143)])
def test_sent_away_it_lets_go_and_the_agent_goes_on(
    here: Path, start: Start, call: Call, agents: Agents, number: signal.Signals, code: int
) -> None:
    engine = start("agent", "run", "--name", "ticker", TICKING)
    engine.wait_for("line 3")
    engine.signal(number)
    assert engine.end() == code
    assert "detached: ticker keeps running; attach with: maos agent attach ticker" in engine.stderr
    shown = agents.shown("ticker")
    assert shown["status"] == "detached"
    assert lives(shown["pid"])
    assert call("agent", "stop", "ticker").stdout.startswith("ticker stopped on request\n")
    assert not lives(shown["pid"])


def test_a_reader_that_goes_away_ends_us_and_not_the_agent(here: Path, agents: Agents) -> None:
    command = [sys.executable, "-m", "maos", "agent", "run", "--name", "ticker", TICKING]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as engine:
        assert engine.stdout is not None
        assert engine.stderr is not None
        assert engine.stdout.readline() == b"line 1\n"
        engine.stdout.close()
        assert engine.wait(WAIT_S_MAX) == 141
        assert b"detached: ticker keeps running" in engine.stderr.read()
    assert agents.status("ticker") == "detached"


def test_an_ignored_hangup_stays_ignored(here: Path, start: Start, agents: Agents) -> None:
    engine = start("agent", "run", "--name", "ticker", TICKING, on_hangup=signal.SIG_IGN)
    engine.wait_for("line 1")
    engine.signal(signal.SIGHUP)
    engine.wait_for("line 20")
    assert agents.status("ticker") == "running"
    engine.signal(signal.SIGINT)
    assert engine.end() == 130


def test_an_interrupt_of_a_follower_leaves_the_agent_alone(here: Path, start: Start, agents: Agents) -> None:
    engine = start("agent", "run", "--name", "ticker", TICKING)
    engine.wait_for("line 1")
    logs = start("agent", "logs", "-f", "ticker")
    watcher = start("agent", "attach", "ticker")
    logs.wait_for("line 3")
    watcher.wait_for("is run by process")
    watcher.wait_for("line")
    for each in (logs, watcher):
        each.signal(signal.SIGINT)
        assert each.end() == 130
    assert agents.status("ticker") == "running"
    seen = len(engine.stdout)
    wait_until(lambda: len(engine.stdout) > seen)


def test_letting_go_is_said_in_json_too(here: Path, start: Start) -> None:
    engine = start("agent", "run", "--json", "--name", "ticker", TICKING)
    engine.wait_for("line 3")
    engine.signal(signal.SIGTERM)
    assert engine.end() == 143
    last = json.loads(engine.stdout.splitlines()[-1])
    assert last == {"kind": "let_go", "agent": "ticker", "resumable": "maos agent attach ticker"}
    assert engine.stderr == ""


def test_a_watcher_hears_that_the_engine_is_gone(here: Path, start: Start) -> None:
    engine = start("agent", "run", "--name", "ticker", TICKING)
    engine.wait_for("line 1")
    watcher = start("agent", "attach", "ticker")
    watcher.wait_for("following its output")
    engine.kill()
    watcher.wait_for("attach with: maos agent attach ticker")
    watcher.signal(signal.SIGINT)
    assert watcher.end() == 130


def test_an_interrupt_while_the_end_is_still_being_shown(here: Path, agents: Agents) -> None:
    """The agent has ended and is recorded, but whoever reads is slow: there is nothing left to stop."""
    command = [sys.executable, "-m", "maos", "agent", "run", "--name", "long", "seq 20000"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as engine:
        assert engine.stdout is not None
        assert engine.stdout.readline() == b"1\n"
        wait_until(lambda: agents.status("long") == "done")
        engine.send_signal(signal.SIGINT)
        rest = engine.communicate(timeout=WAIT_S_MAX)[1]
        assert engine.returncode == 130
    assert rest.decode().splitlines()[-2].startswith("done · ")
    assert agents.status("long") == "done"
