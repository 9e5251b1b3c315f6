"""What was before what is the same on every machine: a run that was imported goes back to any moment of its past."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import maos
from maos.app import Maos
from maos.model.branch import digest
from maos.model.plan import Plan, Task
from maos.model.run import Run
from maos.travel.points_in_time import PointInTime
from maos.travel.service import TravelPlan
from tests.runs.commands import until
from tests.travel.conftest import files_of, git, on_disk, order, repository

MINE = ("run/", "attempt/", "inbox/", "acks/", "messages/", "agent/")


async def past_of(m: Maos, moment: PointInTime) -> dict[str, int]:
    """What had been recorded of the run by a moment: how many events of each stream."""
    found: dict[str, int] = {}
    async for name in m.journal.streams():
        if name.startswith(MINE):
            count = sum([each.position <= moment.position async for each in m.journal.read(name)])
            found |= {name: count} if count else {}
    return found


def told(journey: TravelPlan) -> dict[str, Any]:
    """What going back means, without where and when."""
    steps = [msgspec.structs.asdict(each) for each in journey.steps]
    return {"steps": steps, "commit": journey.commit, "questions": list(journey.questions), "digest": journey.digest}


async def lived(m: Maos, folder: Path) -> Run:
    """A run with saved files, messages, a question, saved values, a way back, and work after it."""
    waits = f"echo one > w.txt; touch {folder}/one; until [ -e {folder}/two ]; do sleep 0.02; done; echo two > w.txt"
    tasks = [
        Task(name="a", command=["sh", "-c", "echo a > a.txt"]),
        Task(name="w", command=["sh", "-c", f"test -e w.txt || {{ {waits}; }}"], needs=["a"]),
        Task(name="v", command=["sh", "-c", "echo v > v.txt"], needs=["a"]),
    ]
    run = await order(m, repository(folder), tasks, id="r-1")
    carrying = asyncio.create_task(m.runs.execute(run.id))

    async def reached() -> bool:
        return (folder / "one").exists() and (await m.runs.get(run.id)).tasks["v"].status == "done"

    await until(reached)
    for text in ("heard", "never heard"):
        await m.bus.send("other", "r-1.w", text)
    await m.state.create("r-1.w", {"saved": {"note": "then"}})
    await m.runs.ask("r-1", "Which one?", key="which", asked_by="r-1.w")

    async def asked() -> bool:
        return "which" in (await m.runs.get("r-1")).questions

    await until(asked)
    await m.travel.checkpoint("r-1", "mark")

    async def saved() -> bool:
        return "mark" in {each.name for each in (await m.agents.get("r-1.w")).checkpoints}

    await until(saved)
    await m.state.update("r-1.w", {"saved": {"note": "later"}})
    await m.runs.answer("r-1", "which", "this one")
    (folder / "two").touch()
    assert (await carrying).status == "completed"
    await m.travel.rollback("r-1", "mark")
    run = await m.runs.execute("r-1")
    assert run.status == "completed", run.why
    return run


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Maos]:
    async with maos.open(tmp_path / "here.db", home=tmp_path / "here") as m:
        yield m


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[Maos]:
    """A journal that something else is in already."""
    async with maos.open(tmp_path / "there.db", home=tmp_path / "there") as m:
        await m.state.create("somebody", {"n": 1})
        yield m


async def test_every_moment_of_an_imported_run_is_what_it_was(tmp_path: Path, here: Maos, there: Maos) -> None:
    """R-702, R-703, I13: at each version the same was recorded of everybody, and going back there means the same."""
    run = await lived(here, tmp_path)
    place, house = repository(tmp_path), tmp_path / "house"
    await here.transfer.export("r-1", tmp_path / "r-1.maos")
    git(tmp_path, "clone", "-q", "--no-local", str(place), str(house))
    await there.transfer.import_(tmp_path / "r-1.maos", folder=house)
    order = [each.stream for each in await here.journal.store.read_log(limit=9_999) if each.stream.startswith(MINE)]
    again = [each.stream for each in await there.journal.store.read_log(limit=9_999) if each.stream.startswith(MINE)]
    assert again == ["agent/somebody", *order], "in the order in which they were recorded"
    for version in range(2, run.version + 1):
        one, other = await here.travel.point("r-1", version), await there.travel.point("r-1", version)
        found = await past_of(there, other)
        found.pop("agent/somebody")
        assert found == await past_of(here, one), version
        assert digest(await there.travel.at("r-1", version)) == digest(await here.travel.at("r-1", version))
        journeys = [await m.travel.rollback("r-1", version, dry_run=True) for m in (here, there)]
        assert told(journeys[0]) == told(journeys[1]), version
    await there.runs.agree("r-1")
    await there.travel.rollback("r-1", "mark")
    back = await there.runs.get("r-1")
    assert back.open_questions[0].question == "Which one?"
    new = back.agent("w")
    attempt = await there.agents.get(new)
    assert on_disk(Path(attempt.order["cwd"])) == {"a.txt": "a\n", "first.txt": "first\n", "w.txt": "one\n"}
    assert (await there.state.get(new)).data["saved"] == {"note": "then"}
    mail = [each.data["text"] async for each in there.journal.read(f"inbox/{new}")]
    assert mail == ["heard", "never heard"]
    left = next(each.version for each in run.branches) - 1
    await there.travel.rollback("r-1", left)
    undone = await there.runs.get("r-1")
    assert files_of(house, undone.commit)["w.txt"] == "two\n", "what was given up before it came is there too"
    assert (await there.verify()).ok


async def test_a_fork_travels_with_its_origin_or_without(tmp_path: Path, here: Maos, there: Maos) -> None:
    """R-702: alone it goes on and is compared; to be joined it needs where it comes from, and says so."""
    run = await order(here, repository(tmp_path), [Task(name="a", command=["sh", "-c", "echo a > a.txt"])], id="r-1")
    await here.bus.send("person", "r-1.a", "in the beginning", run="r-1")
    run = await here.runs.execute(run.id)
    for fork in ("r-2", "r-3"):
        await here.travel.fork("r-1", into=fork)
        await here.runs.add(fork, Plan(tasks=[Task(name=fork, command=["sh", "-c", f"echo {fork} > {fork}.txt"])]))
        await here.bus.send("person", f"{fork}.a", f"to {fork}", run=fork)
        assert (await here.runs.execute(fork)).status == "completed"
    for id in ("r-1", "r-2", "r-3"):
        await here.transfer.export(id, tmp_path / f"{id}.maos")
    house = tmp_path / "house"
    git(tmp_path, "clone", "-q", "--no-local", str(repository(tmp_path)), str(house))
    for fork in ("r-2", "r-3"):
        await there.transfer.import_(tmp_path / f"{fork}.maos", folder=house)
        options = await there.runs.agree(fork)
        await there.runs.add(fork, Plan(tasks=[Task(name=f"{fork}-more", command=["true"])]))
        alone = await there.runs.execute(fork, options=options)
        assert alone.status == "completed", alone.why
    found = await there.travel.diff("r-2", 2)
    assert [each.name for each in found.tasks] == ["r-2", "r-2-more"]
    with pytest.raises(maos.NotFound, match="they come from r-1, which is not here") as refused:
        await there.travel.join("r-2", "r-3")
    assert "import it too" in str(refused.value.hint)
    await there.transfer.import_(tmp_path / "r-1.maos", folder=house)
    await there.runs.agree("r-1")
    found = await there.travel.diff("r-1", other="r-2")
    assert [[each.text for each in side] for side in found.messages] == [[], ["to r-2"]]
    done = await there.travel.join("r-2", "r-3")
    assert (done.base.run, list(done.added)) == ("r-1", ["r-3", "r-3-more"])
    files = files_of(house, (await there.runs.get("r-2")).commit)
    assert files == {"a.txt": "a\n", "first.txt": "first\n", "r-2.txt": "r-2\n", "r-3.txt": "r-3\n"}
    joined = (await there.runs.get("r-2")).version
    await there.travel.rollback("r-2", done.undo)
    await there.transfer.export("r-2", tmp_path / "joined.maos")
    async with maos.open(tmp_path / "third.db", home=tmp_path / "third") as third:
        git(tmp_path, "clone", "-q", "--no-local", str(repository(tmp_path)), str(tmp_path / "hut"))
        await third.transfer.import_(tmp_path / "joined.maos", folder=tmp_path / "hut")
        await third.runs.agree("r-2")
        await third.travel.rollback("r-2", joined)
        run = await third.runs.get("r-2")
        assert (run.done, files_of(tmp_path / "hut", run.commit)) == (5, files), (
            "also what was taken back before it came"
        )
        assert json.dumps(run.options).count(str(house)) == 0
