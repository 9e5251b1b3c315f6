"""An engine under load is killed at random moments, again and again."""

import asyncio
import sys
from pathlib import Path

import pytest

import maos
from maos_testing.crash import Deaths, kill_loop
from tests.engine import busy_engine
from tests.engine.conftest import processes_below
from tests.engine.test_attempts import lines_of

AGENTS = 20


@pytest.mark.timeout(600)
@pytest.mark.parametrize("deaths_max", [20, pytest.param(100, marks=pytest.mark.soak)])
async def test_twenty_busy_agents_outlive_the_deaths_of_their_engine(
    tmp_path: Path, home: Path, deaths_max: int
) -> None:
    """R-103, R-202, I33: every line exactly once, in order; the agents never notice."""
    lines = 1_000_000
    argv = [sys.executable, busy_engine.__file__, tmp_path / "maos.db", home, tmp_path, str(AGENTS), str(lines)]
    pids: dict[str, int] = {}

    async def check(deaths: Deaths) -> None:
        [life] = deaths.lives
        if deaths.number == 1:
            return  # it may have died before all were started
        assert life.acks[:1] in ([AGENTS], []), life
        if deaths.number % 10 == 0:
            async with maos.open(tmp_path / "maos.db", home=home) as m:
                async for attempt in m.agents.all():
                    assert attempt.is_open
                    assert attempt.number == 1
                    assert pids.setdefault(attempt.agent, attempt.pid) == attempt.pid
                    assert Path(f"/proc/{attempt.pid}").exists(), "an agent died with its engine"

    await kill_loop(lambda _number: argv, check, rounds=deaths_max, seed=7, after_s=(0.0, 0.2))
    async with maos.open(tmp_path / "maos.db", home=home) as m:
        for name in [attempt.agent async for attempt in m.agents.all()]:
            running = await m.agents.adopt(name)
            assert running is not None
            await running.stop(grace_s=1)
            await running.wait()
        found = [attempt async for attempt in m.agents.all()]
        assert len(found) == AGENTS
        for attempt in found:
            heard = await lines_of(m, attempt.agent)
            assert heard == [f"line {number}" for number in range(len(heard))], attempt.agent
            assert len(heard) > 100
    await asyncio.sleep(0)
    assert processes_below(home) == []
