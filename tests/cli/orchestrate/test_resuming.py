"""Ctrl+C, kill -9, a closed terminal, days in between: a run goes on where it was, and nothing is done twice."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from maos.engine.principals import person
from tests.cli.agent.conftest import Agents, Call, Start, lives, wait_until
from tests.cli.conftest import WAIT_S_MAX
from tests.cli.orchestrate.conftest import Plan, begun, documents, go, waits


@pytest.fixture
def two(repository: Path, plan: Plan) -> Path:
    """One task that is quick, two that wait to be told, one that needs all."""
    go(repository, "quick")
    return plan(
        quick=waits(repository, "quick"),
        left=(waits(repository, "left"), "quick"),
        right=(waits(repository, "right"), "quick"),
        last=("ls *.txt | wc -l", "left", "right"),
    )


def _summary(text: str) -> dict[str, Any]:
    last = documents(text)[-1]
    assert last["kind"] == "summary"
    return last


def _wait_for_both(folder: Path) -> None:
    wait_until(lambda: begun(folder, "left") and begun(folder, "right"))


def test_an_interrupt_pauses_and_resume_goes_on(
    repository: Path, two: Path, start: Start, call: Call, agents: Agents
) -> None:
    """R-108, R-201, R-202 (clean stop): agents are stopped, and finished tasks are not run again."""
    engine = start("run", "-f", str(two), "--auto")
    _wait_for_both(repository)
    wait_until(lambda: sum(each["status"] == "running" for each in agents.listed().values()) == 2)
    pids = [each["pid"] for each in (agents.shown(name) for name in agents.listed()) if each["status"] == "running"]
    engine.signal(signal.SIGINT)
    assert engine.end() == 130
    assert not any(lives(pid) for pid in pids)
    assert "pausing: the agents are being stopped" in engine.stdout
    assert "paused · 1 of 4 tasks done" in engine.stdout
    command = engine.stdout.splitlines()[-1].partition("resume with: maos ")[2].split()
    go(repository, "left", "right")
    done = _summary(call(*command, "--json").stdout)
    assert (done["status"], done["done"]) == ("completed", 4)
    assert {each["task"]: each["attempts"] for each in done["tasks"]} == {"quick": 1, "left": 2, "right": 2, "last": 1}
    assert begun(repository, "quick") == 1
    assert {each["task"]: each["result"] for each in done["tasks"]}["last"].strip() == "4"


def test_a_killed_engine_is_noticed_and_its_agents_are_taken_up(
    repository: Path, two: Path, plan: Plan, start: Start, call: Call
) -> None:
    """R-202 (crash): nothing is restarted that still lives, and nothing runs twice."""
    engine = start("run", "-f", str(two), "--auto")
    _wait_for_both(repository)
    engine.kill()
    foreseen = documents(call("resume", "--dry-run", "--json").stdout)[0]
    assert {each["task"]: each["what"] for each in foreseen["tasks"]} == {
        "quick": "kept", "left": "taken_up", "right": "taken_up", "last": "begun",
    }  # fmt: skip
    other = call("run", "-f", str(plan(x="true")), "--auto")
    assert f"{foreseen['run']} was interrupted, 1 of 4 tasks done: `maos resume {foreseen['run']}`" in other.stderr
    go(repository, "left", "right")
    done = _summary(call("resume", foreseen["run"], "--json").stdout)
    assert done["status"] == "completed"
    assert {each["task"]: each["attempts"] for each in done["tasks"]} == {"quick": 1, "left": 1, "right": 1, "last": 1}
    assert [begun(repository, name) for name in ("quick", "left", "right")] == [1, 1, 1]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_sent_away_it_lets_go_and_the_agents_go_on(
    repository: Path, two: Path, start: Start, call: Call, agents: Agents, number: signal.Signals, code: int
) -> None:
    engine = start("run", "-f", str(two), "--auto", "--json")
    _wait_for_both(repository)
    engine.signal(number)
    assert engine.end() == code
    said = documents(engine.stdout)[-1]
    assert (said["kind"], said["resumable"]) == ("let_go", f"maos resume {said['run']}")
    assert agents.status(f"{said['run']}.left") == "detached"
    go(repository, "left", "right")
    assert _summary(call("resume", "--json").stdout)["status"] == "completed"  # the latest, when none is named
    assert begun(repository, "left") == 1


def test_a_second_interrupt_lets_go(repository: Path, plan: Plan, start: Start, call: Call, agents: Agents) -> None:
    deaf = f"trap '' TERM; {waits(repository, 'deaf')}"
    engine = start("run", "-f", str(plan(deaf=deaf)), "--auto")
    wait_until(lambda: begun(repository, "deaf"))
    engine.signal(signal.SIGINT)
    engine.wait_for("press Ctrl+C again to detach")
    engine.signal(signal.SIGINT)
    assert engine.end() == 130
    assert "its agents keep running; `maos resume r-" in engine.stdout


def test_an_interrupt_before_the_agent_has_started_is_not_forgotten(
    repository: Path, plan: Plan, start: Start, call: Call
) -> None:
    """A worktree takes its time: whoever presses Ctrl+C meanwhile must not have to wait for the agent's end."""
    engine = start("run", "-f", str(plan(slow=waits(repository, "slow"))), "--auto")
    engine.wait_for("slow  ▸ started")
    engine.signal(signal.SIGINT)
    assert engine.end() == 130
    assert "paused · 0 of 1 tasks done" in engine.stdout


