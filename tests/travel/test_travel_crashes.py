"""Killed at every point on the way back, and asked again: the same run, the same files, nothing twice."""

import asyncio
import sys
from pathlib import Path

import pytest

import maos
from maos.app import Maos
from maos.clock import SystemClock
from maos.engine import checkpoints
from maos.model.branch import digest
from maos.model.message import inbox
from maos.model.plan import Plan, Task
from maos.model.run import Run
from maos.travel import points_in_time
from maos_testing.crash import Life, crash_loop
from tests.runs.commands import until
from tests.travel import travel_life
from tests.travel.conftest import files_of, on_disk, order, repository, says, travel_of

POINTS = [
    pytest.param("travel: run:", id="own points"),
    pytest.param("travel: run: prepare: merge: wipe:", id="and those of git", marks=pytest.mark.soak),
]


async def prepared(m: Maos, folder: Path) -> Run:
    """A paused run: one task done, one stopped in the middle of it, a checkpoint before, and a message nobody heard."""
    waits = f"echo one > w.txt; touch {folder}/one; while [ ! -e {folder}/two ]; do sleep 0.02; done; echo two > w.txt"
    tasks = [
        Task(name="a", command=says("a")),
        Task(name="w", command=["sh", "-c", f"{waits}; sleep 100"], needs=["a"]),
    ]
    run = await order(m, repository(folder), tasks)
    carrying = asyncio.create_task(m.runs.execute(run.id))

    async def reached() -> bool:
        return (folder / "one").exists()

    await until(reached)
    await m.bus.send("other", run.agent("w"), "hello")
    await checkpoints.make(m.journal, SystemClock(), await m.runs.get(run.id), "mark")

    async def saved() -> bool:
        return "mark" in {each.name for each in (await m.agents.get(run.agent("w"))).checkpoints}

    await until(saved)
    (folder / "two").touch()
    await m.runs.pause(run.id)
    return await carrying


@pytest.mark.timeout(300)
@pytest.mark.parametrize("points", POINTS)
@pytest.mark.parametrize("what", ["rollback", "fork"])
async def test_a_journey_killed_anywhere_is_finished_by_asking_again(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, what: str, points: str
) -> None:
    """R-702, R-703, I3, I13."""
    monkeypatch.setenv("MAOS_CRASH_ONLY", points)
    database = tmp_path / "maos.db"
    async with maos.open(database, home=home) as m:
        run = await prepared(m, tmp_path)
        before, head = digest(run), await m.journal.head()
        wanted = next(each.state for each in run.checkpoints if each.name == "mark")

    def argv_for(number: int) -> list[str | Path]:
        return [sys.executable, travel_life.__file__, database, home, what, run.id, f"r-fork{number}"]

    async def check(life: Life) -> None:
        async with maos.open(database, home=home) as m:
            id = await travel_life.go(m, what, run.id, f"r-fork{life.number}")
            found = await m.runs.get(id)
            assert digest(found) == wanted
            agent = found.agent("w")
            assert on_disk(Path((await m.agents.get(agent)).order["cwd"])) == {
                "a.txt": "a\n", "first.txt": "first\n", "w.txt": "one\n",
            }  # fmt: skip
            tree = Path(found.options["workspace"]["tree"])
            assert (
                on_disk(tree)
                == files_of(repository(tmp_path), found.commit)
                == {"a.txt": "a\n", "first.txt": "first\n"}
            )
            assert [each.data["text"] async for each in m.journal.read(inbox(agent))] == ["hello"]
            streams = [each async for each in m.journal.streams(f"attempt/{agent}.")]
            assert streams == [f"attempt/{agent}.1"]
            if what == "rollback":
                assert (
                    sum([each.type == "run_rolled_back" async for each in m.journal.read(f"run/{id}")]) == found.branch
                )
                await travel_of(m).rollback(id, await points_in_time.at_position(m.journal, found, head))
            assert digest(await m.runs.get(run.id)) == before
            assert (await m.verify()).ok

    lives = await crash_loop(argv_for, check)
    assert len(lives) > 4
    assert len({life.died_at for life in lives}) > 4


@pytest.mark.timeout(300)
@pytest.mark.parametrize("points", POINTS)
async def test_a_join_killed_anywhere_is_finished_by_asking_again(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, points: str
) -> None:
    """R-702, I3."""
    monkeypatch.setenv("MAOS_CRASH_ONLY", points)
    database = tmp_path / "maos.db"
    async with maos.open(database, home=home) as m:
        run = await order(m, repository(tmp_path), [Task(name="a", command=says("a"))])
        run = await m.runs.execute(run.id)
        await travel_of(m).fork(run.id, await points_in_time.find(m.journal, run, None), into="r-fork")
        for id, word in ((run.id, "ours"), ("r-fork", "theirs")):
            task = Task(name="b", command=["sh", "-c", f"echo {word} > b.txt; echo {word}"])
            await m.runs.add(id, Plan(tasks=[task]))
            run = await m.runs.execute(id)
        run = await m.runs.get(run.origin["run"])
        before, head = digest(run), await m.journal.head()

    def argv_for(number: int) -> list[str | Path]:
        return [sys.executable, travel_life.__file__, database, home, "join", run.id, "r-fork"]

    async def check(life: Life) -> None:
        async with maos.open(database, home=home) as m:
            await travel_life.go(m, "join", run.id, "r-fork")
            found = await m.runs.get(run.id)
            assert (found.status, found.tasks["b"].result) == ("completed", "theirs")
            wanted = {"a.txt": "a\n", "b.txt": "theirs\n", "first.txt": "first\n"}
            assert files_of(repository(tmp_path), found.commit) == wanted
            assert on_disk(Path(found.options["workspace"]["tree"])) == wanted
            await travel_of(m).rollback(run.id, await points_in_time.at_position(m.journal, found, head))
            assert digest(await m.runs.get(run.id)) == before

    lives = await crash_loop(argv_for, check)
    assert len(lives) > 4
