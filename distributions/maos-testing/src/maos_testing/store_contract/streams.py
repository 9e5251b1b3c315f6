"""The part of the store contract about reading and waiting; see `maos_testing.store_contract`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from maos.store import chain
from maos.store.contract import GENESIS, RawEvent, Recorded, Store, StreamEnding, Write

SOON_S = 10.0
"""Ample for an operation of milliseconds, and far less than a waiter that is never woken takes."""


def write(stream: str, *bodies: bytes, expected: int | None = None) -> Write:
    """Return a write of events that differ only in their bodies."""
    return Write(stream, [RawEvent("noted", 1, body) for body in bodies], expected)


async def log_of(store: Store) -> list[Recorded]:
    """Return the whole journal."""
    return await store.read_log(limit=1_000_000)


async def check_journal(store: Store) -> None:
    """Check what holds for every journal that was never compacted (I4, I6, I7)."""
    log = await log_of(store)
    assert [event.position for event in log] == list(range(1, len(log) + 1))
    ends: dict[str, tuple[int, bytes]] = {}
    for event in log:
        version, hash_ = ends.get(event.stream, (0, GENESIS))
        assert event.version == version + 1
        assert event.spans == 1
        assert event.hash == chain.hash_of(event, hash_)
        ends[event.stream] = (event.version, event.hash)
    times = [event.time_us for event in log]
    assert times == sorted(times)
    assert await store.head() == len(log)
    assert await store.streams(limit=1_000_000) == sorted(ends)
    for stream, (version, _hash) in ends.items():
        assert await store.version(stream) == version
        assert await store.read(stream, limit=1_000_000) == [event for event in log if event.stream == stream]


class ReadContract:
    """Reading streams and the journal."""

    async def test_an_empty_journal_has_nothing(self, store: Store) -> None:
        """Nothing is an answer, not an error."""
        assert await store.head() == 0
        assert await store.version("a") == 0
        assert await store.read("a") == []
        assert await store.read("a", after=5, backwards=True) == []
        assert await store.read_log() == []
        assert await store.streams() == []

    async def test_a_stream_is_read_from_any_version_on(self, store: Store) -> None:
        """`after` is the last version the reader has."""
        await store.append(write("other", b"x"))
        await store.append(write("a", b"1", b"2", b"3"))
        assert [event.body for event in await store.read("a")] == [b"1", b"2", b"3"]
        assert [event.body for event in await store.read("a", after=1)] == [b"2", b"3"]
        assert await store.read("a", after=3) == []
        assert await store.read("a", after=99) == []

    async def test_a_stream_is_read_backwards_below_a_version(self, store: Store) -> None:
        """The newest come first, and `after` itself is left out."""
        await store.append(write("a", b"1", b"2", b"3"))
        assert [event.body for event in await store.read("a", after=4, backwards=True)] == [b"3", b"2", b"1"]
        assert [event.body for event in await store.read("a", after=3, backwards=True)] == [b"2", b"1"]
        assert await store.read("a", after=1, backwards=True) == []

    async def test_no_more_than_the_limit_is_read(self, store: Store) -> None:
        """In either direction, of a stream and of the journal."""
        await store.append(write("a", *(b"%d" % number for number in range(1, 8))))
        assert [event.version for event in await store.read("a", after=2, limit=3)] == [3, 4, 5]
        assert [event.version for event in await store.read("a", after=7, limit=2, backwards=True)] == [6, 5]
        assert [event.position for event in await store.read_log(after=1, limit=2)] == [2, 3]

    async def test_pages_of_the_journal_miss_nothing_and_repeat_nothing(self, store: Store) -> None:
        """I6: a follower that asks for what comes after the last position it saw gets everything once."""
        for number in range(10):
            await store.append(write(f"s{number % 3}", b"x%d" % number, b"y%d" % number))
        seen: list[Recorded] = []
        while page := await store.read_log(after=seen[-1].position if seen else 0, limit=3):
            seen += page
        assert seen == await log_of(store)
        assert [event.position for event in seen] == list(range(1, 21))

    async def test_the_journal_has_the_streams_interleaved_as_written(self, store: Store) -> None:
        """I6: the order of the journal is the order of writing."""
        await store.append(write("a", b"1"))
        await store.append(write("b", b"2"))
        await store.append(write("a", b"3"))
        assert [(event.position, event.stream, event.version) for event in await log_of(store)] == [
            (1, "a", 1),
            (2, "b", 1),
            (3, "a", 2),
        ]

    async def test_names_of_streams_are_not_folded(self, store: Store) -> None:
        """Case, accents and spaces at the end make different streams."""
        names = ["a", "A", "a ", "ä", "a\u0308"]
        for name in names:
            await store.append(write(name, name.encode()))
        for name in names:
            assert [event.body for event in await store.read(name)] == [name.encode()]

    async def test_the_chain_of_hashes_recomputes(
        self, store: Store, pass_time: Callable[[float], Awaitable[None]]
    ) -> None:
        """I7: over many batches, with and without leases, the stored bytes give the stored hashes."""
        lease = await store.acquire("a", owner="me", ttl_s=1000)
        for number in range(5):
            await store.append(write("a", b"%d" % number, b""), write("bé", b"\x00\xff"), under=lease)
            await pass_time(1.5)
            await asyncio.gather(*(store.append(write(f"c{each % 2}", bytes(each))) for each in range(6)))
        await check_journal(store)


class StreamNamesContract:
    """Listing streams."""

    async def test_streams_are_sorted_by_code_point(self, store: Store) -> None:
        """The same order on every database, whatever its locale; \uffee and 😀 swap places in UTF-16."""
        names = ["a", "B", "Z", "_", "b", "ä", "Ω", "\uffee", "😀", "a/1", "a/10", "a/2", "é", "e", "~"]
        for name in names:
            await store.append(write(name, b""))
        assert await store.streams() == sorted(names)

    @pytest.mark.parametrize(
        ("prefix", "found"),
        [
            ("run/1", ["run/1", "run/10", "run/1/é", "run/1😀"]),
            ("run/1/", ["run/1/é"]),
            ("run", ["run/1", "run/10", "run/1/é", "run/1😀", "run/2"]),
            ("r%", []),
            ("r_n", []),
            ("RUN", ["RUN/1"]),
            ("é", ["é", "ée"]),
            ("'", ["'; DROP TABLE events; --"]),
            ("nothing", []),
        ],
    )
    async def test_a_prefix_is_taken_literally(self, store: Store, prefix: str, found: list[str]) -> None:
        """No wildcards, no folding of case, and what follows may be any character."""
        names = ["run/1", "run/10", "run/1/é", "run/1😀", "run/2", "RUN/1", "é", "ée", "e", "'; DROP TABLE events; --"]
        for name in names:
            await store.append(write(name, b""))
        assert await store.streams(prefix=prefix) == sorted(found)

    async def test_pages_of_names_miss_nothing_and_repeat_nothing(self, store: Store) -> None:
        """The last name of a page is where the next one begins."""
        names = [f"run/{number}" for number in range(10)]
        await store.append(*(write(name, b"") for name in [*names, "other", "sun"]))
        seen: list[str] = []
        while page := await store.streams(prefix="run/", after=seen[-1] if seen else "", limit=3):
            assert len(page) <= 3
            seen += page
        assert seen == names

    async def test_streams_that_have_ended_can_be_left_out(self, store: Store) -> None:
        """By the type of the last event, taken literally, and the time at which it was recorded."""

        async def add(name: str, *types: str) -> int:
            await store.append(Write(name, [RawEvent(type, 1, b"") for type in types]))
            return (await log_of(store))[-1].time_us

        await add("run/1", "began", "ended")
        await add("run/2", "began")
        await add("run/3", "ended", "began")
        await add("run/4", "end_d", "end%")
        await add("run/5", "began", "removed")
        await add("sun/1", "began")
        at_us = await add("run/6", "ended") + 1
        ended = StreamEnding(("ended", "removed"), at_us)
        assert await store.streams(prefix="run/", unless=ended) == ["run/2", "run/3", "run/4"]
        assert await store.streams(prefix="run/", unless=ended, after="run/2", limit=1) == ["run/3"]
        everything = [f"run/{number}" for number in range(1, 7)]
        assert await store.streams(prefix="run/", unless=StreamEnding(("ended", "removed"), 0)) == everything
        assert await store.streams(prefix="run/", unless=StreamEnding(("began",), at_us)) == [
            "run/1",
            "run/4",
            "run/5",
            "run/6",
        ]

    async def test_the_newest_streams_come_first_if_that_is_wanted(self, store: Store) -> None:
        """In pages, each of which begins after the last name of the one before; new events change no order."""
        for number in (3, 1, 2, 5, 4):
            await store.append(write(f"run/{number}", b""), write(f"other/{number}", b""))
        await store.append(write("run/3", b"again"))
        assert await store.streams(prefix="run/", newest=True) == ["run/4", "run/5", "run/2", "run/1", "run/3"]
        assert await store.streams(prefix="run/", newest=True, limit=2) == ["run/4", "run/5"]
        assert await store.streams(prefix="run/", newest=True, limit=2, after="run/5") == ["run/2", "run/1"]
        assert await store.streams(prefix="run/", newest=True, after="run/3") == []
        assert await store.streams(prefix="sun/", newest=True) == []


class WaitContract:
    """Waiting for new events."""

    async def test_waiting_ends_at_once_when_there_is_news(self, store: Store) -> None:
        """What was written before the waiting began counts too."""
        await store.append(write("a", b"1", b"2"))
        async with asyncio.timeout(SOON_S):
            assert await store.wait(after=0, timeout_s=600) == 2
            assert await store.wait(after=1, timeout_s=600) == 2

    async def test_waiting_for_streams_ends_with_an_event_of_one_of_them(self, store: Store) -> None:
        """What others get, before or meanwhile, does not count; the position that is returned is the newest one."""
        await store.append(write("a", b"1"), write("b", b"1"))
        async with asyncio.timeout(SOON_S):
            assert await store.wait(after=0, timeout_s=600, streams=["a"]) == 2
            assert await store.wait(after=1, timeout_s=600, streams=["b", "c"]) == 2
            assert await store.wait(after=1, timeout_s=0.05, streams=["a"]) == 2
            waiting = [
                asyncio.create_task(store.wait(after=2, timeout_s=600, streams=each))
                for each in (["a"], ["b", "c"], ["new"])
            ]
            await asyncio.sleep(0.05)
            await store.append(write("other", b"1"))
            await asyncio.sleep(0.05)
            assert [each.done() for each in waiting] == [False, False, False]
            await store.append(write("c", b"1"))
            assert await waiting[1] == 4
            await store.append(write("a", b"2"), write("new", b"1"))
            assert [await waiting[0], await waiting[2]] == [6, 6]

    async def test_waiting_ends_at_the_time_out(self, store: Store) -> None:
        """The answer is the head then, so the caller needs no second question."""
        await store.append(write("a", b"1"))
        assert await store.wait(after=1, timeout_s=0) == 1
        assert await store.wait(after=1, timeout_s=0.02) == 1
        assert await store.wait(after=7, timeout_s=0.02) == 1

    async def test_an_append_wakes_everybody_who_waits(self, store: Store) -> None:
        """No polling: all waiters are woken by each append."""
        for round_ in range(1, 6):
            waiting = [asyncio.ensure_future(store.wait(after=round_ - 1, timeout_s=600)) for _ in range(10)]
            await asyncio.sleep(0.01)
            await store.append(write("a", b"x"))
            async with asyncio.timeout(SOON_S):
                assert await asyncio.gather(*waiting) == [round_] * 10

    async def test_an_append_through_another_open_store_wakes_too(
        self, store: Store, open_again: Callable[[], Awaitable[Store]]
    ) -> None:
        """Several processes share one journal."""
        other = await open_again()
        for round_ in range(1, 6):
            waiting = asyncio.ensure_future(store.wait(after=round_ - 1, timeout_s=600))
            await asyncio.sleep(0.05)
            await other.append(write("a", b"x"))
            async with asyncio.timeout(SOON_S):
                assert await waiting == round_

    async def test_a_waiter_that_gives_up_disturbs_nobody(self, store: Store) -> None:
        """Cancelled while waiting, even for the first time; the others are woken all the same."""
        for after_steps in range(4):
            given_up = asyncio.ensure_future(store.wait(after=0, timeout_s=600))
            for _ in range(after_steps):
                await asyncio.sleep(0)
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
        waiting = asyncio.ensure_future(store.wait(after=0, timeout_s=600))
        await asyncio.sleep(0.05)
        await store.append(write("a", b"1"))
        async with asyncio.timeout(SOON_S):
            assert await waiting == 1

    async def test_those_who_wait_for_more_go_on_waiting(self, store: Store) -> None:
        """Being woken is not enough: the position must be above `after`."""
        waiting = asyncio.ensure_future(store.wait(after=2, timeout_s=600))
        await asyncio.sleep(0.01)
        for number in range(1, 3):
            await store.append(write("a", b"%d" % number))
            await asyncio.sleep(0.02)
            assert not waiting.done()
        await store.append(write("a", b"3"))
        async with asyncio.timeout(SOON_S):
            assert await waiting == 3
