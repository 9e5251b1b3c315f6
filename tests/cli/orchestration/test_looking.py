"""Looking at runs: lists, the page about one, and `maos status`, while engines live and when they are gone."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

import maos
from tests.cli.agent.conftest import Call, Start, wait_until
from tests.cli.orchestration.conftest import Ask, Begin, Until


def test_a_run_is_listed_from_its_beginning_to_its_end(begin: Begin, ask: Ask, call: Call, until: Until) -> None:
    """R-901, R-106."""
    engine = begin()
    working = until(engine.run, "working")
    assert working["status"] == "running"
    assert working["activity"] == "api at work"
    assert working["spawned_tasks"] == ["api"]
    assert working["batches"] == [["api"], ["page"]]
    listed = call("ps").stdout
    assert engine.run in listed
    assert "Build the shop" in listed
    assert "0/2" in listed
    engine.end("api", "the api is there")
    engine.end("page")
    assert engine.wait() == "completed"
    (found,) = ask("ps")["runs"]
    assert (found["status"], found["state"], found["progress"]) == ("completed", "completed", 100)
    assert (found["successful_agents"], found["total_agents"], found["active_agents"]) == (2, 2, 0)
    assert (found["cost_usd"], found["tokens"]) == (1.0, 2400)
    assert found["created"] <= found["completed"]
    assert found["resumable"] is None


def test_the_list_is_narrowed_by_status_or_state(begin: Begin, ask: Ask, call: Call, until: Until) -> None:
    engine = begin()
    until(engine.run, "working")
    engine.kill()
    for wanted, count in (("running", 0), ("interrupted", 1), ("working", 0), ("completed", 0)):
        assert len(ask("ps", "--status", wanted)["runs"]) == count
    assert call("ps", "--status", "failed").stdout == "no run is failed\n1 other run (`maos ps --all`)\n"
    assert call("ps", "--status", "asleep").returncode == 2


def test_the_page_about_a_run_shows_its_tasks(begin: Begin, call: Call, until: Until) -> None:
    """R-107."""
    engine = begin()
    engine.end("api", "the api is there")
    wait_until(lambda: "page" in until(engine.run, "working")["spawned_tasks"])
    shown = call("status", engine.run, "--tasks", "--messages").stdout
    assert "███████████████░░░░░░░░░░░░░░░  50 %  1 of 2 tasks done · 1 running · $0.50 · 1.2k tokens" in shown
    assert "✓  api" in shown
    assert re.search("▶  page +running", shown)
    assert "the api is there" in shown
    assert "no messages" in shown


def test_ids_may_be_shortened(begin: Begin, call: Call, until: Until) -> None:
    engine = begin()
    until(engine.run, "working")
    for id in (engine.run, engine.run[:5], engine.run[2:], engine.run[2:6]):
        assert call("status", id).stdout.startswith(engine.run)
    other = begin()
    unclear = call("status", "r-")
    assert unclear.returncode == 2
    missing = call("status", "r-zzzzzz")
    assert missing.returncode == 3
    assert "maos ps" in missing.stderr
    assert call("status", "zzz").returncode == 3
    assert engine.run != other.run


def test_a_run_whose_engine_was_killed_is_interrupted_and_says_how_to_go_on(
    begin: Begin, ask: Ask, call: Call, until: Until
) -> None:
    """R-204, R-208."""
    engine = begin()
    until(engine.run, "working")
    engine.kill()
    found = until(engine.run, "interrupted")
    assert found["status"] == "interrupted"
    assert found["resumable"] == f"maos resume {engine.run}"
    restored = [found[name] for name in ("restoration_count", "restoration_source", "last_restored")]
    assert restored == [0, None, None]  # the first claim is its beginning
    status = call("status").stdout
    assert f"! {engine.run} is interrupted: the process that executed it has exited" in status
    assert f"resume with: maos resume {engine.run}" in status
    assert ask("status")["interrupted"] == [engine.run]
    next_one = begin(run=engine.run)
    again = until(engine.run, "working")
    assert (again["restoration_count"], again["restoration_source"]) == (1, "daemon_restart")
    assert "restored    1 time" in call("status", engine.run).stdout
    next_one.end("api")
    next_one.end("page")
    assert next_one.wait() == "completed"
    assert call("status").stdout == "nothing is running\n"


@pytest.mark.parametrize(
    ("said", "status", "state", "why", "hint"),
    [
        ("!permission_refused:not that", "failed", "blocked", "api: not that", "allow the tool, then resume"),
        ("!login_expired:401", "paused", "blocked", ": the login or key is missing", "log in again with"),
        ("!failed:no idea how", "failed", "failed", "api: no idea how", "/api`"),
    ],
)
def test_status_names_what_is_blocked_or_failed_and_what_to_do(
    begin: Begin, ask: Ask, call: Call, said: str, status: str, state: str, why: str, hint: str
) -> None:
    """R-208."""
    engine = begin()
    engine.end("api", said)
    assert engine.wait() == status
    found = ask("status")
    assert found[state] == [engine.run]
    shown = call("status").stdout
    assert f"! {engine.run} is {state}: {why}" in shown
    assert hint in shown
    assert f"resume with: maos resume {engine.run}" in shown


def test_agents_that_belong_to_no_run_are_in_the_status_too(here: Path, start: Start, call: Call, ask: Ask) -> None:
    from tests.cli.agent.conftest import TICKING, enough

    ticking = start("agent", "run", "--name", "ticker", "--in-place", "--", "sh", "-c", TICKING)
    ticking.wait_for("line 1")
    assert "ticker" in call("status").stdout
    assert [each["agent"] for each in ask("status")["agents"]] == ["ticker"]
    enough(here)
    assert ticking.end() == 0
    assert call("status").stdout == "nothing is running\n"


def test_messages_are_shown(begin: Begin, ask: Ask, call: Call, until: Until, here: Path) -> None:
    engine = begin()
    until(engine.run, "working")

    async def talk() -> None:
        async with maos.open(here / "maos.db") as m:
            for number in range(25):
                await m.bus.send(f"{engine.run}.api", f"{engine.run}.page", f"note {number}", run=engine.run)

    asyncio.run(talk())
    found = ask("status", engine.run, "--messages")
    assert found["message_count"] == 25
    assert [each["text"] for each in found["messages"]] == [f"note {number}" for number in range(25)]
    shown = call("status", engine.run, "--messages").stdout
    assert "note 24" in shown
    assert "note 5\n" in shown
    assert "note 4\n" not in shown
    assert "… and 5 earlier messages" in shown
    assert "note 24" in call("status", "--messages").stdout


def test_watching_goes_on_until_the_run_has_ended(begin: Begin, start: Start, until: Until) -> None:
    """R-901: from another process, by the journal."""
    engine = begin()
    until(engine.run, "working")
    watching = start("status", engine.run, "--watch")
    documents = start("status", engine.run, "--watch", "--json")
    watching.wait_for("0 %  working  api at work")
    documents.wait_for("api at work")
    engine.end("api")
    watching.wait_for("50 %  working  page at work")
    engine.end("page")
    assert watching.end() == 0
    assert watching.stdout.splitlines()[-1].endswith("100 %  completed")
    assert documents.end() == 0
    found: list[dict[str, Any]] = [json.loads(line) for line in documents.stdout.splitlines()]
    assert (found[0]["progress"], found[-1]["progress"]) == (0, 100)
    assert found[-1]["status"] == "completed"


def test_watching_says_when_the_engine_is_gone_and_when_it_is_back(begin: Begin, start: Start, until: Until) -> None:
    engine = begin()
    until(engine.run, "working")
    watching = start("status", engine.run, "--watch")
    watching.wait_for("working  api at work")
    engine.kill()
    watching.wait_for("interrupted  the process that executed it has exited")
    again = begin(run=engine.run)
    wait_until(lambda: watching.stdout.count("working  api at work") == 2)
    again.end("api")
    again.end("page")
    assert watching.end() == 0


def test_what_a_run_says_cannot_steer_the_terminal(begin: Begin, call: Call, until: Until) -> None:
    engine = begin([{"name": "api", "task": "\x1b[2Jgone"}])
    engine.end("api", "!failed:\x1b]0;title\x07")
    engine.wait()
    for args in (["status", engine.run, "--tasks"], ["ps"], ["status"]):
        assert "\x1b" not in call(*args).stdout
