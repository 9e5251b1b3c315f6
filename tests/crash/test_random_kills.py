"""Death at random moments under load: many writers in two processes, killed again and again (I1, I3, I4, I7)."""

import sys
from pathlib import Path
from typing import Any

import pytest

from maos.store.contract import Store
from maos_testing.crash import Deaths, kill_loop
from tests.crash.promises import Found, damage, everything
from tests.crash.scenarios import WRITERS, load_step
from tests.crash.stores import ROOT, Place

PROCESSES = 2


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """One place for all rounds."""
    return Place(str(tmp_path), request.getfixturevalue("postgres_url") if request.param == "postgres" else "")


async def test_nothing_acknowledged_is_lost(place: Place) -> None:
    await survive(place, rounds=8, seed=1)


@pytest.mark.soak
async def test_nothing_acknowledged_is_lost_in_many_rounds(place: Place) -> None:
    for seed in range(20):
        await survive(place, rounds=50, seed=seed)


async def survive(place: Place, *, rounds: int, seed: int) -> None:
    """Kill, look, repeat."""
    after = 0
    told = 0

    def argv(number: int) -> list[str]:
        return [sys.executable, "-m", "tests.crash.scenarios", "load", place.said(), f"{seed}.{number}"]

    async def check(deaths: Deaths) -> None:
        nonlocal after, told
        await place.settled()
        async with place.open() as store:
            news = Found([event for event in await everything(store) if event.position > after])
            for life in deaths.lives:
                assert life.died_at == "kill"
                told += len(life.acks)
                await check_life(store, f"{seed}.{life.number}", life.acks, news)
            after = await store.head()

    await kill_loop(argv, check, rounds=rounds, seed=seed, processes=PROCESSES, cwd=ROOT)
    async with place.open() as store:
        assert await damage(store) == []
    assert told > rounds * PROCESSES * 10, "too little load to mean anything"


async def check_life(store: Store, process: str, acks: list[Any], news: Found) -> None:
    """What one process was told is there; the append each of its writers was waiting for is whole or absent."""
    following = [0] * WRITERS
    for writer, number, position, versions in acks:
        news.keeps(load_step(process, writer, number), position, versions)
        following[writer] = number + 1
    for writer, number in enumerate(following):
        step = load_step(process, writer, number)
        there = news.has(step)
        if step.key is None:
            continue
        head = await store.head()
        reply = await step.take(store)  # the same key again (I3)
        assert reply.repeated == there
        assert await store.head() == head + (0 if there else step.size)
