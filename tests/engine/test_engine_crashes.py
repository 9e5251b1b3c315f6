"""The engine is killed at every crash point of an attempt; the next one goes on. Nothing is lost or done twice."""

import sys
from pathlib import Path

import pytest

import maos
from maos_testing.crash import Life, crash_loop
from tests.engine import engine_life
from tests.engine.conftest import processes_below
from tests.engine.test_attempts import lines_of

EVERYTHING = ["got one", "got two", "line 1", "line 2", "line 3", "line 4", "line 5"]


async def test_an_engine_killed_at_any_point_of_an_attempt_loses_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-103, R-202, I29, I33."""
    monkeypatch.setenv("MAOS_CRASH_ONLY", "attempt: start:")

    def folders(number: int) -> tuple[Path, Path, Path]:
        folder = tmp_path / str(number)
        folder.mkdir(exist_ok=True)
        return folder / "maos.db", folder / "home", folder

    def argv_for(number: int) -> list[str | Path]:
        return [sys.executable, engine_life.__file__, *folders(number)]

    async def check(life: Life) -> None:
        database, home, folder = folders(life.number)
        await engine_life.live(str(database), home, folder)
        async with maos.open(database, home=home) as m:
            attempt = await m.agents.get("a")
            begun = (folder / "starts").read_text().splitlines() if (folder / "starts").exists() else []
            if begun:
                assert begun == ["begun"], "the agent was started twice"
                assert (folder / "ends").read_text() == "finished\n"
                assert attempt.status == "done"
                assert await lines_of(m, "a") == EVERYTHING
            else:
                assert (attempt.status, attempt.failure) == ("failed", "holder_lost"), attempt
                assert await lines_of(m, "a") == []
        assert processes_below(home) == []
        assert not list((home / "holders").glob("*"))

    lives = await crash_loop(argv_for, check)
    points = {life.died_at for life in lives}
    assert "attempt:before start" in points  # how many groups of lines there are differs from life to life
    assert any(str(point).endswith("attempt_output") for point in points)
    assert lives[-1].acks == ["done"]
