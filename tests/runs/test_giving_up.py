"""Runs that are given up: their worktrees are removed, nothing is lost by it, and a resumed run gets them back."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.clock import MICROSECONDS, SystemClock
from maos.model.run import Run
from maos.runs import cleanup
from maos.runs.cleanup import DAY_US
from maos.settings.schema import CleanupSettings
from maos.workflows import agent, signal
from maos.workspaces import Workspace
from maos_testing.crash import Starter
from tests.runs import cancel_life
from tests.runs.test_cleanup import repository
from tests.runs.test_operations import until
from tests.workflows.define import eventually, workflow

HALF = "test -f half.txt && echo whole > whole.txt || { echo half > half.txt; exit 3; }"
"""Leaves a file and fails; the second time it finds the file and is done."""


@pytest.fixture(autouse=True)
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engines that make the runs do not clean up themselves, however slow the machine is."""
    monkeypatch.setattr(cleanup, "CLEANUP_AFTER_S", 3600)


def worktrees(folder: Path) -> list[str]:
    listed = subprocess.run(
        ["git", "worktree", "list", "--porcelain"], cwd=folder, capture_output=True, text=True, check=True
    )
    return [line for line in listed.stdout.splitlines() if line.startswith("worktree")][1:]


async def failed_run(m: Maos, folder: Path) -> Run:
    """A run with a task that is done, one that failed with half of its work, and one that waits for it."""
    tasks: list[dict[str, Any]] = [
        {"name": "a", "command": ["sh", "-c", "echo a > a.txt"]},
        {"name": "b", "command": ["sh", "-c", HALF]},
        {"name": "c", "command": ["sh", "-c", "cat a.txt whole.txt > c.txt"], "needs": ["a", "b"]},
    ]
    run = await m.runs.start({"tasks": tasks}, folder=folder, options={"kind": "shell"})
    run = await m.runs.execute(run.id)
    assert run.status == "failed"
    return run


async def completed(m: Maos, run: Run, folder: Path) -> None:
    """It is resumed where it was, and its work can be merged."""
    await m.runs.resume(run.id)
    done = await m.runs.execute(run.id)
    assert (done.status, done.tasks["a"].attempts, done.tasks["b"].attempts) == ("completed", 1, 2)
    await m.runs.merge(done.id, into=folder, message="all of it")
    assert {each: (folder / f"{each}.txt").read_text() for each in ("half", "c")} == {
        "half": "half\n",
        "c": "a\nwhole\n",
    }


async def test_a_cancelled_run_leaves_no_worktree_and_can_be_resumed(m: Maos, tmp_path: Path) -> None:
    """B3: after an afternoon of runs that were given up, `git worktree list` shows none of them."""
    folder = repository(tmp_path)
    run = await failed_run(m, folder)
    assert len(worktrees(folder)) == 3
    left = Workspace.from_data((await m.agents.get(f"{run.id}.b")).workspace).tree / "by-hand.txt"
    left.write_text("not saved by the agent\n")
    assert (await m.runs.cancel(run.id)).status == "cancelled"
    assert worktrees(folder) == []
    assert list((m.agents.folder / "workspaces").glob("[!.]*")) == []
    assert list((m.agents.folder / "workspaces" / ".maos").glob("r-*")) == []  # no lock file either
    await completed(m, run, folder)
    assert left.read_text() == "not saved by the agent\n"


