"""The process that runs an agent is killed, or its holder, or both; others go on with it (I33, R-103)."""

import os
import signal
from pathlib import Path

import pytest

from tests.cli.agent.conftest import TICKING, Agents, Call, Start, enough, holder_of, lives, wait_until


def assert_complete(lines: list[str]) -> None:
    """Every line exactly once, in order."""
    count = len(lines) - 1
    assert lines == [*(f"line {number}" for number in range(1, count + 1)), f"last {count}"]


@pytest.mark.parametrize("how", ["attach", "resume"])
def test_a_killed_engine_leaves_an_agent_that_is_taken_up(
    here: Path, start: Start, call: Call, agents: Agents, how: str
) -> None:
    """I33: only the engine dies; the agent and every line of it are kept until somebody comes."""
    first = start("agent", "run", "--name", "ticker", TICKING)
    first.wait_for("line 3")
    first.kill()
    assert agents.status("ticker") == "detached"
    listed = call("agent", "list").stdout
    assert "ticker is detached; attach with: maos agent attach ticker" in listed
    assert "resume: maos agent attach ticker" in call("doctor").stdout
    pid = agents.shown("ticker")["pid"]
    assert lives(pid)

    second = start("agent", how, "ticker")
    second.wait_for("line 30")
    assert agents.status("ticker") == "running"
    assert agents.shown("ticker")["pid"] == pid
    enough(here)
    assert second.end() == 0
    log = agents.log("ticker")
    assert_complete(log)
    news = second.stdout.splitlines()
    assert news == log[-len(news) :]
    assert 3 < len(news) < len(log)  # what was seen before is not shown again
    assert agents.listed()["ticker"]["attempt"] == 1


def test_logs_follow_over_a_crash_of_the_engine(here: Path, start: Start, agents: Agents) -> None:
    engine = start("agent", "run", "--name", "ticker", TICKING)
    engine.wait_for("line 1")
    logs = start("agent", "logs", "ticker", "-f")
    logs.wait_for("line 5")
    engine.kill()
    logs.wait_for("attach with: maos agent attach ticker")
    seen = logs.stdout.count("line")
    other = start("agent", "attach", "ticker")
    other.wait_for("line")
    wait_until(lambda: logs.stdout.count("line") > seen + 5)
    enough(here)
    assert other.end() == 0
    assert logs.end() == 0
    lines = logs.stdout.splitlines()
    assert lines[-1] == "done"
    assert_complete([each for each in lines if each.startswith(("line", "last"))])
    assert f"attached by process {other.process.pid}" in lines


def test_engine_and_holder_killed_is_interrupted_and_resumed(
    here: Path, start: Start, call: Call, agents: Agents
) -> None:
    """I33: with its holder every process of the agent dies; what it had said is kept, and it is run again."""
    engine = start("agent", "run", "--name", "ticker", TICKING)
    engine.wait_for("line 3")
    pid = agents.shown("ticker")["pid"]
    engine.kill()
    os.kill(holder_of("ticker.1"), signal.SIGKILL)
    wait_until(lambda: not lives(pid), "the agent dies with its holder")
    assert agents.status("ticker") == "interrupted"
    assert "ticker is interrupted; resume with: maos agent resume ticker" in call("agent", "list").stdout
    enough(here)
    done = call("agent", "resume", "ticker")
    assert done.returncode == 0
    assert done.stdout == "last 0\n"
    shown = agents.shown("ticker")
    assert [each["status"] for each in shown["attempts"]] == ["failed", "done"]
    assert shown["attempts"][0]["failure"] == "holder_lost"
    log = call("agent", "logs", "ticker").stdout.splitlines()
    assert log[:2] == ["line 1", "line 2"]
    assert log[-3:] == ["--- attempt 2", "last 0", "done"]


def test_attaching_to_what_is_gone_says_how_it_ended(here: Path, start: Start, call: Call) -> None:
    engine = start("agent", "run", "--name", "ticker", TICKING)
    engine.wait_for("line 3")
    engine.kill()
    os.kill(holder_of("ticker.1"), signal.SIGKILL)
    done = call("agent", "attach", "ticker")
    assert done.returncode == 9
    assert "failed: the agent's holder has exited" in done.stderr
    again = call("agent", "attach", "ticker")
    assert again.returncode == 2
    assert "has ended: failed" in again.stderr


def test_a_killed_holder_ends_the_run_and_says_so(here: Path, start: Start) -> None:
    engine = start("agent", "run", "--name", "ticker", TICKING)
    engine.wait_for("line 1")
    os.kill(holder_of("ticker.1"), signal.SIGKILL)
    assert engine.end() == 9
    assert "failed: the agent's holder has exited" in engine.stderr
    assert "resume with: maos agent resume ticker" in engine.stderr