def test_a_dry_run_shows_the_exact_words_and_changes_nothing(
    repository: Path, plan: Plan, start: Start, call: Call
) -> None:
    engine = start("run", "-f", str(plan(one=waits(repository, "one"), two=("true", "one"))), "--auto")
    wait_until(lambda: begun(repository, "one"))
    engine.signal(signal.SIGINT)
    engine.end()
    shown = call("resume", "--dry-run").stdout
    assert " is paused, 0 of 2 tasks done\n" in shown
    assert "  one  will resume (it was stopped on request)\n    unknown whether it took effect: " in shown
    assert "\n    its prompt:\n    │ " in shown
    assert "  two  not started\n" in shown
    assert call("resume", "--dry-run").stdout == shown
    assert begun(repository, "one") == 1


def test_more_work_is_added_to_a_finished_run(repository: Path, plan: Plan, call: Call) -> None:
    """R-203: it begins with what the run has made."""
    first = _summary(call("run", "-f", str(plan(a="echo 1 > a.txt")), "--auto", "--kind", "shell", "--json").stdout)
    assert "is completed" in call("resume", first["run"]).stderr
    more = ("--task", "again after a: cat a.txt; echo 2 > b.txt", "--task", "echo 3")
    assert call("resume", first["run"], *more).returncode == 2  # nobody said yes
    done = call("resume", first["run"][:6], *more, "--auto", "--json")
    last = _summary(done.stdout)
    assert {each["task"]: each["result"] for each in last["tasks"]} == {"a": "", "again": "1", "more-1": "3"}
    assert {each["task"]: each["attempts"] for each in last["tasks"]} == {"a": 1, "again": 1, "more-1": 1}
    assert {each["path"] for each in last["files"]} == {"a.txt", "b.txt"}


def test_more_work_may_come_as_a_plan_and_is_checked(repository: Path, plan: Plan, call: Call) -> None:
    first = _summary(call("run", "-f", str(plan(a="true")), "--auto", "--json").stdout)
    more = plan(b=("echo b", "a"), c=("echo c", "b"))
    wrong = call("resume", first["run"], "--task", "a: again", "--task", f"@{more}", "--auto")
    assert wrong.returncode == 2
    assert "  task 1 (a): the run has a task of that name already\n" in wrong.stderr
    wrong = call("resume", first["run"], "--task", "x after nobody: y", "--auto")
    assert "  task 1 (x): needs 'nobody', which does not exist\n" in wrong.stderr
    typed = plan(b=("echo b", "a"), c={"command": ["echo", "c"], "needs": ["b"], "agent": "tester"})
    assert _summary(call("resume", first["run"], "--task", f"@{typed}", "--auto", "--json").stdout)["done"] == 3
    shown = json.loads(call("agent", "show", f"{first['run']}.c", "--json").stdout)
    assert shown["order"]["instructions"].startswith("You are a tester.")


