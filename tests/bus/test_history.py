"""What was said can be read by run, agent, type and time, and who talks to whom (R-302, R-303)."""

import asyncio
from typing import Any

import pytest

from maos.app import Maos
from maos_testing.manual_clock import ManualClock


@pytest.fixture
async def talk(still: Maos, clock: ManualClock) -> Maos:
    """Five messages of two runs and none, a second apart."""
    bus = still.bus
    await bus.subscribe("c", "news")
    for sender, to, text, kind, run in (
        ("a", "b", "1", "request", "r-1"),
        ("b", "a", "2", "response", "r-1"),
        ("a", "b", "3", "info", "r-2"),
        ("a", "c", "4", "info", ""),
    ):
        await bus.send(sender, to, text, type=kind, run=run)
        clock.advance(1)
    await bus.publish("b", "news", "5", type="discovery", run="r-1")
    return still


async def texts(m: Maos, **wanted: Any) -> str:
    return "".join([each.message.text async for each in m.bus.history(**wanted)])


async def test_messages_are_found_by_run_agent_type_and_time(talk: Maos, clock: ManualClock) -> None:
    """R-303."""
    start_us = clock.now_us() - 4_000_000
    assert await texts(talk) == "12345"
    assert await texts(talk, run="r-1") == "125"
    assert await texts(talk, run="") == "4"
    assert await texts(talk, run="r-3") == ""
    assert await texts(talk, agent="c") == "45"
    assert await texts(talk, agent="a", types=["info"]) == "34"
    assert await texts(talk, types=["request", "discovery"]) == "15"
    assert await texts(talk, since_us=start_us + 1_000_000, before_us=start_us + 3_000_000) == "23"


async def test_who_talks_to_whom(talk: Maos) -> None:
    """R-302."""
    found = [(each.sender, each.recipient, each.messages, each.types) for each in await talk.bus.talks()]
    assert found == [
        ("a", "b", 2, ("request", "info")),
        ("a", "c", 1, ("info",)),
        ("b", "a", 1, ("response",)),
        ("b", "c", 1, ("discovery",)),
    ]
    assert [each.messages for each in await talk.bus.talks(run="r-2")] == [1]


async def test_new_messages_can_be_followed_from_a_position(talk: Maos) -> None:
    positions = [each.position async for each in talk.bus.history()]
    followed = talk.bus.follow(after=positions[2])
    assert [(await anext(followed)).message.text for _ in range(2)] == ["4", "5"]
    coming = asyncio.create_task(anext(followed))
    await talk.bus.send("a", "b", "6")
    assert (await coming).message.text == "6"
    of_run = talk.bus.follow(run="r-1", agent="c")
    assert (await anext(of_run)).message.text == "5"
    for each in (followed, of_run):
        await each.aclose()  # type: ignore[attr-defined]


async def test_a_message_of_a_run_is_in_its_history_once_with_all_who_got_it(talk: Maos) -> None:
    """And each copy in an inbox is without the list, however many there are."""
    [said] = [each.message async for each in talk.bus.history(types=["discovery"])]
    assert (said.to, said.topic) == (("c",), "news")
    [*_, waiting] = [each async for each in talk.bus.waiting("c")]
    assert (waiting.message.to, waiting.message.id) == ((), said.id)
