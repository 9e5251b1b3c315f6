"""Idempotency keys: the same wish twice is one change, whatever happened in between (I3)."""

import datetime
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.errors import Conflict, InvalidInput, KeyReused
from maos.model.changes import MISSING, Change
from tests.journal.places import Place


async def test_a_repeated_wish_gives_the_first_reply(m: Maos) -> None:
    """What it changes depends on the state it meets, the wish does not: extending twice extends once."""
    await m.state.create("a", {"log": []})
    first = await m.state.update("a", {"log": maos.Extend(["x"])}, key="once")
    await m.state.update("a", {"log": maos.Extend(["y"])})
    again = await m.state.update("a", {"log": maos.Extend(["x"])}, key="once")
    for update in (first, again):
        assert (update.version, update.previous, update.position) == (2, 1, 2)
    assert again.changes == first.changes == (Change("/log/0", MISSING, "x", "create"),)
    assert again.checksum == first.checksum
    assert again.state.data == {"log": ["x"]}
    assert (await m.state.get("a")).data == {"log": ["x", "y"]}
    assert await m.journal.head() == 3


async def test_creating_again_with_the_same_key_is_harmless(m: Maos) -> None:
    first = await m.state.create("a", {"n": 1}, key="once", source="cli")
    await m.state.update("a", {"n": 2})
    again = await m.state.create("a", {"n": 1}, key="once", source="cli")
    assert (again.version, again.checksum, again.data) == (first.version, first.checksum, first.data)
    with pytest.raises(KeyReused):
        await m.state.create("a", {"n": 3}, key="once", source="cli")
    with pytest.raises(KeyReused):
        await m.state.create("b", {"n": 1}, key="once", source="cli")
    with pytest.raises(Conflict):
        await m.state.create("a", {"n": 1}, key="another")


@pytest.mark.parametrize(
    "other",
    [
        {"wanted": {"n": 3}},
        {"wanted": {"n": maos.Replace(2)}},
        {"wanted": {"n": 2, "m": 1}},
        {"wanted": {"n": maos.DELETE}},
        {"agent": "b"},
        {"source": "somebody else"},
        {"metadata": {"why": "not"}},
        {"type": "error_occurred"},
        {"critical": True},
        {"correlation": "c2"},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_a_key_that_comes_back_with_another_wish_is_refused(sqlite: Place, other: dict[str, Any]) -> None:
    async with sqlite.open() as m:
        await m.state.create("a", {"n": 1})
        await m.state.create("b", {"n": 1})
        wish: dict[str, Any] = {"agent": "a", "wanted": {"n": 2}, "key": "once", "correlation": "c"}
        await m.state.update(**wish)
        with pytest.raises(KeyReused, match="'once'"):
            await m.state.update(**{**wish, **other})
        assert await m.journal.head() == 3


async def test_a_key_and_a_version_go_together(m: Maos) -> None:
    """A repeat is answered although the version has moved on; a new wish for an old version is not."""
    await m.state.create("a", {"n": 1})
    first = await m.state.update("a", {"n": 2}, expected=1, key="once")
    await m.state.update("a", {"n": 3})
    again = await m.state.update("a", {"n": 2}, expected=1, key="once")
    assert (again.version, again.position) == (first.version, first.position)
    with pytest.raises(Conflict, match="agent/a is at version 3, expected 1"):
        await m.state.update("a", {"n": 4}, expected=1, key="another")
    with pytest.raises(Conflict, match="agent/a is at version 3, expected 9"):
        await m.state.update("a", {"n": 4}, expected=9, key="another")
    with pytest.raises(KeyReused):
        await m.state.update("a", {"n": 5}, expected=1, key="once")
    assert (await m.state.get("a")).data == {"n": 3}
    assert (await m.state.update("a", {"n": 4}, expected=3, key="another")).version == 4


async def test_a_repeat_is_answered_even_if_the_wish_would_not_fit_any_more(m: Maos) -> None:
    await m.state.create("a", {"map": {}, "log": []})
    first = await m.state.update("a", {"/map/x": 1}, key="path")
    second = await m.state.update("a", {"log": maos.Extend([1])}, key="extend")
    await m.state.update("a", {"map": maos.DELETE, "log": "closed"})
    assert (await m.state.update("a", {"/map/x": 1}, key="path")).version == first.version
    assert (await m.state.update("a", {"log": maos.Extend([1])}, key="extend")).version == second.version
    with pytest.raises(InvalidInput, match="/map is not there"):
        await m.state.update("a", {"/map/x": 1}, key="a new one")
    assert (await m.state.get("a")).version == 4


async def test_a_wish_that_changed_nothing_is_remembered_too(m: Maos) -> None:
    """Otherwise its repeat might change something."""
    await m.state.create("a", {"n": 1})
    first = await m.state.update("a", {"n": 1}, key="once")
    assert (first.version, first.changes) == (2, ())
    await m.state.update("a", {"n": 2})
    assert (await m.state.update("a", {"n": 1}, key="once")).version == 2
    assert (await m.state.get("a")).data == {"n": 2}


async def test_a_repeat_is_answered_after_a_restart_and_in_another_process(durable: Place) -> None:
    async with durable.open() as m:
        await m.state.create("a", {"log": []})
        await m.state.update("a", {"log": maos.Extend([1])}, key="once")
        async with durable.open() as other:
            assert (await other.state.update("a", {"log": maos.Extend([1])}, key="once")).version == 2
    async with durable.open() as m:
        assert (await m.state.update("a", {"log": maos.Extend([1])}, key="once")).version == 2
        assert (await m.state.get("a")).data == {"log": [1]}


@pytest.mark.parametrize("strategy", ["delete", "merge", "snapshot"])
async def test_a_repeat_is_answered_after_a_compaction(m: Maos, strategy: str) -> None:
    """Its event is gone; that it happened, and where, is not."""
    await m.state.create("a", {"log": []})
    await m.state.update("a", {"log": maos.Extend([1])})
    second = await m.state.update("a", {"log": maos.Extend([2])}, key="once")
    await m.state.update("a", {"log": maos.Extend([3])})
    await m.state.compact("a", strategy=strategy)
    again = await m.state.update("a", {"log": maos.Extend([2])}, key="once")
    assert (again.version, again.position) == (second.version, second.position)
    assert again.state.data["log"] == [1, 2, 3], "the state that the event in its place led to"
    assert (await m.state.get("a")).data == {"log": [1, 2, 3]}


async def test_a_wish_that_is_no_plain_data_is_refused_with_a_key_too(sqlite: Place) -> None:
    async with sqlite.open() as m:
        await m.state.create("a", {"n": 1})
        for value in (datetime.date(2026, 1, 1), {1: 2, "a": 3}, object(), float("nan"), (1, 2), "\ud800"):
            with pytest.raises(InvalidInput):
                await m.state.update("a", {"x": value}, key="once")
        with pytest.raises(InvalidInput):
            await m.state.update("a", {"n": 2}, metadata={"x": {1, 2}}, key="once")
        with pytest.raises(InvalidInput, match="key"):
            await m.state.update("a", {"n": 2}, key="")
        assert await m.journal.head() == 1
        assert (await m.state.update("a", {"n": 2}, key="once")).version == 2
