"""Workflows that begin by themselves: each time once, whoever serves."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import maos
from maos.app import Maos
from maos.errors import InvalidInput, NotFound
from maos.testing.manual_clock import ManualClock

MINUTE = 60


@maos.workflow
async def scheduled_greeting(name: str) -> str:
    return f"hello {name}"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def m(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Maos]:
    async with maos.open(tmp_path / "maos.db", clock=clock) as opened:
        yield opened


async def ids(m: Maos) -> list[str]:
    return [flow.id async for flow in m.workflows.all()]


async def serve_until(m: Maos, count: int) -> list[str]:
    """Serve until so many workflows have begun, and a little longer."""
    told: list[str] = []
    serving = asyncio.create_task(m.workflows.serve(tell=told.append))
    async with asyncio.timeout(20):
        while len(await ids(m)) < count:
            await asyncio.sleep(0.02)
    await asyncio.sleep(0.1)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    return told


async def test_what_is_due_begins_once_although_two_serve(m: Maos, clock: ManualClock, tmp_path: Path) -> None:
    await m.workflows.schedule("greet", "* * * * *", scheduled_greeting, "you")
    clock.advance(2 * MINUTE)
    async with maos.open(tmp_path / "maos.db", clock=clock) as other:
        told = [*await serve_until(m, 1), *await serve_until(other, 1)]
    [id] = await ids(m)
    assert told == [f"began {id}"]
    assert (await m.workflows.get(id)).result == "hello you"


async def test_of_the_times_that_nobody_served_the_last_is_made_up_for(m: Maos, clock: ManualClock) -> None:
    await m.workflows.schedule("greet", "*/10 * * * *", scheduled_greeting, "you")
    clock.advance(60 * MINUTE)
    await serve_until(m, 1)
    assert len(await ids(m)) == 1


async def test_nothing_begins_for_a_time_before_it_was_made(m: Maos) -> None:
    await m.workflows.schedule("greet", "0 0 1 1 *", scheduled_greeting, "you")
    await serve_until(m, 0)
    assert await ids(m) == []


async def test_a_schedule_is_replaced_and_removed(m: Maos) -> None:
    await m.workflows.schedule("greet", "* * * * *", scheduled_greeting, "you")
    await m.workflows.schedule("greet", "@daily", scheduled_greeting, "me")
    assert (await m.workflows.schedules())["greet"].arguments["args"] == ["me"]
    await m.workflows.unschedule("greet")
    assert await m.workflows.schedules() == {}
    with pytest.raises(NotFound, match="greet"):
        await m.workflows.unschedule("greet")


async def test_a_name_that_makes_no_id_is_refused(m: Maos) -> None:
    with pytest.raises(InvalidInput, match="cannot name"):
        await m.workflows.schedule("a/b", "* * * * *", scheduled_greeting, "you")
