"""Six tasks that write to each other, and a person who is asked: the engine is killed at every single crash point."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.clock import SystemClock
from maos.engine import questions
from maos.model.message import inbox
from maos.model.run import Run, agent_name, stream
from maos_testing.crash import Life, Point, Starter, sample
from tests.crash.stores import ROOT, Place
from tests.runs import talking_life
from tests.runs.talking_life import ANSWER, NEEDS, Outside, expected, texts

AT_ONCE = 4
UNDISTURBED = "r-undisturbed"
THROUGH, NAMING = Point("", 0), Point("", -1)
"""Deaths that are none: the life ends by itself; and it names the points it came by."""
CERTAIN = {f"{when} {what}" for when in ("run:before", "run:after") for what in ("run_planned", "run_claimed")}
CERTAIN |= {f"{when} {what}" for when in ("bus:before", "bus:after") for what in ("send", "ack")}


class Lives:
    """Starts lives, several at once, and is the person who answers whatever they ask."""

    def __init__(self, m: Maos, place: Place, folder: Path) -> None:
        self.m = m
        self.folder = folder
        self.is_server = bool(place.url)
        self.starters = [Starter(cwd=ROOT) for _ in range(AT_ONCE)]
        schema = place.schema_name if place.url else ""
        self._argv = [sys.executable, "-m", talking_life.__name__, place.url or place.path, schema, place.mark, folder]

    async def live(self, *ids: str, die_at: Point = THROUGH, by: int = 0) -> Life:
        """One life of some runs."""
        process = self.starters[by].start([*self._argv, *ids], crash_at=die_at.time, crash_name=die_at.name)
        return await asyncio.to_thread(process.wait, by)

    async def answer(self) -> None:
        """A person who answers each question as soon as it is on record, from another process."""
        async for record in self.m.journal.follow(prefix=stream("")):
            if record.type == "question_asked":
                run = await self.m.runs.get(record.stream.removeprefix(stream("")))
                assert "question_answered" not in [each.type async for each in self.m.journal.read(inbox(run.id))]
                await questions.answer(self.m.journal, SystemClock(), run, record.data["id"], ANSWER)

    def outside(self, id: str, what: str) -> Outside:
        return Outside(self.folder / f"{id}.{what}")


@pytest.fixture(params=["sqlite", "postgres"])
async def lives(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Lives]:
    url: str = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    place = Place(str(tmp_path), url)
    more: dict[str, Any] = {"mark_path": place.mark} if url else {}
    async with maos.open(url or place.path, home=tmp_path / "home", **more) as m:
        made = Lives(m, place, tmp_path)
        person = asyncio.create_task(made.answer())
        with ExitStack() as stack:
            for starter in made.starters:
                stack.enter_context(starter)
            yield made
        person.cancel()
        await asyncio.gather(person, return_exceptions=True)


async def outcome(lives: Lives, run: Run) -> dict[str, Any]:
    """What is left of a run when it is over, without what the clock and the killing change."""
    messages = [each.message async for each in lives.m.bus.history(run=run.id)]
    return {
        "status": run.status,
        "tasks": {name: (task.status, task.attempts, task.result) for name, task in run.tasks.items()},
        "cost": (run.cost_usd, run.tokens),
        "questions": [(each.id, each.question, each.answer, len(each.asked_by)) for each in run.questions.values()],
        "messages": sorted((each.sender.partition(".")[2], each.type, each.text) for each in messages),
        "effects": sorted(lives.outside(run.id, "effects").lines()),
        "told": {name: sorted(texts(lives.outside(run.id, f"{name}.told"))) for name in NEEDS},
    }


async def check_run(lives: Lives, id: str, undisturbed: dict[str, Any], done_before: list[str]) -> None:
    m = lives.m
    assert await outcome(lives, await m.runs.get(id)) == undisturbed
    recorded = Counter([record.type async for record in m.journal.read(stream(id))])
    assert recorded["question_asked"] == recorded["question_answered"] == 1
    assert (recorded["task_started"], recorded["task_finished"]) == (6, 6), "a task was begun or ended twice"
    for name in NEEDS:
        agent = agent_name(id, name)
        assert [each async for each in m.bus.waiting(agent)] == [], "not acknowledged"
        assert [each async for each in m.bus.dead_letters(agent)] == []
    begun = Counter(line.split()[0] for line in lives.outside(id, "begun").lines())
    assert [name for name in NEEDS if begun[name] > (1 if name in done_before else 2)] == [], "it was done again"


async def known(lives: Lives, id: str) -> Run | None:
    try:
        return await lives.m.runs.get(id)
    except maos.NotFound:
        return None


def groups(ids: list[str]) -> Iterator[list[str]]:
    for first in range(0, len(ids), AT_ONCE):
        yield ids[first : first + AT_ONCE]


async def kill_at(lives: Lives, points: dict[str, Point], undisturbed: dict[str, Any]) -> list[Life]:
    """Kill engines at some crash points, each with a run of its own; another one resumes all the runs."""
    deaths = await asyncio.gather(
        *(lives.live(id, die_at=point, by=by) for by, (id, point) in enumerate(points.items()))
    )
    left: dict[str, list[str]] = {}
    for id in points:
        run = await known(lives, id)
        done = [] if run is None else [task.name for task in run.tasks.values() if task.status == "done"]
        left[id if run is not None else f"{id}-anew"] = done
    await lives.live(*left)
    for (id, done), point in zip(left.items(), points.values(), strict=True):
        try:
            await check_run(lives, id, undisturbed, done)
        except BaseException as error:
            error.add_note(f"after dying at {point}")
            raise
    return deaths


@pytest.mark.timeout(600)
@pytest.mark.parametrize("share", [pytest.param(0.05, id="some"), pytest.param(1.0, id="all", marks=pytest.mark.soak)])
async def test_an_engine_killed_at_any_crash_point_loses_and_repeats_nothing(lives: Lives, share: float) -> None:
    """R-201, R-202, R-205, R-207, R-301, R-303, I18, I19, I29, I30, I31.

    Each task's effect happens once, each message is delivered and acknowledged, the question is asked once and
    answered, and the result is that of a run that nobody disturbed.
    """
    recording = await lives.live(UNDISTURBED, die_at=NAMING)
    assert recording.died_at is None
    assert len(recording.points) > 100, "there is next to nothing to be killed at"
    undisturbed = await outcome(lives, await lives.m.runs.get(UNDISTURBED))
    await check_run(lives, UNDISTURBED, undisturbed, [])
    assert undisturbed["status"] == "completed"
    assert undisturbed["effects"] == [f"{name} 1" for name in NEEDS]
    assert undisturbed["told"] == {name: expected(name) for name in NEEDS}
    assert [answer for _id, _question, answer, _by in undisturbed["questions"]] == [ANSWER]
    if share < 1 and lives.is_server:
        share = 0.0  # the engine is the same on both: each point by name
    points = {f"r-{number}": point for number, point in enumerate(sample(recording.points, share, seed=1))}
    died_at: Counter[str] = Counter()
    for group in groups(list(points)):
        deaths = await kill_at(lives, {id: points[id] for id in group}, undisturbed)
        died_at.update(each.died_at for each in deaths if each.died_at)
    assert sum(died_at.values()) >= len(points) * 0.8  # which points there are differs a little from life to life
    assert set(died_at) >= CERTAIN
    tasks = {name.partition(" ")[0] for name in died_at if name.partition(" ")[2].startswith("task_")}
    assert tasks == {"run:before", "run:after"}
    assert (await lives.m.verify()).ok
