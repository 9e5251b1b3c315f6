"""Six tasks that write to each other, and a person who is asked: the engine is killed at every single crash point."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import maos
from maos.app import Maos
from maos.clock import SystemClock
from maos.engine import questions
from maos.model.message import inbox
from maos.model.run import Run, agent_name, stream
from tests.crash.stores import ROOT, Place
from tests.runs import talking_life
from tests.runs.talking_life import ANSWER, NEEDS, Outside, expected, texts

LIFE_S_MAX = 60.0
AT_ONCE = 4
UNDISTURBED = "r-undisturbed"
CERTAIN = {f"{when} {what}" for when in ("run:before", "run:after") for what in ("run_planned", "run_claimed")}
CERTAIN |= {f"{when} {what}" for when in ("bus:before", "bus:after") for what in ("send", "ack")}


class Death(NamedTuple):
    died_at: str | None
    points: int


class Lives:
    """Processes that fork lives, and the person who answers whatever they ask."""

    def __init__(self, m: Maos, place: Place, folder: Path) -> None:
        self.m = m
        self.place = place
        self.folder = folder
        self._processes: list[asyncio.subprocess.Process] = []

    async def begin(self) -> None:
        place = self.place
        args = [place.url or str(place.path), place.schema_name if place.url else "", str(place.mark), str(self.folder)]
        # Who is killed writes no figures of coverage, and pays for them.
        environment = {name: value for name, value in os.environ.items() if name != "COVERAGE_PROCESS_CONFIG"}
        for _ in range(AT_ONCE):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", talking_life.__name__, *args, cwd=ROOT, env=environment,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
            self._processes.append(process)

    async def end(self) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and a life that never ends
            await process.communicate()

    async def live(self, crash_at: int, *ids: str, by: int = 0) -> Death:
        """One life of some runs."""
        process = self._processes[by]
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{crash_at} {' '.join(ids)}\n".encode())
        async with asyncio.timeout(LIFE_S_MAX):
            death = Death(**json.loads(await process.stdout.readline()))
        assert death.points >= 0, f"{ids}, to be killed at crash point {crash_at}, ended with an error of their own"
        return death

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
        await made.begin()
        person = asyncio.create_task(made.answer())
        yield made
        person.cancel()
        await asyncio.gather(person, return_exceptions=True)
        await made.end()


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
        assert [each async for each in m.bus.dead(agent)] == []
    begun = Counter(line.split()[0] for line in lives.outside(id, "begun").lines())
    assert [name for name in NEEDS if begun[name] > (1 if name in done_before else 2)] == [], "it was done again"


async def known(lives: Lives, id: str) -> Run | None:
    try:
        return await lives.m.runs.get(id)
    except maos.NotFound:
        return None


async def kill_at(lives: Lives, numbers: range, undisturbed: dict[str, Any]) -> list[Death]:
    """Kill engines at some crash points, each with a run of its own; another one goes on with all the runs."""
    deaths = await asyncio.gather(*(lives.live(each, f"r-{each}", by=by) for by, each in enumerate(numbers)))
    left: dict[str, list[str]] = {}
    for number in numbers:
        run = await known(lives, f"r-{number}")
        done = [] if run is None else [task.name for task in run.tasks.values() if task.status == "done"]
        left[f"r-{number}" if run is not None else f"r-{number}-anew"] = done
    await lives.live(0, *left)
    for (id, done), number, death in zip(left.items(), numbers, deaths, strict=True):
        try:
            await check_run(lives, id, undisturbed, done)
        except BaseException as error:
            error.add_note(f"after dying at {death.died_at!r}, which was crash point {number}")
            raise
    return deaths


@pytest.mark.timeout(600)
async def test_an_engine_killed_at_any_crash_point_loses_and_repeats_nothing(lives: Lives) -> None:
    """R-201, R-202, R-205, R-207, R-301, R-303, I18, I19, I29, I30, I31.

    Each task's effect happens once, each message is delivered and acknowledged, the question is asked once and
    answered, and the result is that of a run that nobody disturbed.
    """
    recording = await lives.live(0, UNDISTURBED)
    assert recording.died_at is None
    assert recording.points > 100, "there is next to nothing to be killed at"
    undisturbed = await outcome(lives, await lives.m.runs.get(UNDISTURBED))
    await check_run(lives, UNDISTURBED, undisturbed, [])
    assert undisturbed["status"] == "completed"
    assert undisturbed["effects"] == [f"{name} 1" for name in NEEDS]
    assert undisturbed["told"] == {name: expected(name) for name in NEEDS}
    assert [answer for _id, _question, answer, _by in undisturbed["questions"]] == [ANSWER]
    died_at: Counter[str] = Counter()
    for first in itertools.count(1, AT_ONCE):
        deaths = await kill_at(lives, range(first, first + AT_ONCE), undisturbed)
        died_at.update(each.died_at for each in deaths if each.died_at)
        if first + AT_ONCE > recording.points and not any(each.died_at for each in deaths):
            break  # how many points there are differs a little from life to life
    assert sum(died_at.values()) >= recording.points * 0.8
    assert set(died_at) >= CERTAIN
    tasks = {name.partition(" ")[0] for name in died_at if name.partition(" ")[2].startswith("task_")}
    assert tasks == {"run:before", "run:after"}
    assert (await lives.m.verify()).ok
