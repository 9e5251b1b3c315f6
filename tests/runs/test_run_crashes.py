"""A run of agents, undisturbed and killed at every crash point: each task's outside effect happens once."""

import subprocess
import sys
from pathlib import Path

import pytest

from maos_testing.crash import Life, crash_loop
from tests.engine.conftest import processes_below
from tests.runs import run_life

FILES = [f"{name}.txt" for name in "abcdef"]


def repository(folder: Path, *, git: bool) -> Path:
    place = folder / "repository"
    place.mkdir(parents=True, exist_ok=True)
    if git and not (place / ".git").exists():
        command = ["git", "-c", "user.name=x", "-c", "user.email=x@x"]
        subprocess.run([*command, "init", "-q"], cwd=place, check=True)
        subprocess.run([*command, "commit", "-q", "--allow-empty", "-m", "x"], cwd=place, check=True)
    return place


async def check_run(folder: Path, home: Path, *, git: bool) -> None:
    place = repository(folder, git=git)
    run = await run_life.live(str(folder / "maos.db"), home, place)
    assert run.status == "completed", (run.why, run.tasks)
    assert sorted((folder / "effects").read_text().split()) == list("abcdef"), "an effect was lost or repeated"
    if git:
        shown = subprocess.run(
            ["git", "ls-tree", "--name-only", run.commit], cwd=place, capture_output=True, text=True, check=True
        )
        assert shown.stdout.split() == FILES
    else:
        assert sorted(path.name for path in place.iterdir()) == FILES
    assert processes_below(home) == []


async def test_tasks_work_in_worktrees_and_build_on_each_other(tmp_path: Path) -> None:
    """R-101."""
    await check_run(tmp_path, tmp_path / "home", git=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "git", [pytest.param(False, id="folder"), pytest.param(True, id="git", marks=pytest.mark.soak)]
)
async def test_an_engine_killed_at_any_point_of_a_run_repeats_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, git: bool
) -> None:
    """R-201, I29, I30, I31."""
    monkeypatch.setenv("MAOS_CRASH_ONLY", "run:")

    def argv_for(number: int) -> list[str | Path]:
        folder = tmp_path / str(number)
        return [sys.executable, run_life.__file__, folder / "maos.db", folder / "home", repository(folder, git=git)]

    async def check(life: Life) -> None:
        folder = tmp_path / str(life.number)
        await check_run(folder, folder / "home", git=git)

    lives = await crash_loop(argv_for, check)
    assert len(lives) > 10
    assert lives[-1].acks == ["completed"]
