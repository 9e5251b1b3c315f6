"""Engines make room by themselves: when it is time, once, and nothing is lost wherever they are killed (R-704)."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.clock import SystemClock
from maos.engine.streams import statistics
from maos.model.plan import from_data
from maos.model.run import Run
from maos.runs import cleanup
from maos.settings.schema import CleanupSettings
from maos.workspaces import Workspace, checkpoint
from maos_testing.crash import Life, crash_loop
from tests.runs import cleanup_life

NAMES = "abcdef"


@pytest.fixture(autouse=True)
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engines that make the runs do not clean up themselves, however slow the machine is."""
    monkeypatch.setattr(cleanup, "CLEANUP_AFTER_S", 3600)


def repository(folder: Path) -> Path:
    place = folder / "repository"
    place.mkdir()
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@x"]
    subprocess.run([*command, "init", "-q"], cwd=place, check=True)
    subprocess.run([*command, "commit", "-q", "--allow-empty", "-m", "x"], cwd=place, check=True)
    return place


async def finished(m: Maos, folder: Path, names: str = NAMES) -> Run:
    """A completed run, each of whose agents has made a file."""
    tasks = [{"name": name, "command": ["sh", "-c", f"echo {name} > {name}.txt"]} for name in names]
    run = await m.runs.create({"tasks": tasks}, folder=folder)
    run = await m.runs.execute(run.id)
    assert run.status == "completed"
    return run


async def workspaces(m: Maos, run: Run) -> dict[str, Workspace]:
    return {name: Workspace.from_data((await m.agents.get(f"{run.id}.{name}")).workspace) for name in run.tasks}


async def cleaned(m: Maos, policies: CleanupSettings) -> cleanup.Cleanup | None:
    return await cleanup.Cleaner(SystemClock(), m.runs, m.agents).when_due(policies)


async def test_an_engine_cleans_up_once_in_an_interval(m: Maos, tmp_path: Path) -> None:
    run = await finished(m, repository(tmp_path), "ab")
    soon = CleanupSettings(older_than_days=1e-9)
    assert await cleaned(m, CleanupSettings(older_than_days=1e-9, enabled=False)) is None
    done = await cleaned(m, soon)
    assert done is not None
    assert sorted(each.agent for each in done.removed) == [f"{run.id}.a", f"{run.id}.b"]
    assert await cleaned(m, soon) is None, "it is not time again"
    known = await statistics(m.journal)
    assert (known.worktrees, known.bytes) == (2, done.bytes)
    ended = [record async for record in m.journal.read("cleanup")][-1]
    assert (ended.type, ended.data["by"], ended.data["removed"]) == ("cleanup_ended", "engine", 2)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings by which everything is due; they are read when the database is created."""
    monkeypatch.setenv("MAOS_CLEANUP_OLDER_THAN_DAYS", "1e-9")


async def test_an_engine_at_work_cleans_up_by_itself_and_says_so(
    soon: None, m: Maos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "LOOK_S", 0.02)
    run = await finished(m, repository(tmp_path), "ab")
    monkeypatch.setattr(cleanup, "CLEANUP_AFTER_S", 0)
    ((_name, workspace), _other) = (await workspaces(m, run)).items()
    said: list[str] = []
    told = asyncio.Event()

    def tell(text: str, document: dict[str, Any]) -> None:
        said.append(text)
        told.set()

    keeping = cleanup.Upkeep(cleanup.Cleaner(SystemClock(), m.runs, m.agents), m.agents.settings, tell=tell)
    async with asyncio.timeout(60):
        await keeping.beside(told.wait())
    assert said[0].startswith("cleanup: 2 worktrees of completed runs removed, ")
    assert not workspace.tree.exists()


async def test_two_engines_do_not_do_it_twice(m: Maos, tmp_path: Path) -> None:
    await finished(m, repository(tmp_path), "a")
    done = await asyncio.gather(*(cleaned(m, CleanupSettings(older_than_days=1e-9)) for _ in range(3)))
    assert len([each for each in done if each is not None]) == 1


async def test_one_that_finds_that_another_has_just_done_it_does_nothing(
    m: Maos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both saw that it is time; the other one has come to its end before this one gets the lease."""
    await finished(m, repository(tmp_path), "a")
    soon, acquire, others = CleanupSettings(older_than_days=1e-9), m.journal.acquire, []

    async def acquire_after_another(name: str, **more: Any) -> Any:
        monkeypatch.undo()
        others.append(await cleaned(m, soon))
        return await acquire(name, **more)

    monkeypatch.setattr(m.journal, "acquire", acquire_after_another)
    assert await cleaned(m, soon) is None
    assert [len(each.removed) for each in others if each is not None] == [1]


