"""Workflows that begin by themselves: each time once, whoever serves."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.errors import InvalidInput, NotFound, StoreUnavailable
from maos.model.workflow import Schedule
from maos.workflows import Workflow, schedules
from maos_testing.manual_clock import ManualClock
from tests.workflows.define import eventually

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
    async with asyncio.timeout(60):
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
    assert told == [f"started {id}"]
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


@maos.workflow
async def scheduled_identity(id: int, options: str, workflow: str) -> list[object]:
    return [id, options, workflow]


async def test_an_argument_may_have_any_name(m: Maos, clock: ManualClock) -> None:
    given = {"args": [], "kwargs": {"id": 5, "options": "none", "workflow": "w"}}
    made = await m.workflows.schedule_with("same", "* * * * *", scheduled_identity, (), given["kwargs"])
    assert made.arguments == given
    clock.advance(2 * MINUTE)
    told = await serve_until(m, 1)
    [id] = await ids(m)
    assert told == [f"started {id}"]
    handle = await m.workflows.resume(id)
    assert await handle.result() == [5, "none", "w"]


@pytest.mark.parametrize("call", ["acquire", "read", "streams"])
async def test_a_time_at_which_the_store_was_away_is_made_up_for(
    m: Maos, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(schedules, "LOOK_S", 0.05)
    await m.workflows.schedule("greet", "* * * * *", scheduled_greeting, "you")
    clock.advance(2 * MINUTE)
    real, away = getattr(m.journal.store, call), [True, True]

    async def now_and_then(*args: Any, **kwargs: Any) -> Any:
        if away:
            away.pop()
            raise StoreUnavailable("the store is away", written=False)
        return await real(*args, **kwargs)

    monkeypatch.setattr(m.journal.store, call, now_and_then)
    told: list[str] = []
    serving = asyncio.create_task(m.workflows.serve(tell=told.append))
    try:
        await eventually(lambda: any(each.startswith("started greet-") for each in told))
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    assert not away
    assert len(told) == len(set(told)) == 2


async def test_what_cannot_be_loaded_is_told_once_and_begins_when_it_can(
    m: Maos, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "LOOK_S", 0.05)
    tried = []

    def load(schedule: Schedule) -> Workflow[..., Any]:
        tried.append(schedule.name)
        if schedule.name == "gone" and len(tried) < 6:
            raise NotFound("the file is gone")
        return scheduled_greeting

    await m.workflows.schedule("gone", "* * * * *", scheduled_greeting, "you")
    clock.advance(2 * MINUTE)
    told: list[str] = []
    serving = asyncio.create_task(m.workflows.serve(tell=told.append, load=load))
    try:
        await eventually(lambda: tried)
        await m.workflows.schedule("later", "* * * * *", scheduled_greeting, "me")  # while it serves
        clock.advance(MINUTE)
        await eventually(lambda: {each.split("-")[0] for each in told} >= {"started later", "started gone"})
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    assert [each for each in told if "cannot be served" in each] == [
        "the schedule gone cannot be served: the file is gone"
    ]


async def test_one_that_is_damaged_is_told_once_and_the_others_are_served(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "LOOK_S", 0.05)
    async with maos.open(tmp_path / "maos.db", clock=clock) as m:
        await m.workflows.run(scheduled_greeting, "nobody", id="bad")
        await m.workflows.schedule("greet", "* * * * *", scheduled_greeting, "you")
    with sqlite3.connect(tmp_path / "maos.db") as connection:
        connection.execute("UPDATE events SET body = CAST(replace(body, 'nobody', 'anyone') AS BLOB)")
        connection.execute("DELETE FROM documents")
    connection.close()
    async with maos.open(tmp_path / "maos.db", clock=clock) as m:
        with pytest.raises(maos.Corrupt):
            await m.workflows.resume_all()
        clock.advance(2 * MINUTE)
        told: list[str] = []
        serving = asyncio.create_task(m.workflows.serve(tell=told.append))
        try:
            await eventually(lambda: any(each.startswith("started greet-") for each in told))
            clock.advance(MINUTE)
            await eventually(lambda: len(told) == 3)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
    assert sum("workflow/bad cannot be read" in each for each in told) == 1
