"""One id scheme for every command, logs of runs, and commands that cancel, retry, skip and remove."""

import json

from tests.cli.agent.conftest import Call
from tests.cli.orchestration.conftest import Ask, Begin, Until

TWO = [{"name": "api", "command": ["echo", "hello"]}, {"name": "page", "command": ["false"], "needs": ["api"]}]


def test_a_run_a_task_and_an_agent_have_one_kind_of_id(begin: Begin, call: Call, ask: Ask) -> None:
    engine = begin(TWO)
    assert engine.wait() == "failed"
    for id in (f"{engine.run}/api", f"{engine.run}.api", f"{engine.run[2:]}/a", f"{engine.run[:6]}/ap"):
        assert ask("status", id)["agent"] == f"{engine.run}.api"
        assert ask("agent", "show", id)["agent"] == f"{engine.run}.api"
        assert call("logs", id).stdout.startswith("hello\n")
    wrong = call("logs", f"{engine.run}/apii")
    assert wrong.returncode == 3
    assert "did you mean api?" in wrong.stderr
    typo = call("status", engine.run[:-1] + "z")
    assert typo.returncode == 3
    assert f"did you mean {engine.run}?" in typo.stderr


def test_a_task_that_has_not_started_has_a_status(begin: Begin, ask: Ask, call: Call, until: Until) -> None:
    engine = begin()
    until(engine.run, "working")
    found = ask("status", f"{engine.run}/page")
    assert (found["task"], found["status"], found["needs"]) == ("page", "waiting", ["api"])
    assert "waiting" in call("status", f"{engine.run}/page").stdout


def test_the_log_of_a_run_is_what_its_live_view_printed(begin: Begin, call: Call) -> None:
    engine = begin(TWO)
    assert engine.wait() == "failed"
    for args in (["logs"], ["logs", engine.run], ["logs", engine.run, "-f"]):
        shown = call(*args).stdout
        assert "api   ✓ done" in shown
        assert "page  ✗ failed" in shown
    kinds = [json.loads(line)["kind"] for line in call("logs", "--json").stdout.splitlines()]
    assert kinds[0] == "run_created"
    assert kinds[-1] == "run_ended"
    assert "name a task" in call("logs", engine.run, "--raw").stderr
    assert f"maos resume {engine.run}" in call("attach").stderr


def test_failed_tasks_are_retried_or_skipped(begin: Begin, call: Call, ask: Ask) -> None:
    engine = begin()
    engine.end("api", "!failed:no idea how")
    assert engine.wait() == "failed"
    assert ask("retry", f"{engine.run}/api")["resumable"] == f"maos resume {engine.run}"
    assert "only a task that has failed" in call("retry", f"{engine.run}/page").stderr
    assert "name the task" in call("skip", engine.run).stderr
    assert f"{engine.run}/api is skipped" in call("skip", f"{engine.run}/api", "--why", "by hand").stdout
    engine.end("page")
    assert begin(run=engine.run).wait() == "completed"
    tasks = {each["task"]: each["status"] for each in ask("status", engine.run, "--tasks")["tasks"]}
    assert tasks == {"api": "skipped", "page": "done"}


def test_a_run_is_cancelled_and_removed(begin: Begin, call: Call, ask: Ask, until: Until) -> None:
    engine = begin()
    until(engine.run, "working")
    assert "is being executed" in call("rm", engine.run, "--yes").stderr
    resume = f"resume with: maos resume {engine.run}\n"
    assert call("cancel", engine.run).stdout == f"{engine.run} is cancelled\n{resume}"
    assert engine.wait() == "cancelled"
    assert call("rm", engine.run).returncode == 2, "a person agrees first"
    assert ask("rm", engine.run, "--dry-run")["dry_run"] is True
    assert [each["id"] for each in ask("ps")["runs"]] == [engine.run]
    assert f"{engine.run} is removed" in call("rm", engine.run, "--yes").stdout
    assert ask("ps", "--all")["runs"] == []


def test_limits_are_changed_while_the_run_is_executed_and_what_is_left_is_shown(
    begin: Begin, call: Call, ask: Ask, until: Until
) -> None:
    engine = begin()
    until(engine.run, "working")
    done = call("update", engine.run, "--budget", "10", "--run-time", "2h", "--concurrency", "8")
    assert done.returncode == 0
    assert f"{engine.run}: budget $10.00, run time 2 h, agents at once 8 ($10.00, " in done.stdout
    found = ask("status", engine.run)
    assert (found["limits"]["cost_usd"], found["limits"]["concurrency"], found["left_usd"]) == (10.0, 8, 10.0)
    assert 7000 < found["left_s"] <= 7200
    assert found["left_tokens"] is None
    assert "$0.00 of $10.00, $10.00 left" in call("status", engine.run).stdout
    assert "$10.00" in call("ps").stdout
    assert "budget not set → $10.00" in call("logs", engine.run).stdout.replace("unlimited →", "not set →")
    cleared = ask("update", engine.run, "--budget", "0")
    assert (cleared["left_usd"], cleared["limits"]["cost_usd"]) == (None, 0.0)
    for wrong, why in ((["--concurrency", "0"], "0"), (["--budget", "-1"], "-1"), ([], "nothing is to be changed")):
        refused = call("update", engine.run, *wrong)
        assert (refused.returncode, why in refused.stderr) == (2, True)
    engine.kill()
    changed = call("update", engine.run, "--tokens", "5000")
    assert f"resume with: maos resume {engine.run}" in changed.stdout
    assert ask("status", engine.run)["left_tokens"] == 5000