def test_what_failed_is_tried_again(repository: Path, plan: Plan, call: Call) -> None:
    path = plan(a="echo 1 > a.txt", b=(f"echo again >> {repository}/effects; test -e {repository}/mended.go", "a"))
    assert call("run", "-f", str(path), "--auto").returncode == 1
    go(repository, "mended")
    assert _summary(call("resume", "--json").stdout)["status"] == "completed"
    assert (repository / "effects").read_text() == "again\nagain\n"


def test_a_run_that_is_carried_out_is_left_alone(repository: Path, two: Path, start: Start, call: Call) -> None:
    engine = start("run", "-f", str(two), "--auto", "--json")
    _wait_for_both(repository)
    run = documents(engine.stdout)[1]["run"]
    second = call("resume", run)
    assert second.returncode == 4
    assert "is run by process" in second.stderr
    assert "is being executed" in call("merge", run).stderr
    go(repository, "left", "right")
    assert engine.end() == 0
    assert json.loads(engine.stdout.splitlines()[-1])["status"] == "completed"


def test_a_pause_during_a_check_does_not_repeat_the_work(
    repository: Path, plan: Plan, start: Start, call: Call
) -> None:
    """R-201: the task's own work is done; only its check goes on."""
    work = f"echo once >> {repository}/effects; echo 1 > a.txt"
    gate = {"command": ["sh", "-c", waits(repository, "gate")]}
    engine = start("run", "-f", str(plan(a={"command": ["sh", "-c", work], "gates": [gate]})), "--auto")
    wait_until(lambda: begun(repository, "gate"))
    engine.signal(signal.SIGINT)
    assert engine.end() == 130
    shown = call("resume", "--dry-run").stdout
    assert "  a  will run its checks\n" in shown
    go(repository, "gate")
    done = _summary(call("resume", "--json").stdout)
    assert done["status"] == "completed"
    assert (repository / "effects").read_text() == "once\n"
    assert begun(repository, "gate") == 2


def test_a_run_that_used_up_its_time_says_so_and_can_be_given_more(repository: Path, plan: Plan, call: Call) -> None:
    path = plan(slow=waits(repository, "slow"))
    done = call("run", "-f", str(path), "--auto", "--run-time", "1s")
    assert done.returncode == 7
    assert "  the time limit of 1 s is reached\n" in done.stdout
    go(repository, "slow")
    assert _summary(call("resume", "--run-time", "10m", "--json").stdout)["status"] == "completed"


def test_a_reader_that_goes_away_ends_us_and_not_the_agents(
    repository: Path, two: Path, call: Call, agents: Agents
) -> None:
    command = [sys.executable, "-m", "maos", "run", "-f", str(two), "--auto"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as engine:
        assert engine.stdout is not None
        assert engine.stderr is not None
        while b"in /" not in (line := engine.stdout.readline()):
            assert line
        engine.stdout.close()
        assert engine.wait(WAIT_S_MAX) == 141
        assert b"its agents keep running; `maos resume r-" in engine.stderr.read()
    go(repository, "left", "right")
    assert _summary(call("resume", "--json").stdout)["status"] == "completed"
    assert [begun(repository, name) for name in ("quick", "left", "right")] == [1, 1, 1]


def test_a_person_is_asked_and_answers_from_elsewhere(repository: Path, plan: Plan, start: Start, call: Call) -> None:
    """A task with such a gate is done when a person says so, and not before; what needs it waits."""
    gated = {"command": ["sh", "-c", "echo text > t.txt"], "gates": [{"person": "Is it good?"}]}
    engine = start("run", "-f", str(plan(write=gated, after=("cat t.txt", "write"))), "--auto")
    engine.wait_for("write  ? Is it good?  (`maos answer ")
    command = engine.stdout.partition("(`maos ")[2].partition(" …`)")[0].split()
    assert "▸ started" not in engine.stdout.partition("\nafter  ")[2]
    assert call(*command, "yes").returncode == 0
    assert engine.end() == 0
    assert f"write  · is answered by {person()}: yes\nwrite  · passed check 1 of 1 by {person()}\n" in engine.stdout
    assert "after  ✓ done" in engine.stdout
