"""The cache: never stale, counted, limited, warmed, forgotten."""

from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest

import maos
from maos.app import Maos
from maos.errors import NotFound
from maos.state.folds import ENTRY_BYTES_MIN, Cache, Entry, Tally, size_of
from maos.state.loader import empty
from tests.journal.places import Place


async def test_hot_states_are_read_from_memory(m: Maos) -> None:
    """R-406, R-408: above 95 % for hot states, and far below 50 ms."""
    for number in range(5):
        await m.state.create(f"a{number}", {"n": number})
    for _ in range(40):
        for number in range(5):
            assert (await m.state.get(f"a{number}")).data["n"] == number
    statistics = m.state.cache.statistics()
    assert (statistics.hits, statistics.misses, statistics.refreshes, statistics.evictions) == (200, 0, 0, 0)
    assert (statistics.entries, statistics.hit_rate) == (5, 1.0)
    assert statistics.bytes >= 5 * ENTRY_BYTES_MIN
    assert 0 < statistics.mean_access_us < 50_000


async def test_a_new_cache_has_no_rates(m: Maos) -> None:
    statistics = m.state.cache.statistics()
    assert msgspec.structs.astuple(statistics) == (0, 0, 0, 0, 0, 0, 0.0)
    assert statistics.hit_rate == 0.0


async def test_hits_misses_and_refreshes_are_told_apart(durable: Place) -> None:
    """R-406."""
    async with durable.open() as m, durable.open() as other:
        await m.state.create("a", {"n": 1})
        await other.state.get("a")
        await other.state.get("a")
        await m.state.update("a", {"n": 2})
        await other.state.get("a")
        statistics = other.state.cache.statistics()
        assert (statistics.misses, statistics.hits, statistics.refreshes) == (1, 1, 1)
        assert statistics.hit_rate == pytest.approx(2 / 3)


async def test_what_another_process_wrote_is_never_missed(durable: Place) -> None:
    """R-406: invalidation across nodes is a comparison with the journal at every read."""
    async with durable.open() as m, durable.open() as other:
        await m.state.create("a", {"n": 0})
        for number in range(1, 20):
            await (m, other)[number % 2].state.update("a", {"n": number})
            for each in (m, other):
                assert (await each.state.get("a")).data == {"n": number}
                assert (await each.state.get("a")).version == number + 1


async def test_an_agent_that_is_not_there_leaves_no_trace(m: Maos) -> None:
    with pytest.raises(NotFound):
        await m.state.get("nobody")
    assert m.state.cache.statistics().entries == 0


async def test_states_are_loaded_before_they_are_asked_for(durable: Place) -> None:
    """R-406: warm-up."""
    async with durable.open() as m:
        for name in ("a", "b", "c"):
            await m.state.create(name, {"n": name})
    async with durable.open() as m:
        await m.state.cache.warm(["a", "b"])
        assert m.state.cache.statistics().entries == 2
        await m.state.get("a")
        assert m.state.cache.statistics().hits == 1
        with pytest.raises(NotFound):
            await m.state.cache.warm(["nobody"])


async def test_what_is_forgotten_is_loaded_again(m: Maos) -> None:
    await m.state.create("a", {"n": 1})
    await m.state.create("b", {"n": 2})
    m.state.cache.invalidate("a")
    m.state.cache.invalidate("nobody")
    assert m.state.cache.statistics().entries == 1
    assert (await m.state.get("a")).data == {"n": 1}
    assert m.state.cache.statistics().misses == 1
    m.state.cache.clear()
    statistics = m.state.cache.statistics()
    assert (statistics.entries, statistics.bytes) == (0, 0)
    assert (await m.state.get("b")).data == {"n": 2}


async def test_what_was_not_used_for_longest_goes_first(m: Maos) -> None:
    """R-406: evictions."""
    m.state.cache._bytes_max = 3500
    for name in ("a", "b", "c"):
        await m.state.create(name, {})
    await m.state.get("a")
    await m.state.create("d", {})
    statistics = m.state.cache.statistics()
    assert (statistics.entries, statistics.evictions) == (3, 1)
    await m.state.get("a")
    assert m.state.cache.statistics().misses == 0
    await m.state.get("b")
    assert m.state.cache.statistics().misses == 1, "b it was"


async def test_one_state_is_kept_however_large(m: Maos) -> None:
    m.state.cache._bytes_max = 100
    await m.state.create("a", {"text": "x" * 10_000})
    assert m.state.cache.statistics().entries == 1
    await m.state.create("b", {})
    assert m.state.cache.statistics().entries == 1


async def test_a_state_that_grows_makes_others_go(m: Maos) -> None:
    m.state.cache._bytes_max = 50_000
    await m.state.create("a", {"log": []})
    await m.state.create("b", {})
    for number in range(60):
        await m.state.update("a", {"log": maos.Extend(["x" * 1000 + str(number)])})
    assert m.state.cache.statistics().entries == 1


def counted(m: Maos) -> int:
    """What the entries come to."""
    return sum(entry.bytes for entry in m.state.cache._entries.values())


async def test_the_count_of_bytes_is_that_of_the_entries(durable: Place) -> None:
    """Loading, refreshing, updating, forgetting, evicting: nothing is counted twice or for ever."""
    async with durable.open() as m, durable.open() as other:
        for name in ("a", "b", "c"):
            await m.state.create(name, {"log": ["x" * 500] * 20})
        m.state.cache._bytes_max = 40_000
        for number in range(30):
            await m.state.update("abc"[number % 3], {"n": number})
            await other.state.update("abc"[number % 2], {"log": maos.Extend([f"{number}" * 50])})
            await m.state.get("abc"[number % 3])
            if number % 7 == 0:
                m.state.cache.invalidate("a")
            for each in (m, other):
                assert each.state.cache.statistics().bytes == counted(each)
        for _ in range(50):
            m.state.cache.invalidate("a")
            await m.state.get("a")
        assert m.state.cache.statistics().bytes == counted(m) < 100_000


async def test_a_value_that_is_put_again_and_again_does_not_seem_to_grow(durable: Place) -> None:
    """The state is as large as it is, however often it has been updated, here or elsewhere."""
    async with durable.open() as m, durable.open() as other:
        await m.state.create("a", {"text": ""})
        for number in range(150):
            await m.state.update("a", {"text": f"{number}" + "x" * 2000})
            await other.state.get("a")
        for each in (m, other):
            assert each.state.cache.statistics().bytes < 200_000


async def test_what_is_loaded_from_a_fold_is_counted(sqlite: Place, small_folds: None) -> None:
    """A large state takes memory, wherever it came from."""
    async with sqlite.open() as m:
        await m.state.create("a", {"log": []})
        for number in range(40):
            await m.state.update("a", {"log": maos.Extend([f"{number} " * 500])})
        real = size_of((await m.state.get("a")).raw())
    async with sqlite.open() as m:
        await m.state.get("a")
        assert real / 3 < m.state.cache.statistics().bytes < real * 6


def test_an_entry_that_was_let_go_is_not_counted_when_it_grows() -> None:
    """An update under way keeps using it."""
    cache = Cache(AsyncMock(), bytes_max=2000)
    entries = [Entry(empty(name), Tally(), 0) for name in ("a", "b")]
    for entry in entries:
        cache.put(entry.state.agent, entry)
    assert cache.statistics().entries == 1
    cache.grow(entries[0], 5000)
    assert cache.statistics().bytes == entries[1].bytes


def test_sizes_are_roughly_those_of_memory() -> None:
    value: Any = {"a": ["x" * 1000, 1, None, {"b": 2.5}], "c": {}}
    assert 1000 < size_of(value) < 2000
