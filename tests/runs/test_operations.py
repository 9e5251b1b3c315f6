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
from maos.model.events.commands import CancelRequested
from maos.model.message import inbox
from maos.model.run import Run
from maos.model.status import TaskStatus
from maos.runs.service import Runs
from maos.runs.worker import AgentWorker
from maos.store.contract import Lease
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


async def test_the_text_or_the_command_of_a_task_is_changed_before_a_retry(m: Maos, tmp_path: Path) -> None:
    """B3: a run with a mistake in its plan could never be completed. Who changed it is recorded."""
    tasks = [
        {"name": "a", "command": ["echo", "a"]},
        {"name": "b", "command": ["sh", "-c", "exit 3"], "needs": ["a"]},
        {"name": "c", "command": ["echo", "c"], "needs": ["b"]},
    ]
    run = await m.runs.create({"tasks": tasks}, folder=tmp_path, options=IN_PLACE)
    run = await m.runs.execute(run.id)
    for wrong, match in (
        ({"tasks": [], "command": ["true"]}, "only one task"),
        ({"tasks": ["a"], "command": ["true"]}, "a is done"),
    ):
        with pytest.raises(maos.InvalidInput, match=match):
            await m.runs.retry(run.id, **wrong)
    assert statuses(await m.runs.get(run.id)) == {"a": "done", "b": "failed", "c": "waiting"}
    await m.runs.retry(run.id, tasks=["b"], command=["echo", "changed"])
    await m.runs.resume(run.id)
    run = await m.runs.execute(run.id)
    assert (run.status, run.tasks["b"].result, run.tasks["b"].attempts) == ("completed", "changed", 2)
    assert run.tasks["a"].attempts == 1
    [retried] = [each.event for each in await m.runs.versions(run.id) if each.type == "task_retried"]
    assert (retried.changed, retried.by) == ({"command": ["echo", "changed"]}, m.journal.by)
    assert (await m.agents.get(f"{run.id}.b")).order["argv"] == ["echo", "changed"]


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


async def test_a_stop_that_comes_as_the_attempt_ends_does_not_stop_the_next_attempt(m: Maos, tmp_path: Path) -> None:
    """The scheduler requests it while the attempt runs; it is executed when the attempt has ended by itself."""
    effects, ends = tmp_path / "effects", tmp_path / "ends"
    command = f"echo a >> {effects}; echo begun; until test -e {ends}; do sleep 0.05; done; sleep 0.5"
    tasks = [{"name": "a", "command": ["sh", "-c", command]}]
    run = await m.runs.create({"tasks": tasks}, folder=tmp_path, options=IN_PLACE)
    worker, task = AgentWorker(m.agents), run.tasks["a"]
    task.status, task.attempts = TaskStatus.RUNNING, 1
    working = asyncio.create_task(worker.work(run, task))
    async with asyncio.timeout(60):
        while (attempt := await m.agents.newest(run.agent("a"))) is None or not attempt.offset:
            await asyncio.sleep(0.02)
        stopping = worker.stop(run, task)
        ends.touch()
        assert (await working).failure == ""
        await stopping
        task.attempts = 2
        assert (await worker.work(run, task)).failure == "", "an attempt was stopped that no request was for"
    assert effects.read_text().split() == ["a", "a"]


async def test_a_cancel_that_was_meant_for_an_attempt_that_has_ended_leaves_the_next_one_alone(m: Maos) -> None:
    """Two people cancel the same attempt, and one of them retries the task before the second cancel is read."""
    hands = Hands({"a": ["failed"]})
    runs = Runs(m.journal, SystemClock(), m.agents, worker=lambda: hands)
    run = await runs.execute((await runs.create(plan(a=""))).id)
    assert (run.status, run.tasks["a"].attempts) == ("failed", 1)
    await runs.retry(run.id)
    hands.hold = {"a"}
    executing = asyncio.create_task(runs.execute(run.id))
    await until(m, run.id, lambda each: each.tasks["a"].attempts == 2)
    late = CancelRequested(task="a", attempt=1, by=m.journal.by, at_us=1)
    read = (await m.journal.append(inbox(run.id), late)).version
    run = await until(m, run.id, lambda each: each.inbox_cursor >= read)
    assert (run.tasks["a"].status, run.tasks["a"].stopping, hands.stopped.is_set()) == ("running", None, False)
    assert [each.event.text for each in await m.runs.versions(run.id) if each.type == "run_note_added"] == [
        "attempt 1 at a has ended"
    ]
    await runs.cancel(run.id, task="a")
    async with asyncio.timeout(30):
        run = await executing
    assert (run.tasks["a"].status, run.tasks["a"].failure, run.tasks["a"].attempts) == ("failed", "cancelled", 2)


async def test_a_task_cancelled_during_its_check_is_retried_once(m: Maos, tmp_path: Path) -> None:
    effects, passes = tmp_path / "effects", tmp_path / "passes"
    gate = {"command": ["sh", "-c", f"test -e {passes} || exec sleep 600"]}
    tasks = [
        {"name": "a", "command": ["sh", "-c", f"echo a >> {effects}; sleep 0.5"], "gates": [gate]},
        {"name": "other", "command": ["sh", "-c", f"until test -e {passes}; do sleep 0.05; done"]},
    ]
    run = await m.runs.create({"tasks": tasks}, folder=tmp_path, options=IN_PLACE)
    executing = asyncio.create_task(m.runs.execute(run.id, concurrency=2))
    async with asyncio.timeout(60):
        while not any([each.is_open and "-gate1-" in each.agent async for each in m.agents.all()]):
            await asyncio.sleep(0.02)
        await m.runs.cancel(run.id, task="a")
        await until(m, run.id, lambda each: each.tasks["a"].status == "failed")
        await m.runs.retry(run.id, tasks=["a"])
        passes.touch()
        run = await executing
    assert (statuses(run), run.tasks["a"].attempts) == ({"a": "done", "other": "done"}, 2)
    assert effects.read_text().split() == ["a", "a"]


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


async def test_an_engine_executes_the_run_as_it_is_when_it_gets_the_lease(
    m: Maos, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command is applied by another process between the engine's look at the run and its claim."""
    hands = Hands({"b": ["failed"], "c": ["failed"]})
    runs, run = await failed_run(m, hands)
    hands.did.clear()
    acquire, looked, applied = m.journal.acquire, asyncio.Event(), asyncio.Event()

    async def late(name: str, *, ttl_s: float) -> Lease | None:
        if not looked.is_set():
            looked.set()
            await applied.wait()
        return await acquire(name, ttl_s=ttl_s)

    monkeypatch.setattr(m.journal, "acquire", late)
    async with asyncio.timeout(30):
        executing = asyncio.create_task(runs.execute(run.id))
        await looked.wait()
        await runs.skip(run.id, "b")
        await runs.skip(run.id, "d")
        applied.set()
        run = await executing
    assert (run.status, hands.did) == ("completed", ["c"])
    assert statuses(run) == {"a": "done", "b": "skipped", "c": "done", "d": "skipped"}


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
        assert (run.options["concurrency"], run.options["time_limit_s"]) == (operations_life.CONCURRENCY, 900.0)
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

    await m.runs.merge(run.id, into=folder, message="merged")
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
        if folder.exists():
            return
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

    await prepare(0)
    await prepare(1)
    lives = await crash_loop(argv_for, check)
    assert len(lives) > 5
    assert lives[-1].acks == ["removed"]
