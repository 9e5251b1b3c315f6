"""What engines log: stable actions, each with the names of what it is about."""

import asyncio
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

import maos
from maos.app import Maos
from maos.clock import SystemClock
from maos.engine import log
from maos.engine.recorder import Recorder
from maos.engine.streams import RUN
from maos.errors import LeaseLost, StoreUnavailable
from maos.model.events.run import RunNoteAdded
from maos.ops import server_log

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "monitor.md"
NOT_RECORDED = {"agent.detached", "lease.lost", "cleanup.ended", server_log.NOTED}
ENDINGS = {f"{kind}.{how}" for kind in ("run", "workflow") for how in ("completed", "failed", "cancelled")}


def actions(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    found = [each for each in caplog.records if hasattr(each, "action")]
    return [(each.action, getattr(each, "task", ""), getattr(each, "agent", "")) for each in found]


def test_the_page_names_every_action() -> None:
    table = PAGE.read_text().partition("## Actions")[2]
    named = {each for each in re.findall(r"`([a-z]+\.[a-z_]+)`", table) if not each.startswith("maos.")}
    recorded = {each.action for each in log.ACTIONS.values()}
    constants = [*vars(log).values(), *vars(server_log).values()]
    others = {each.action for each in constants if isinstance(each, log.Action)}
    assert named == recorded | others | NOT_RECORDED | ENDINGS | {"agent.exited"}


async def test_a_run_is_logged_from_its_start_to_its_end(
    m: Maos, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "maos")
    tasks = [{"name": "good", "command": ["true"]}, {"name": "bad", "command": ["false"], "needs": ["good"]}]
    run = await m.runs.start({"tasks": tasks}, folder=tmp_path, options={"in_place": True, "kind": "shell"})
    await m.runs.execute(run.id)
    agent = f"{run.id}.good"
    found = actions(caplog)
    for expected in (
        ("run.created", "", ""), ("run.claimed", "", ""), ("task.started", "good", ""), ("agent.started", "", agent),
        ("agent.exited", "", agent), ("task.completed", "good", ""), ("task.failed", "bad", ""), ("run.failed", "", ""),
    ):  # fmt: skip
        assert expected in found
    assert found.index(("agent.started", "", agent)) < found.index(("agent.exited", "", agent))
    failed = next(each for each in caplog.records if getattr(each, "action", "") == "task.failed")
    assert (failed.levelname, failed.name, failed.__dict__["run"]) == ("WARNING", "maos.runs", run.id)
    assert run.id in failed.getMessage()
    assert failed.__dict__["reason"] in failed.getMessage()


async def test_an_unavailable_store_and_a_lost_lease_are_logged(
    m: Maos, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "maos")
    run = await m.runs.create({"tasks": [{"name": "a", "command": ["true"]}]})
    lease = await m.journal.acquire(f"run/{run.id}", ttl_s=10)
    assert lease is not None
    recorder = Recorder(m.journal, RUN, run, lease)
    write, away = m.journal.append_all, [True]

    async def fails_once(*args: object, **more: object) -> object:
        if away.pop() if away else False:
            raise StoreUnavailable("the database is away", written=False)
        return await write(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(m.journal, "append_all", fails_once)
    await recorder.append(RunNoteAdded(text="x", at_us=SystemClock().now_us()))
    assert [each[0] for each in actions(caplog)][-2:] == ["store.unavailable", "store.available"]
    await m.journal.release(recorder.lease)
    assert await m.journal.acquire(f"run/{run.id}", ttl_s=10) is not None
    with pytest.raises(LeaseLost):
        await recorder.append(RunNoteAdded(text="y", at_us=SystemClock().now_us()))
    assert actions(caplog)[-1][0] == "lease.lost"


async def test_an_engine_that_ends_detaches(tmp_path: Path, home: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "maos.engine")
    async with maos.open(tmp_path / "maos.db", home=home) as m:
        await m.agents.start(kind="shell", name="long", argv=["sleep", "60"], cwd=tmp_path, in_place=True)
        await asyncio.sleep(0.2)
    assert actions(caplog)[-1] == ("agent.detached", "", "long")
    async with maos.open(tmp_path / "maos.db", home=home) as m:
        running = await m.agents.adopt("long")
        assert running is not None
        assert actions(caplog)[-1] == ("agent.attached", "", "long")
        await running.stop()
        await running.wait()


def test_nothing_is_printed_unless_the_program_configures_it() -> None:
    program = "from maos.engine import log; log.RUNS.warning('x'); log.ENGINE.error('y')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
