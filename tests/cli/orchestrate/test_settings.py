"""Settings: what a run is made with, and what changes while it goes on (R-1007)."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.agent.conftest import Call, Start, wait_until
from tests.cli.orchestrate.conftest import Plan, begun, documents, waits


def settle(path: Path, text: str) -> None:
    """Write a file as an editor does: in one step."""
    new = path.with_name("new.toml")
    new.write_text(text)
    os.replace(new, path)


def test_a_change_counts_at_once_and_is_said(repository: Path, plan: Plan, start: Start) -> None:
    """More agents at once, other keywords; what must wait for the next start is said, and what is wrong is harmless."""
    settings = repository / "maos.toml"
    settings.write_text("[orchestrate]\nconcurrency = 1\n")
    noting = f"echo begun >> {repository}/c.begun; until [ -e {repository}/c.go ]; do sleep 0.02; done; echo idea: gold"
    path = plan(a=waits(repository, "a"), b=waits(repository, "b"), c=noting)
    running = start("run", "-f", str(path), "--auto")
    wait_until(lambda: begun(repository, "a"))
    settle(settings, "[orchestrate]\nconcurrency = 3\nmodel = 'x'\n[discovery]\nkeywords = ['idea:']\n")
    running.wait_for("settings: orchestrate.concurrency: 1 → 3\n")
    running.wait_for("settings: orchestrate.model: none → x, from the next start on\n")
    running.wait_for("settings: discovery.keywords: discovery: found: result: error: → idea:\n")
    wait_until(lambda: begun(repository, "b") and begun(repository, "c"))
    settle(settings, "[orchestrate]\nconcurrency = 0\n")
    running.wait_for("the changed settings are invalid, the previous ones stay in effect: ")
    running.wait_for(f"{settings}:2:15: orchestrate.concurrency is 0 (it can be a whole number from 1 to 1000)")
    for name in "abc":
        (repository / f"{name}.go").touch()
    assert running.end() == 0
    assert "★ idea: gold" in running.stdout
    assert "3 of 3 tasks done" in running.stdout


def test_a_flag_outweighs_the_file_also_when_the_file_changes(repository: Path, plan: Plan, start: Start) -> None:
    settings = repository / "maos.toml"
    settings.write_text("[orchestrate]\nconcurrency = 8\n")
    path = plan(a=waits(repository, "a"), b=waits(repository, "b"))
    running = start("run", "-f", str(path), "--auto", "--concurrency", "1", "--json")
    wait_until(lambda: begun(repository, "a"))
    settle(settings, "[orchestrate]\nconcurrency = 9\n")
    running.wait_for('"settings"')
    assert begun(repository, "b") == 0
    for name in "ab":
        (repository / f"{name}.go").touch()
    assert running.end() == 0
    (said,) = [each for each in documents(running.stdout) if each["kind"] == "settings"]
    assert said["changed"] == [{"name": "orchestrate.concurrency", "before": 8, "after": 9, "live": False}]


def options_of(call: Call, repository: Path) -> dict[str, Any]:
    import asyncio

    import maos

    async def read() -> dict[str, Any]:
        async with maos.open(repository / "maos.db") as m:
            runs = [run async for run in m.runs.all()]
            return max(runs, key=lambda run: run.created_us).options

    return asyncio.run(read())


def test_a_run_is_made_as_the_settings_say_unless_a_flag_says_otherwise(
    repository: Path, plan: Plan, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "maos.toml").write_text(
        "[orchestrate]\nkind = 'codex'\nmodel = 'small'\npermission = 'deny'\ntime_limit_s = 60\nconcurrency = 2\n"
        "[budget]\ncost_usd = 2.5\ntokens = 1000\n"
    )
    path = plan(a="true")
    assert call("run", "-f", str(path), "--auto").returncode == 0
    made = options_of(call, repository)
    assert (made["kind"], made["model"], made["permission"], made["time_limit_s"]) == ("codex", "small", "deny", 60)
    assert made["budget"] == {"cost_usd": 2.5, "tokens": 1000}
    assert "concurrency" not in made, "it can be set anew"
    flags = ["--kind", "shell", "--permission", "ask", "--time-limit", "0s", "--budget", "9", "--concurrency", "5"]
    assert call("run", "-f", str(path), "--auto", *flags).returncode == 0
    made = options_of(call, repository)
    assert (made["kind"], made["model"], made["permission"], made["time_limit_s"]) == ("shell", "", "ask", 0)
    assert made["budget"] == {"cost_usd": 9.0, "tokens": 1000}
    assert made["concurrency"] == 5


def test_an_agent_alone_has_the_time_that_is_set(repository: Path, call: Call) -> None:
    (repository / "maos.toml").write_text("[agent]\ntime_limit_s = 0.3\n")
    assert call("agent", "run", "--in-place", "--", "sleep", "60").returncode == 7
    assert call("agent", "run", "--in-place", "--time-limit", "30s", "--", "sleep", "0.5").returncode == 0


def test_wrong_settings_are_said_before_anything_begins(repository: Path, plan: Plan, call: Call) -> None:
    (repository / "maos.toml").write_text("[orchestrate]\nconcurrency = 'many'\n")
    done = call("run", "-f", str(plan(a="true")), "--auto")
    assert done.returncode == 2
    assert "maos.toml:2:15: orchestrate.concurrency is 'many'" in done.stderr
    assert not (repository / "maos.db").exists()


def test_old_interruptions_are_not_named_if_nobody_wants_that(
    repository: Path, plan: Plan, start: Start, call: Call
) -> None:
    """R-1009: the look-back is unlimited unless it is set."""
    running = start("run", "-f", str(plan(a=waits(repository, "a"))), "--auto")
    wait_until(lambda: begun(repository, "a"))
    running.kill()
    wait_until(lambda: json.loads(call("recover", "--json").stdout)["runs"])
    (repository / "maos.toml").write_text("[recovery]\nlookback_days = 0.00000001\n")
    assert json.loads(call("recover", "--json").stdout)["runs"] == []
    (repository / "a.go").touch()
    assert call("resume").returncode == 0
