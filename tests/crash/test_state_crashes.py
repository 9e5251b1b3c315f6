"""Death at every crash point in the life of an agent: what was acknowledged is there, and life goes on (I1, I3)."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import maos
from maos.app import Maos
from maos.errors import NotFound
from maos.state import folds
from maos_testing.crash import Life, crash_loop
from tests.crash.agent_life import STEPS, live, opened
from tests.crash.stores import ROOT, Place

Places = Callable[[int], Place]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the program."""
    sizes = {"FOLD_EVERY": 3, "FOLD_COSTLY_EVERY": 3, "LONG_LIST": 4, "SEGMENT_ITEMS_MAX": 4}
    for name, value in sizes.items():
        monkeypatch.setattr(folds, name, value)


@pytest.fixture(params=["sqlite", "postgres"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    """A new place for each life."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""

    def place(number: int) -> Place:
        folder = tmp_path / str(number)
        folder.mkdir(exist_ok=True)
        return Place(str(folder), url, f"life_{number}")

    return place


async def undisturbed() -> tuple[list[str], list[tuple[int, int]]]:
    """The checksum of each version of a life without deaths, and what its history comes to."""
    sums = []
    async with maos.open(":memory:") as m:
        for step in STEPS:
            await step(m.state)
            sums.append((await m.state.get("a")).checksum)
        return sums, [(each.version, each.spans) for each in await m.state.history("a")]


async def check_kept(m: Maos, sums: list[str], told: int) -> int:
    """Everything that was told, and at most one step more; returns how many."""
    done = await m.journal.version("agent/a")
    assert told <= done <= told + 1, "I1, I3: what was acknowledged, and the step under way wholly or not at all"
    report = await m.verify()
    assert report.ok, report.damage
    if done:
        assert (await m.state.get("a")).checksum == sums[done - 1]
        gone = 0
        for version in range(1, done + 1):
            m.state.cache.clear()
            try:
                assert (await m.state.at("a", version=version)).checksum == sums[version - 1], "I13"
            except NotFound:
                gone += 1
        assert (gone > 0) == (done >= 7), "only a compaction removes versions"
        for info in await m.state.snapshots("a"):
            assert (await m.state.read_snapshot("a", info.id)).checksum == sums[info.version - 1]
        m.state.cache.clear()
        state = await m.state.get("a")
        peek = await m.state.peek("a", "log", last=3)
        assert peek.entries == state.to_dict()["log"][-3:]
    return done


async def test_an_agent_survives_death_at_any_moment(places: Places) -> None:
    """Updates, snapshots, a rollback, a restore, compactions: each with its folds, all or nothing."""
    sums, history = await undisturbed()

    async def check(life: Life) -> None:
        place = places(life.number)
        await place.settled()
        told = [number for number, _sum in life.acks]
        assert [sum_ for _number, sum_ in life.acks] == sums[: len(told)]
        async with opened(place) as m:
            done = await check_kept(m, sums, len(told))
            if done >= 2:  # a repeat after death changes nothing (I3)
                assert (await STEPS[1](m.state)).version == 2  # type: ignore[attr-defined]
            await live(m, done)
            assert (await m.state.get("a")).checksum == sums[-1]
            assert [(each.version, each.spans) for each in await m.state.history("a")] == history
            await check_kept(m, sums, len(sums))
            assert [info.name for info in await m.state.snapshots("a")] == ["full", "increment", ""]

    def argv(number: int) -> list[str]:
        return [sys.executable, "-m", "tests.crash.agent_life", places(number).said()]

    # What is written is the same on both; on a server, every crash point by name and a share of the others.
    is_sampled = bool(places(0).url)
    lives = await crash_loop(argv, check, cwd=ROOT, share=None if is_sampled else 1.0)
    if not is_sampled:
        assert len(lives) > 2 * len(STEPS), "each step has several crash points"
        died_in = {len(life.acks) for life in lives}
        assert died_in == set(range(len(STEPS) + 1)), "it died before, in and after each step"
