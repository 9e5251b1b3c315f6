"""Checkpoints that are made by themselves while a run is carried out."""

import asyncio
from pathlib import Path

import pytest

import maos
from maos.clock import SystemClock
from maos.engine import checkpoints
from maos.model.plan import Plan, Task
from maos.model.run import agent_name

TICKING = "i=0; while [ ! -e enough ]; do i=$((i+1)); echo line $i; sleep 0.02; done"


async def test_a_run_and_its_agents_are_given_checkpoints_by_themselves(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-105: as often as was said, and only when something has happened since."""
    monkeypatch.setattr("maos.engine.checkpoints.NOTICE_S", 0.05)
    async with maos.open(tmp_path / "maos.db", home=home) as m:
        await checkpoints.set_interval(m.journal, SystemClock(), 1)
        tasks = [Task(name="a", command=["sh", "-c", TICKING]), Task(name="b", command=["true"], needs=["a"])]
        run = await m.runs.create(Plan(tasks=tasks), folder=tmp_path, options={"kind": "shell", "in_place": True})
        carrying = asyncio.create_task(m.runs.execute(run.id))
        made = []
        async with asyncio.timeout(60):
            async for record in m.journal.follow():
                if record.type in ("run_checkpointed", "attempt_checkpointed"):
                    made.append((record.type, record.data["trigger"]))
                if {each[0] for each in made} == {"run_checkpointed", "attempt_checkpointed"}:
                    break
        assert set(made) == {("run_checkpointed", "timer"), ("attempt_checkpointed", "timer")}
        await asyncio.sleep(1.5)
        assert len((await m.runs.get(run.id)).checkpoints) == 1, "nothing has happened to the run since"
        (tmp_path / "enough").touch()
        run = await carrying
        assert run.status == "completed"
        assert {each.name.partition("-")[0] for each in run.checkpoints} == {"timer"}
        assert (await m.agents.get(agent_name(run.id, "a"))).checkpoints[0].trigger == "timer"
