"""Following: everything, once, in order, while others write."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import pytest

import maos
from maos.app import Maos
from maos.errors import Corrupt
from maos.journal import journal as journal_module
from maos.store import sql_store
from tests.journal.places import Place

T = TypeVar("T")


@pytest.fixture(autouse=True)
def bells_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks for himself before the test is over, so a bell that is not rung is noticed."""
    monkeypatch.setattr(sql_store, "POLL_S", 600.0)


def note(text: str, **more: Any) -> maos.Event:
    return maos.Event("note", {"text": text, **more})


async def first(events: AsyncIterator[T], count: int) -> list[T]:
    """The first so many, however long that takes."""
    found = []
    async with asyncio.timeout(60):
        async for event in events:
            found.append(event)
            if len(found) == count:
                break
    await events.aclose()  # type: ignore[attr-defined]
    return found


async def test_what_is_there_comes_first_and_what_is_new_follows(m: Maos) -> None:
    await m.journal.append("run/1", [note("a"), note("b")])
    follower = asyncio.create_task(first(m.journal.follow(), 4))
    await asyncio.sleep(0.01)
    await m.journal.append("run/2", note("c"))
    await m.journal.append("run/1", note("d"))
    assert [(each.position, each.id, each.data["text"]) for each in await follower] == [
        (1, "run/1@1", "a"),
        (2, "run/1@2", "b"),
        (3, "run/2@1", "c"),
        (4, "run/1@3", "d"),
    ]


async def test_following_begins_anywhere_and_may_be_limited_to_some_streams(m: Maos) -> None:
    for number in range(3):
        await m.journal.append("run/1", note(f"run {number}"))
        await m.journal.append("inbox/1", note(f"inbox {number}"))
    assert [each.position for each in await first(m.journal.follow(after=4), 2)] == [5, 6]
    assert [each.data["text"] for each in await first(m.journal.follow(after=2, prefix="inbox/"), 2)] == [
        "inbox 1",
        "inbox 2",
    ]
    assert [each.version for each in await first(m.journal.follow_stream("run/1", after=1), 2)] == [2, 3]


async def test_one_stream_is_followed_before_it_exists(m: Maos) -> None:
    follower = asyncio.create_task(first(m.journal.follow_stream("run/9"), 2))
    await asyncio.sleep(0.01)
    await m.journal.append("other", note("not this"))
    await m.journal.append("run/9", note("a"))
    await m.journal.append("run/9", note("b"))
    assert [each.data["text"] for each in await follower] == ["a", "b"]


async def test_every_event_is_seen_once_and_in_order_while_others_write(durable: Place) -> None:
    """I6: two processes write as fast as they can, a third follows from before the first event."""
    writers, each_writes = 6, 25
    async with durable.open() as one, durable.open() as two, durable.open() as watcher:
        follower = asyncio.create_task(first(watcher.journal.follow(), writers * each_writes))
        await asyncio.sleep(0.01)

        async def write(m: Maos, who: int) -> None:
            for number in range(each_writes):
                await m.journal.append(f"run/{who % 4}", note(f"{who} {number}", padding="x" * 300))

        await asyncio.gather(*(write((one, two)[who % 2], who) for who in range(writers)))
        seen = await follower
    assert [each.position for each in seen] == list(range(1, writers * each_writes + 1))
    for stream in {each.stream for each in seen}:
        versions = [each.version for each in seen if each.stream == stream]
        assert versions == list(range(1, len(versions) + 1))
    for who in range(writers):
        mine = [each.data["text"] for each in seen if each.data["text"].startswith(f"{who} ")]
        assert mine == [f"{who} {number}" for number in range(each_writes)]


async def test_more_streams_than_are_remembered_are_followed(m: Maos, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "STREAMS_FOLLOWED_MAX", 2)
    for number in range(12):
        await m.journal.append(f"run/{number % 5}", note(str(number)))
    assert [each.data["text"] for each in await first(m.journal.follow(), 12)] == [str(n) for n in range(12)]


async def test_damage_stops_a_follower_by_name(sqlite: Place) -> None:
    """I7: also when the event is the first one seen of its stream."""
    async with sqlite.open() as m:
        await m.journal.append("run/1", [note("a"), note("b"), note("c")])
        await sqlite.sql("UPDATE events SET body = $1 WHERE version = 2", b'{"text":"x"}')
        for after in (0, 1):
            with pytest.raises(Corrupt, match="run/1@2 does not match its hash") as caught:
                await first(m.journal.follow(after=after), 3)
            assert (caught.value.stream, caught.value.version) == ("run/1", 2)
        assert [each.version for each in await first(m.journal.follow(after=2), 1)] == [3]
