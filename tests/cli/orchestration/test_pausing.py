"""Pausing runs, checkpoints, and how often files are saved."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.clock import SystemClock
from maos.engine import checkpoints
from tests.cli.agent.conftest import TICKING, Agents, Call, wait_until
from tests.cli.orchestration.conftest import Ask, Begin, Until

COUNTING: list[dict[str, Any]] = [{"name": "api", "command": ["sh", "-c", TICKING]}]


def test_a_run_is_paused_by_whoever_carries_it_out_and_goes_on_later(
    begin: Begin, ask: Ask, call: Call, until: Until
) -> None:
    """R-108."""
    engine = begin()
    until(engine.run, "working")
    done = call("pause", engine.run[:6])
    assert done.stdout == f"{engine.run} is paused\nresume with: maos resume {engine.run}\n"
    assert engine.wait() == "paused"
    assert ask("ps")["runs"][0]["state"] == "idle"
    assert call("pause", engine.run).stdout.startswith(f"{engine.run} is paused\n")
    again = begin(run=engine.run)
    until(engine.run, "working")
    again.end("api")
    again.end("page")
    assert again.wait() == "completed", "a pause that was carried out is not carried out again"
    over = call("pause", engine.run)
    assert over.returncode == 2
    assert "has ended: completed" in over.stderr


def test_pausing_a_run_without_an_engine_stops_agents_that_still_work(
    begin: Begin, ask: Ask, call: Call, agents: Agents, repository: Path
) -> None:
    engine = begin(COUNTING)
    agent = f"{engine.run}.api"
    wait_until(lambda: agent in agents.listed() and agents.shown(agent)["lines"])
    engine.kill()
    wait_until(lambda: agents.status(agent) == "detached")
    done = call("pause", engine.run)
    assert f"{engine.run} is interrupted, and none of its agents works" in done.stdout
    assert agents.status(agent) == "stopped"
    assert ask("ps")["runs"][0]["resumable"] == f"maos resume {engine.run}"
    assert _inbox(repository, engine.run) == [], "whoever resumes it must not find a wish to pause it"


def test_a_checkpoint_saves_the_files_of_agents_at_work(
    begin: Begin, ask: Ask, call: Call, agents: Agents, repository: Path
) -> None:
    engine = begin(COUNTING)
    agent = f"{engine.run}.api"
    wait_until(lambda: agent in agents.listed() and agents.shown(agent)["lines"])
    made = call("checkpoint", engine.run, "--name", "halfway")
    assert made.stdout.startswith(f"checkpoint halfway of {engine.run}, at version ")

    def saved() -> list[dict[str, Any]]:
        found = ask("orchestration", "checkpoints", engine.run)["checkpoints"]
        return [each for each in found if each["name"] == "halfway" and each["agent"]]

    (of_agent,) = wait_until(saved)
    assert (of_agent["agent"], of_agent["trigger"]) == (agent, "asked")
    assert of_agent["commit"]
    shown = call("orchestration", "checkpoints", engine.run).stdout
    assert shown.count("halfway") == 2
    assert of_agent["commit"][:12] in shown
    twice = call("checkpoint", engine.run, "--name", "halfway")
    assert twice.returncode == 2
    assert "already" in twice.stderr


def test_a_checkpoint_is_made_while_nobody_carries_the_run_out(
    begin: Begin, ask: Ask, call: Call, until: Until
) -> None:
    engine = begin()
    until(engine.run, "working")
    assert "no checkpoints" in call("orchestration", "checkpoints", engine.run).stdout
    engine.kill()
    assert call("checkpoint", engine.run, "--name", "after").returncode == 0
    (found,) = ask("orchestration", "checkpoints", engine.run)["checkpoints"]
    assert (found["name"], found["agent"]) == ("after", None)
    assert call("checkpoint", engine.run, "--name", "../x").returncode == 2
    again = begin(run=engine.run)
    until(engine.run, "working")
    again.end("api")
    again.end("page")
    assert again.wait() == "completed"


def test_the_save_interval_is_kept_in_the_database(no_db: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-901, R-1009."""
    assert call("admin", "save-interval").returncode == 2, "there is no database to ask"
    assert call("admin", "save-interval", "45").stdout == "files of running agents are saved every 45 s\n"
    assert call("admin", "save-interval", "--json").stdout == '{\n  "save_interval_s": 45.0\n}\n'
    for wrong in ("0", "100000", "soon"):
        assert call("admin", "save-interval", wrong).returncode == 2
    assert call("admin", "save-interval", MAOS_CHECKPOINT_INTERVAL="7").stdout.endswith("45 s\n")


async def test_without_one_in_the_database_the_settings_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-1009."""
    async with maos.open(":memory:") as m:
        assert await checkpoints.interval_s(m.journal, m.settings.values.checkpoint.interval_s) == 120
    monkeypatch.setenv("MAOS_CHECKPOINT_INTERVAL", "7")
    async with maos.open(":memory:") as m:
        assert await checkpoints.interval_s(m.journal, m.settings.values.checkpoint.interval_s) == 7
    monkeypatch.setenv("MAOS_CHECKPOINT_INTERVAL", "often")
    async with maos.open(":memory:") as m:
        with pytest.raises(maos.InvalidInput, match="MAOS_CHECKPOINT_INTERVAL"):
            assert m.settings


async def test_an_agent_that_runs_is_saved_by_the_interval_of_the_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maos.engine.checkpoints.NOTICE_S", 0.05)
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as m:
        running = await m.agents.start(kind="shell", argv=["sh", "-c", TICKING], cwd=tmp_path, in_place=True)
        try:
            async with asyncio.timeout(60):
                async for record in m.agents.output(running.attempt.agent, follow=True):
                    if record.type == "attempt_output" and not await m.journal.version(checkpoints.INTERVAL):
                        await checkpoints.set_interval(m.journal, SystemClock(), 1)
                    if record.type == "attempt_checkpointed":
                        break
            assert record.data["trigger"] == "timer"
        finally:
            await running.stop(grace_s=1)
            await running.wait()


def _inbox(folder: Path, run: str) -> list[str]:
    async def read() -> list[str]:
        async with maos.open(folder / "maos.db") as m:
            return [record.type async for record in m.journal.read(f"inbox/{run}")]

    return asyncio.run(read())