async def test_one_that_was_suspended_beyond_its_lease_leaves_the_cleanup_to_the_other(
    m: Maos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease has run out, another engine has taken it and finished; only the other one reports a cleanup."""
    await finished(m, repository(tmp_path), "a")
    soon, setups, others = CleanupSettings(older_than_days=1e-9), m.agents.setups, []
    remove_unused = setups.remove_unused

    async def remove_after_another(*given: Any, **more: Any) -> Any:
        monkeypatch.undo()
        await asyncio.sleep(0.1)
        others.append(await cleaned(m, soon))
        return await remove_unused(*given, **more)

    monkeypatch.setattr(setups, "remove_unused", remove_after_another)
    monkeypatch.setattr(cleanup, "LEASE_S", 0.05)
    assert await cleaned(m, soon) is None
    assert others[0] is not None
    ended = [record async for record in m.journal.read("cleanup") if record.type == "cleanup_ended"]
    assert len(ended) == 1


async def test_work_that_is_nowhere_else_stays_and_is_named(m: Maos, tmp_path: Path) -> None:
    """Files that were changed since, and commits that no ref leads to."""
    run = await finished(m, repository(tmp_path), "abc")
    trees = {name: each.tree for name, each in (await workspaces(m, run)).items()}
    (trees["a"] / "by-hand.txt").write_text("somebody's work")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x"]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "an unmerged commit"], cwd=trees["b"], check=True)
    done = await cleaned(m, CleanupSettings(older_than_days=1e-9))
    assert done is not None
    assert [each.agent for each in done.removed] == [f"{run.id}.c"]
    why = {each.agent: each.why for each in done.kept}
    assert "changes since its last checkpoint" in why[f"{run.id}.a"]
    assert "commits that no ref leads to" in why[f"{run.id}.b"]
    assert trees["a"].is_dir()
    assert trees["b"].is_dir()


async def test_a_run_that_was_given_more_to_do_meanwhile_keeps_its_worktrees(m: Maos, tmp_path: Path) -> None:
    run = await finished(m, repository(tmp_path), "a")
    ((_name, workspace),) = (await workspaces(m, run)).items()
    await m.runs.add(run.id, from_data({"tasks": [{"name": "more", "command": ["false"]}]}))
    done = await cleaned(m, CleanupSettings(older_than_days=1e-9))
    assert done is not None
    assert (done.runs, done.removed) == (0, [])
    assert workspace.tree.is_dir()


async def test_a_run_that_is_given_more_to_do_while_others_are_looked_at_keeps_its_worktrees(
    m: Maos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was completed when it was chosen, and is not any more when it would be its turn."""
    run = await finished(m, repository(tmp_path), "a")
    ((_name, workspace),) = (await workspaces(m, run)).items()
    of_trees = m.runs.of_trees

    async def all_then_more(names: Iterable[str]) -> AsyncIterator[Run]:
        async for each in of_trees(names):
            yield each
        await m.runs.add(run.id, from_data({"tasks": [{"name": "more", "command": ["false"]}]}))

    monkeypatch.setattr(m.runs, "of_trees", all_then_more)
    done = await cleaned(m, CleanupSettings(older_than_days=1e-9))
    assert done is not None
    assert (done.runs, done.removed, [each.why for each in done.kept]) == (1, [], ["its run continues"])
    assert workspace.tree.is_dir()


@pytest.mark.parametrize(
    ("policies", "gone"),
    [
        (CleanupSettings(older_than_days=30), 0),
        (CleanupSettings(older_than_days=0, keep_runs=1), 2),
        (CleanupSettings(older_than_days=0, keep_runs=3), 0),
        (CleanupSettings(older_than_days=0, size_mb=1), 1),
        (
            CleanupSettings(
                older_than_days=1e-9, of={"orchestration": CleanupSettings(older_than_days=0, keep_runs=2)}
            ),
            1,
        ),
    ],
    ids=["age", "number", "enough", "size", "kind"],
)
async def test_the_policy_says_how_many_go(m: Maos, tmp_path: Path, policies: CleanupSettings, gone: int) -> None:
    place = repository(tmp_path)
    runs = [await finished(m, place, "a") for _ in range(3)]
    for run in runs:
        ((_name, workspace),) = (await workspaces(m, run)).items()
        (workspace.tree / "large.bin").write_bytes(bytes(400 << 10))
        await checkpoint(workspace, "large")
    rule_of = cleanup.by_policy(policies, SystemClock().now_us())
    for dry_run in (True, False):
        done = await cleanup.Cleaner(SystemClock(), m.runs, m.agents).clean_up(rule_of, by="person", dry_run=dry_run)
        assert [each.run for each in done.removed] == [run.id for run in runs[:gone]], "the oldest"
        assert done.kept == []


@pytest.mark.timeout(300)
async def test_a_cleanup_that_is_killed_anywhere_loses_nothing_and_is_gone_on_with(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every life goes on where the one before was killed; at the end all is removed, saved and counted, once."""
    place = repository(tmp_path)
    database = tmp_path / "maos.db"
    async with maos.open(database, home=home) as m:
        run = await finished(m, place)
        trees = await workspaces(m, run)
        commits = {name: (await m.agents.get(f"{run.id}.{name}")).checkpoints[-1].commit for name in NAMES}
    monkeypatch.setenv("MAOS_CRASH_ONLY", "cleanup: remove: wipe:")

    def check_saved() -> None:
        for name, commit in commits.items():
            shown = ["git", "show", f"{commit}:{name}.txt"]
            assert subprocess.run(shown, cwd=place, capture_output=True, text=True).stdout == f"{name}\n"
            tree = trees[name].tree
            assert not tree.is_dir() or (tree / f"{name}.txt").read_text() == f"{name}\n", "half of it is no tree"

    async def check(life: Life) -> None:
        check_saved()

    lives = await crash_loop(lambda _number: [sys.executable, cleanup_life.__file__, database, home], check, share=1.0)
    assert {life.died_at for life in lives} >= {
        "cleanup: chosen", "cleanup: noted", "remove: nothing to lose", "remove: begun", "wipe: moved",
    }  # fmt: skip
    assert lives[-1].acks[1] is None, "it is not time again"
    async with maos.open(database, home=home) as m:
        known = await statistics(m.journal)
        assert known.worktrees == len(NAMES)
        assert known.bytes > 0
        assert (await m.verify()).ok
    assert [each for each in trees.values() if each.tree.exists()] == []
    listed = subprocess.run(["git", "worktree", "list"], cwd=place, capture_output=True, text=True).stdout
    assert not any(str(each.tree) + " " in listed for each in trees.values())
