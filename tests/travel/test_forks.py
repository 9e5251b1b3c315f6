"""Forks have a name of their own, that nobody else has and no agent could have."""

import asyncio
from pathlib import Path

import pytest

import maos
from maos.app import Maos
from maos.model.plan import Task
from maos.travel import points_in_time
from maos.travel.service import TimeTravel
from tests.travel.conftest import order, repository, says, travel_of
from tests.workflows.define import workflow


async def test_two_forks_of_the_same_name_at_once_are_one_fork(tmp_path: Path, m: Maos, home: Path) -> None:
    """Whoever comes second is refused; nothing is written into the run of the first."""
    place = repository(tmp_path)
    for id in ("r-1", "r-2"):
        await order(m, place, [Task(name=f"t{id[-1]}", command=says(id))], id=id)
    async with maos.open(tmp_path / "maos.db", home=home) as other:

        async def fork(by: Maos, id: str) -> str:
            moment = await points_in_time.find(by.journal, await by.runs.get(id), None)
            return (await travel_of(by).fork(id, moment, into="f")).run

        done = await asyncio.gather(fork(m, "r-1"), fork(other, "r-2"), return_exceptions=True)
    refused = [each for each in done if isinstance(each, maos.InvalidInput | maos.Conflict)]
    assert len(refused) == 1, done
    events = [each.type async for each in m.journal.read("run/f")]
    assert events == ["run_created", "run_forked"]
    made = await m.runs.get("f")
    assert list(made.tasks) == [f"t{made.origin['run'][-1]}"]
    assert (await m.runs.execute("f")).status == "completed"


async def test_a_fork_at_another_position_of_the_same_version_is_another_fork(
    tmp_path: Path, m: Maos, travel: TimeTravel
) -> None:
    """Between two versions agents go on. Now is later each time, and a fork of now is made once all the same."""
    run = await order(m, repository(tmp_path), [Task(name="a", command=says("a"))], id="r-1")
    before = await m.journal.head()
    await m.runs.pause("r-1")
    now = await points_in_time.find(m.journal, run, None)
    assert now.position > before
    await travel.fork("r-1", now, into="r-2")
    await travel.fork("r-1", await points_in_time.find(m.journal, run, None), into="r-2")
    assert (await m.runs.get("r-2")).version == 2
    await travel.fork("r-1", await points_in_time.find(m.journal, run, f"@{now.position}"), into="r-2")
    with pytest.raises(maos.InvalidInput, match="there is a run 'r-2' already"):
        await travel.fork("r-1", await points_in_time.find(m.journal, run, f"@{before}"), into="r-2")


async def test_no_run_has_a_name_that_one_of_its_agents_could_have(tmp_path: Path, m: Maos, travel: TimeTravel) -> None:
    """Taking `r-1` back would stop the agents of `r-1.a`."""
    run = await order(m, repository(tmp_path), [Task(name="a", command=says("a"))], id="r-1")
    now = await points_in_time.find(m.journal, run, None)
    before = await m.journal.head()
    for refused in (
        travel.fork("r-1", now, into="r-1.a"),
        travel.fork(run.id, now, into="r-1.a", dry_run=True),
        m.runs.create({"tasks": [{"name": "x", "command": ["true"]}]}, folder=tmp_path, id="r-1.a"),
        m.workflows.start(nothing, id="r-1.a"),
    ):
        with pytest.raises(maos.InvalidInput, match=r"'r-1.a' cannot name a run"):
            await refused
    assert await m.journal.head() == before


@workflow("does-nothing")
async def nothing() -> None:
    return None
