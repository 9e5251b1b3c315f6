"""The part of the store contract about opening and closing; see `maos_testing.store_contract`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from maos.errors import StoreUnavailable
from maos.store.contract import Document, Store
from maos_testing.store_contract.streams import log_of, write


class LifeContract:
    """Opening, closing, and what is there afterwards."""

    async def test_a_store_opened_again_holds_everything(
        self, store: Store, open_again: Callable[[], Awaitable[Store]]
    ) -> None:
        """I1: what was acknowledged is there, byte for byte, hashes included."""
        await store.append(write("a", b"1", b"2"), documents=[Document("view", "k", 1, b"d")])
        await store.append(write("b", b"3"))
        before = await log_of(store)
        await store.close()

        store = await open_again()
        assert await log_of(store) == before
        assert await store.load("view", "k") == Document("view", "k", 1, b"d")

    async def test_a_store_opened_again_goes_on_where_it_ended(
        self, store: Store, open_again: Callable[[], Awaitable[Store]]
    ) -> None:
        """I4: a new start continues the count of positions and of versions."""
        await store.append(write("a", b"1", b"2"))
        await store.close()

        store = await open_again()
        reply = await store.append(write("a", b"3", expected=2))
        assert reply[:3] == (3, (3,), False)

    async def test_two_open_stores_see_each_others_events(
        self, store: Store, open_again: Callable[[], Awaitable[Store]]
    ) -> None:
        """I4, I5: neither trusts what it remembers over what the other wrote."""
        other = await open_again()
        await store.append(write("a", b"1"))
        await other.append(write("a", b"2", expected=1))
        await store.append(write("a", b"3", expected=2))
        await other.append(write("a", b"4", expected=3), write("b", b"5", expected=0))
        assert [event.body for event in await log_of(store)] == [b"1", b"2", b"3", b"4", b"5"]
        assert await log_of(store) == await log_of(other)

    async def test_closing_finishes_what_was_accepted(
        self, store: Store, open_again: Callable[[], Awaitable[Store]]
    ) -> None:
        """I3: each caller gets the outcome of its append, and it is true."""
        calls = [asyncio.ensure_future(store.append(write("a", b"%d" % number))) for number in range(20)]
        await asyncio.sleep(0)
        await store.close()

        outcomes = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), timeout=20)
        stored = {event.body for event in await log_of(await open_again())}
        for number, outcome in enumerate(outcomes):
            if isinstance(outcome, StoreUnavailable):
                assert outcome.written is False
                assert b"%d" % number not in stored
            else:
                assert not isinstance(outcome, BaseException)
                assert b"%d" % number in stored

    async def test_a_closed_store_says_that_it_is_closed(self, store: Store) -> None:
        """Each way to use it gives the same clear error, and an append says that nothing was written."""
        lease = await store.acquire("name", owner="me", ttl_s=30)
        assert lease is not None
        await store.close()

        with pytest.raises(StoreUnavailable, match="closed") as refused:
            await store.append(write("a", b"1"))
        assert refused.value.written is False
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.read("a")
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.read_log()
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.head()
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.version("a")
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.load("view", "k")
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.wait(after=0, timeout_s=10)
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.acquire("other", owner="me", ttl_s=30)
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.renew(lease, ttl_s=30)

    async def test_closing_twice_is_harmless(self, store: Store) -> None:
        """A second `close`, as by nested clean-up code, does nothing."""
        await store.append(write("a", b"1"))
        await store.close()
        await store.close()

    async def test_closing_wakes_waiters(self, store: Store) -> None:
        """A follower of a closed store ends with an error instead of waiting for events that cannot come."""
        waiting = asyncio.ensure_future(store.wait(after=0, timeout_s=600))
        await asyncio.sleep(0.05)
        await store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await asyncio.wait_for(waiting, timeout=10)

    async def test_it_says_where_its_data_is(self, store: Store) -> None:
        """Error messages name the place."""
        assert store.place

    async def test_a_healthy_store_reports_no_problem(self, store: Store) -> None:
        """I8: the number of versions equals the head, and there is nothing to complain about."""
        assert await store.check() == (0, (), ())
        await store.append(write("a", b"1", b"2"), write("b", b"3"))
        assert await store.check() == (3, (), ())
