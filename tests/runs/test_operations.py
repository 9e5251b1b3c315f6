"""Retry, skip, cancel and remove: while an engine executes the run, and while none does."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import maos
from maos.app import Maos
from maos.clock import SystemClock
from maos.engine.ownership import Held
from maos.engine.streams import own_run
from maos.model.run import Run
from maos.runs.service import Runs
from maos.workspaces import Workspace
from maos_testing.crash import Life, crash_loop
from tests.engine.conftest import processes_below
from tests.runs import operations_life, removal_life
from tests.runs.test_cleanup import repository
from tests.runs.test_scheduler import Hands, plan

IN_PLACE = {"in_place": True, "kind": "shell"}


def statuses(run: Run) -> dict[str, str]:
    return {name: task.status.value for name, task in run.tasks.items()}


async def until(m: Maos, id: str, condition: Callable[[Run], bool]) -> Run:
    async with asyncio.timeout(30):
        while not condition(run := await m.runs.get(id)):
            await asyncio.sleep(0.02)
        return run


async def failed_run(m: Maos, hands: Hands) -> tuple[Runs, Run]:
    """A run with a done, b and c failed, and d, which needs b."""
    runs = Runs(m.journal, SystemClock(), m.agents, worker=lambda: hands)
    run = await runs.create(plan(a="", b="a", c="a", d="b"))
    run = await runs.execute(run.id)
    assert statuses(run) == {"a": "done", "b": "failed", "c": "failed", "d": "waiting"}
    return runs, run


# --- retry -------------------------------------------------------------------------------------------------------


async def test_a_named_task_is_retried_when_the_run_is_resumed_and_no_other(m: Maos) -> None:
    hands = Hands({"b": ["failed"], "c": ["failed"]})
    runs, run = await failed_run(m, hands)
    run = await runs.retry(run.id, tasks=["b"])
    assert (run.status, statuses(run)["b"], statuses(run)["c"]) == ("paused", "waiting", "failed")
    hands.did.clear()
    run = await runs.execute(run.id)
    assert hands.did == ["b", "d"]
    assert (run.status, statuses(run)) == ("failed", {"a": "done", "b": "done", "c": "failed", "d": "done"})
    run = await runs.execute(run.id)
    assert (hands.did, run.status) == (["b", "d", "c"], "completed"), "resuming retries whatever failed, as always"


async def test_all_failed_tasks_are_retried_and_finished_ones_are_kept(m: Maos) -> None:
    hands = Hands({"b": ["failed"], "c": ["failed"]})
    runs, run = await failed_run(m, hands)
    assert statuses(await runs.retry(run.id)) == {"a": "done", "b": "waiting", "c": "waiting", "d": "waiting"}
    hands.did.clear()
    assert (await runs.execute(run.id)).status == "completed"
    assert sorted(hands.did) == ["b", "c", "d"]


async def test_what_has_not_failed_is_not_retried(m: Maos) -> None:
    hands = Hands({"b": ["failed"], "c": ["failed"]})
    runs, run = await failed_run(m, hands)
    with pytest.raises(maos.InvalidInput, match="a is done"):
        await runs.retry(run.id, tasks=["b", "a"])
    with pytest.raises(maos.NotFound, match="no task 'z'"):
        await runs.retry(run.id, tasks=["z"])
    assert (await runs.get(run.id)).version == run.version
    await runs.execute(run.id)
    with pytest.raises(maos.InvalidInput, match="has failed"):
        await runs.retry(run.id)


async def test_the_engine_that_executes_a_run_retries(m: Maos) -> None:
    hands = Hands({"b": ["failed"]})
    hands.hold = {"c"}
    runs = Runs(m.journal, SystemClock(), m.agents, worker=lambda: hands)
    run = await runs.create(plan(a="", b="a", c="a", d="b"))
    executing = asyncio.create_task(runs.execute(run.id))
    await until(m, run.id, lambda each: each.tasks["b"].status == "failed")
    run = await runs.retry(run.id, tasks=["b"])
    assert run.status == "running"
    await until(m, run.id, lambda each: each.tasks["d"].status == "done")
    hands.hold.clear()
    hands.stopped.set()
    async with asyncio.timeout(30):
        assert statuses(await executing) == {"a": "done", "b": "done", "c": "done", "d": "done"}
    assert hands.did.count("b") == 2


# --- skip --------------------------------------------------------------------------------------------------------


async def test_a_skipped_task_counts_as_done_and_those_that_need_it_start(m: Maos) -> None:
    hands = Hands({"b": ["failed"], "c": ["failed"]})
    runs, run = await failed_run(m, hands)
    run = await runs.skip(run.id, "b", reason="done by hand")
    assert (run.tasks["b"].status, run.tasks["b"].why, run.tasks["d"].missing) == ("skipped", "done by hand", 0)
    with pytest.raises(maos.InvalidInput, match="b is skipped"):
        await runs.skip(run.id, "b")
    hands.did.clear()
    # Hands insists that what a task needs is done, and a skipped one is not.
    run = await runs.skip(run.id, "d")
    run = await runs.execute(run.id)
    assert (run.status, hands.did) == ("completed", ["c"])
    assert statuses(run) == {"a": "done", "b": "skipped", "c": "done", "d": "skipped"}


async def test_a_question_of_a_skipped_task_is_closed(m: Maos, tmp_path: Path) -> None:
    tasks = [
        {"name": "a", "command": ["true"], "gates": [{"person": "good?"}]},
        {"name": "b", "command": ["true"], "needs": ["a"]},
    ]
    run = await m.runs.create({"tasks": tasks}, folder=tmp_path, options=IN_PLACE)
    executing = asyncio.create_task(m.runs.execute(run.id))
    await until(m, run.id, lambda each: bool(each.open_questions))
    await m.runs.skip(run.id, "a")
    async with asyncio.timeout(30):
        run = await executing
    assert (statuses(run), run.open_questions) == ({"a": "skipped", "b": "done"}, [])


# --- cancel ------------------------------------------------------------------------------------------------------


async def test_one_task_is_cancelled_and_the_others_continue(m: Maos, tmp_path: Path, home: Path) -> None:
    tasks = [
        {"name": "long", "command": ["sleep", "60"]},
        {"name": "after", "command": ["true"], "needs": ["long"]},
        {"name": "other", "command": ["sleep", "0.5"]},
    ]
    run = await m.runs.create({"tasks": tasks}, folder=tmp_path, options=IN_PLACE)
    executing = asyncio.create_task(m.runs.execute(run.id, concurrency=2))
    await until(m, run.id, lambda each: each.tasks["long"].status == "running")
    await m.runs.cancel(run.id, task="long", why="too slow")
    async with asyncio.timeout(30):
        run = await executing
    assert statuses(run) == {"long": "failed", "after": "waiting", "other": "done"}
    assert (run.status, run.tasks["long"].failure, run.tasks["long"].why) == ("failed", "cancelled", "too slow")
    assert processes_below(home) == []
    run = await m.runs.execute(run.id)
    assert (run.status, run.tasks["long"].attempts) == ("failed", 1), "resuming does not retry what was cancelled"
    assert statuses(await m.runs.retry(run.id))["long"] == "waiting"


@pytest.mark.parametrize("operation", ["skip", "cancel"])
async def test_the_agent_of_a_task_is_stopped_when_no_engine_attends_to_it(
    tmp_path: Path, home: Path, operation: str
) -> None:
    """The engine was killed; its agent works on, in the hands of its holder."""
    life = [sys.executable, operations_life.__file__, str(tmp_path / "maos.db"), str(home), str(tmp_path)]
    process = await asyncio.create_subprocess_exec(*life)
    async with asyncio.timeout(60):
        while not (tmp_path / "effects").exists() or "c" not in (tmp_path / "effects").read_text():
            await asyncio.sleep(0.02)
    process.kill()
    await process.wait()
    assert processes_below(home)
    async with maos.open(tmp_path / "maos.db", home=home) as m:
        [run] = [run async for run in m.runs.all()]
        if run.tasks["c"].status == "running":
            act: dict[str, Callable[[], Awaitable[Any]]] = {
                "skip": lambda: m.runs.skip(run.id, "c"),
                "cancel": lambda: m.runs.cancel(run.id, task="c"),
            }
            await act[operation]()
        run = await m.runs.get(run.id)
        assert run.tasks["c"].status == ("skipped" if operation == "skip" else "failed")
        assert not (await m.agents.get(f"{run.id}.c")).is_open


# --- crashes -----------------------------------------------------------------------------------------------------


async def test_a_command_does_not_wait_for_a_lease_that_another_engine_has_claimed_meanwhile(
    m: Maos, tmp_path: Path
) -> None:
    """The owner that was read has exited; the one that is recorded by now lives, and is not waited for."""
    run = await m.runs.create(plan(a=""), folder=tmp_path)
    claimed = await m.runs.resume(run.id)
    assert claimed is not None
    dead = {**claimed.owner, "since": 1, "token": claimed.owner["token"] - 1}
    async with asyncio.timeout(5):
        with pytest.raises(Held):
            async with own_run(m.journal, SystemClock(), msgspec.structs.replace(claimed, owner=dead)):
                pass


@pytest.mark.timeout(600)
async def test_no_command_is_lost_or_repeated_when_the_engine_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before each record that a task has started, is being stopped, or is skipped."""
    monkeypatch.setenv("MAOS_CRASH_ONLY", "run:before task_s")
    await crash_everywhere(tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_no_command_is_lost_or_repeated_wherever_the_engine_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before each record of the run, none left out."""
    monkeypatch.setenv("MAOS_CRASH_ONLY", "run:before")
    await crash_everywhere(tmp_path)


async def crash_everywhere(tmp_path: Path) -> None:
    def argv_for(number: int) -> list[str | Path]:
        folder = tmp_path / str(number)
        folder.mkdir(exist_ok=True)
        return [sys.executable, operations_life.__file__, folder / "maos.db", folder / "home", folder]

    async def check(life: Life) -> None:
        folder = tmp_path / str(life.number)
        run = await operations_life.live(str(folder / "maos.db"), folder / "home", folder)
        assert statuses(run) == {"a": "skipped", "b": "done", "c": "done", "d": "done", "e": "done"}
        assert sorted((folder / "effects").read_text().split()) == ["b", "c", "c", "d"], (
            "an effect was lost or repeated"
        )
        assert processes_below(folder / "home") == []

    lives = await crash_loop(argv_for, check)
    assert len(lives) > 5
    assert lives[-1].acks == ["completed"]


# --- remove ------------------------------------------------------------------------------------------------------


async def saved_run(m: Maos, folder: Path) -> Run:
    """A completed run with a worktree for each agent, and one for the merged work."""
    tasks = [{"name": name, "command": ["sh", "-c", f"echo {name} > {name}.txt"]} for name in "ab"]
    run = await m.runs.start({"tasks": tasks}, folder=folder, options={"kind": "shell"})
    run = await m.runs.execute(run.id)
    assert run.status == "completed"
    return run


async def test_a_removed_run_frees_its_worktrees_and_leaves_the_lists(m: Maos, tmp_path: Path) -> None:
    folder = repository(tmp_path)
    run = await saved_run(m, folder)
    trees = [Workspace.from_data((await m.agents.get(f"{run.id}.{name}")).workspace).tree for name in "ab"]
    trees.append(Path(run.options["workspace"]["tree"]))
    would = await m.runs.remove(run.id, dry_run=True)
    assert (sorted(each.tree for each in would.worktrees), would.blocked) == (sorted(map(str, trees)), [])
    assert would.unmerged == run.commit
    assert all(tree.is_dir() for tree in trees)
    assert [each.run.id for each in await m.runs.list()] == [run.id]

    await m.runs.merge(run, into=folder, message="merged")
    assert (await m.runs.remove(run.id)).unmerged == ""
    assert not any(tree.exists() for tree in trees)
    assert await m.runs.list() == []
    assert (await m.runs.get(run.id)).removed_us
    with pytest.raises(maos.InvalidInput, match="was removed"):
        await m.runs.retry(run.id) if run.status == "failed" else await m.runs.execute(run.id)


async def test_a_run_with_unsaved_work_is_not_removed(m: Maos, tmp_path: Path) -> None:
    run = await saved_run(m, repository(tmp_path))
    trees = {name: Workspace.from_data((await m.agents.get(f"{run.id}.{name}")).workspace).tree for name in "ab"}
    (trees["b"] / "new.txt").write_text("by hand")
    assert [each.agent for each in (await m.runs.remove(run.id, dry_run=True)).blocked] == [f"{run.id}.b"]
    with pytest.raises(maos.InvalidInput, match="cannot be removed"):
        await m.runs.remove(run.id)
    assert all(tree.is_dir() for tree in trees.values())
    assert [each.run.id for each in await m.runs.list()] == [run.id]


async def test_a_run_that_is_executed_is_not_removed(m: Maos, tmp_path: Path) -> None:
    tasks = [{"name": "long", "command": ["sleep", "60"]}]
    run = await m.runs.create({"tasks": tasks}, folder=tmp_path, options=IN_PLACE)
    executing = asyncio.create_task(m.runs.execute(run.id))
    await until(m, run.id, lambda each: each.tasks["long"].status == "running")
    with pytest.raises(maos.InvalidInput, match="is being executed"):
        await m.runs.remove(run.id)
    await m.runs.cancel(run.id)
    async with asyncio.timeout(30):
        await executing
    await m.runs.remove(run.id)
    assert await m.runs.list() == []


@pytest.mark.timeout(600)
async def test_a_removal_that_was_killed_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAOS_CRASH_ONLY", "cleanup: run:")

    def argv_for(number: int) -> list[str | Path]:
        folder = tmp_path / str(number)
        return [sys.executable, removal_life.__file__, folder / "maos.db", folder / "home"]

    async def prepare(number: int) -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        async with maos.open(folder / "maos.db", home=folder / "home") as m:
            await saved_run(m, repository(folder))

    async def check(life: Life) -> None:
        folder = tmp_path / str(life.number)
        await removal_life.live(str(folder / "maos.db"), folder / "home")
        async with maos.open(folder / "maos.db", home=folder / "home") as m:
            assert await m.runs.list() == []
            [id] = [id async for id in m.runs.ids()]
            run = await m.runs.get(id)
            assert not Path(run.options["workspace"]["tree"]).exists()
        await prepare(life.number + 1)

    await prepare(1)
    lives = await crash_loop(argv_for, check)
    assert len(lives) > 5
    assert lives[-1].acks == ["removed"]