async def test_work_that_cannot_be_saved_stays_when_a_run_is_cancelled(
    m: Maos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = repository(tmp_path)
    run = await failed_run(m, folder)
    tree = Workspace.from_data((await m.agents.get(f"{run.id}.b")).workspace).tree
    subprocess.run(["git", "init", "-q", "nested"], cwd=tree, check=True)
    (tree / "nested" / "file.txt").write_text("in a repository of its own\n")
    await m.runs.cancel(run.id)
    assert [Path(each.partition(" ")[2]).name for each in worktrees(folder)] == [f"{run.id}.b"]
    assert (tree / "nested" / "file.txt").exists()
    assert [each.tree for each in (await m.runs.remove(run.id, dry_run=True)).blocked] == [str(tree)]


async def test_a_run_that_is_executed_is_cancelled_and_leaves_no_worktree(m: Maos, tmp_path: Path) -> None:
    folder = repository(tmp_path)
    tasks = [{"name": "long", "command": ["sh", "-c", "echo half > half.txt; sleep 600"]}]
    run = await m.runs.start({"tasks": tasks}, folder=folder, options={"kind": "shell"})
    executing = asyncio.create_task(m.runs.execute(run.id))
    await until(m, run.id, lambda each: each.tasks["long"].status == "running")
    await m.runs.cancel(run.id)
    await executing
    assert worktrees(folder) == []


async def test_a_cancelled_run_can_be_forked_and_rolled_back(m: Maos, tmp_path: Path) -> None:
    folder = repository(tmp_path)
    run = await failed_run(m, folder)
    await m.travel.checkpoint(run.id, "failed")
    await m.runs.cancel(run.id)
    forked = await m.travel.fork(run.id, "failed", into="r-fork")
    await m.runs.resume(forked.run)
    assert (await m.runs.execute(forked.run)).status == "completed"
    await m.travel.rollback(run.id, "failed")
    await m.runs.resume(run.id)
    assert (await m.runs.execute(run.id)).status == "completed"


class Later(SystemClock):
    """A clock that is some days ahead."""

    def __init__(self, days: float) -> None:
        self._us = int(days * DAY_US)

    def now_us(self) -> int:
        return super().now_us() + self._us


async def cleaned(m: Maos, days: float, policies: CleanupSettings) -> set[str]:
    """The agents whose worktrees are removed so many days later."""
    done = await cleanup.Cleaner(Later(days), m.runs, m.agents).when_due(policies)
    assert done is not None
    return {each.agent for each in done.removed}


async def test_runs_that_can_be_resumed_keep_their_worktrees_for_a_time_of_their_own(m: Maos, tmp_path: Path) -> None:
    folder = repository(tmp_path)
    run = await failed_run(m, folder)
    policies = CleanupSettings(older_than_days=1, unfinished_days=10)
    assert await cleaned(m, 5, policies) == set()
    assert await cleaned(m, 100, CleanupSettings(older_than_days=1, unfinished_days=0)) == set()
    assert await cleaned(m, 200, policies) == {"", f"{run.id}.a", f"{run.id}.b"}
    assert worktrees(folder) == []
    await completed(m, run, folder)


async def test_a_cleanup_by_hand_does_not_shorten_that_time(m: Maos, tmp_path: Path) -> None:
    folder = repository(tmp_path)
    await failed_run(m, folder)
    foreseen = await m.runs.clean_up(older_than_days=0, dry_run=True)
    assert (foreseen.runs, foreseen.removed) == (0, [])


async def test_the_worktree_of_a_completed_run_is_removed_too(m: Maos, tmp_path: Path) -> None:
    """C D16. What was merged in it is in the repository, and more can be done in it."""
    folder = repository(tmp_path)
    tasks = [{"name": "a", "command": ["sh", "-c", "echo a > a.txt"]}]
    run = await m.runs.start({"tasks": tasks}, folder=folder, options={"kind": "shell"})
    run = await m.runs.execute(run.id)
    assert await cleaned(m, 2, CleanupSettings(older_than_days=1)) == {"", f"{run.id}.a"}
    assert worktrees(folder) == []
    assert [each.path for each in (await m.runs.summary(run)).files or ()] == ["a.txt"]
    await m.runs.merge(run.id, into=folder, message="after the cleanup")
    assert (folder / "a.txt").exists()
    more = {"tasks": [{"name": "b", "command": ["sh", "-c", "cat a.txt a.txt > b.txt"]}]}
    await m.runs.add(run.id, maos.runs.plan_input.validate(more).plan)
    await m.runs.resume(run.id)
    run = await m.runs.execute(run.id)
    assert run.status == "completed"
    await m.runs.merge(run.id, into=folder, message="more")
    assert (folder / "b.txt").read_text() == "a\na\n"


async def test_a_cancelled_workflow_frees_the_worktrees_of_its_agents_and_a_retry_creates_them(
    m: Maos, tmp_path: Path
) -> None:
    folder = repository(tmp_path)

    @workflow("build")
    async def build() -> str:
        await signal("go")
        return await agent(argv=["sh", "-c", "cat half.txt || { echo half > half.txt; sleep 600; }"], cwd=str(folder))

    handle = await m.workflows.start(build, id="w")
    await m.workflows.signal("w", "go")
    await eventually((m.agents.folder / "workspaces" / "w.2" / "half.txt").exists)
    await m.workflows.cancel("w")
    assert (await handle.wait()).status == "cancelled"
    assert worktrees(folder) == []
    await m.workflows.retry("w")
    handle = await m.workflows.resume("w", workflow=build)
    assert await handle.result() == "half"
    assert len(worktrees(folder)) == 1
    await m.workflows.remove("w")
    assert worktrees(folder) == []


@pytest.mark.parametrize("name", ["cleanup: noted", "remove: begun"])
async def test_a_cancel_that_is_killed_can_be_repeated_or_the_run_resumed(tmp_path: Path, name: str) -> None:
    folder = repository(tmp_path)
    database, home = tmp_path / "maos.db", tmp_path / "home"
    async with maos.open(database, home=home) as m:
        run = await failed_run(m, folder)
    with Starter() as starter:
        argv = [sys.executable, cancel_life.__file__, database, home]
        life = await asyncio.to_thread(starter.start(argv, crash_at=1, crash_name=name).wait, 1)
    assert life.died_at == name
    async with maos.open(database, home=home) as m:
        assert (await m.runs.get(run.id)).status == "cancelled"
        if name != "remove: begun":
            await m.runs.cancel(run.id)
            assert worktrees(folder) == []
        await completed(m, run, folder)


async def test_how_long_a_task_took_is_how_long_its_agents_worked(m: Maos, tmp_path: Path) -> None:
    """B3: neither the pause counts nor the time in which a person did not answer."""
    tasks = [{"name": "a", "command": ["sleep", "0.2"], "gates": [{"person": "good?"}]}]
    run = await m.runs.create({"tasks": tasks}, folder=tmp_path, options={"in_place": True, "kind": "shell"})
    executing = asyncio.create_task(m.runs.execute(run.id))
    await until(m, run.id, lambda each: bool(each.open_questions))
    worked_us = (await m.runs.get(run.id)).tasks["a"].worked_us
    await asyncio.sleep(1.0)
    await m.runs.answer(run.id, (await m.runs.get(run.id)).open_questions[0].id, "yes")
    task = (await executing).tasks["a"]
    assert task.worked_us == worked_us >= 0.2 * MICROSECONDS
    assert task.ended_us - task.started_us >= worked_us + 1.0 * MICROSECONDS


async def test_the_summary_names_what_a_failed_task_has_changed(m: Maos, tmp_path: Path) -> None:
    """B3: "no file was changed" was said of a run whose failed task had changed files."""
    run = await failed_run(m, repository(tmp_path))
    [left] = (await m.runs.summary(run)).unmerged
    assert (left.task, [each.path for each in left.files]) == ("b", ["half.txt"])
