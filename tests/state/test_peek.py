"""Lazy resume: the head of a state and the end of a long list, the same as the whole state has them."""

from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.errors import Corrupt, InvalidInput
from maos.state.records import Peek
from tests.journal.places import Place

pytestmark = pytest.mark.usefixtures("small_folds")


async def talk(m: Maos, count: int = 40) -> list[Any]:
    """An agent that has said something with every update; returns what it said."""
    await m.state.create("a", {"status": "idle", "messages": [], "memory": {"facts": list(range(9)), "k": 1}})
    for number in range(count):
        await m.state.update("a", {"messages": maos.Extend([{"n": number}]), "status": f"at {number}"})
    return [{"n": number} for number in range(count)]


async def both(m: Maos, path: str = "messages", last: int = 5) -> tuple[Peek, Peek]:
    """A peek without anything in memory, and one at the state in memory."""
    m.state.cache.clear()
    cold = await m.state.peek("a", path, last=last)
    await m.state.get("a")
    return cold, await m.state.peek("a", path, last=last)


@pytest.mark.parametrize("last", [0, 1, 5, 39, 40, 41, 1000])
async def test_the_last_entries_and_the_head_are_those_of_the_state(m: Maos, last: int) -> None:
    messages = await talk(m)
    for peek in await both(m, last=last):
        assert peek.entries == messages[max(0, 40 - last) :]
        assert (peek.start, peek.length) == (max(0, 40 - last), 40)
        assert (peek.agent, peek.version) == ("a", 41)
        assert peek.checksum == (await m.state.get("a")).checksum
        assert peek.head == {"status": "at 39", "memory": {"k": 1}}
        assert peek.elided == {"/messages": 40, "/memory/facts": 9}


async def test_only_the_end_is_read(m: Maos, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long the list is makes no difference."""
    messages = await talk(m, 200)
    m.state.cache.clear()
    events = 0
    read = m.journal.store.read

    async def counted(*arguments: Any, **more: Any) -> Any:
        nonlocal events
        found = await read(*arguments, **more)
        events += len(found)
        return found

    monkeypatch.setattr(m.journal.store, "read", counted)
    peek = await m.state.peek("a", "messages", last=10)
    assert peek.entries == messages[-10:]
    assert events < 40
    assert m.state.cache.statistics().entries == 0


async def test_only_the_segments_at_the_end_are_read(m: Maos, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = await talk(m, 43)
    found: list[int] = []
    scan = m.journal.store.scan

    async def counted(*arguments: Any, **more: Any) -> Any:
        page = await scan(*arguments, **more)
        found.append(len(page))
        return page

    monkeypatch.setattr(m.journal.store, "scan", counted)
    for last, segments in ((0, 0), (1, 1), (2, 1), (4, 2), (6, 3), (17, 7), (43, 16)):
        m.state.cache.clear()
        found.clear()
        assert (await m.state.peek("a", "messages", last=last)).entries == messages[len(messages) - last :]
        assert sum(found) == segments


async def test_a_path_may_be_given_with_or_without_a_slash(m: Maos) -> None:
    await talk(m)
    assert (await m.state.peek("a", "/messages", last=2)) == (await m.state.peek("a", "messages", last=2))
    for peek in await both(m, "/memory/facts", 2):
        assert (peek.entries, peek.start, peek.length) == ([7, 8], 7, 9)


async def test_a_short_list_is_in_the_head_as_well(m: Maos) -> None:
    await m.state.create("a", {"log": [1, 2], "n": 1})
    for peek in await both(m, "log", 1):
        assert (peek.entries, peek.start, peek.length, peek.elided) == ([2], 1, 2, {})
        assert peek.head == {"log": [1, 2], "n": 1}


async def test_a_list_that_has_just_become_long_is_left_out_of_the_head(m: Maos) -> None:
    """Whether it was long when the fold was saved makes no difference."""
    await talk(m, 10)
    await m.state.update("a", {"tasks": [1, 2]})
    await m.state.update("a", {"status": "so that a fold is saved"})
    await m.state.update("a", {"status": "and another"})
    await m.state.update("a", {"tasks": maos.Extend([3, 4, 5])})
    for peek in await both(m):
        assert "tasks" not in peek.head
        assert peek.elided == {"/messages": 10, "/memory/facts": 9, "/tasks": 5}


EDITS: dict[str, dict[str, Any]] = {
    "an item is changed": {"/messages/38/n": "changed"},
    "an early item is changed": {"/messages/2/n": "changed"},
    "an item goes": {"/messages/20": maos.DELETE},
    "the last item goes": {"/messages/39": maos.DELETE},
    "it is replaced": {"messages": [{"n": "new"}] * 6},
    "it is shortened": {"messages": [{"n": 0}, {"n": 1}]},
    "it goes and comes back": {"messages": maos.DELETE},
    "something grows inside": {"/messages/5/parts": [1, 2, 3]},
    "another list changes": {"/memory/facts/3": "changed"},
    "what it is in changes": {"memory": maos.Replace({"facts": [0] * 8})},
}


@pytest.mark.parametrize("wanted", EDITS.values(), ids=EDITS.keys())
@pytest.mark.parametrize("after", [0, 1, 4])
async def test_whatever_happens_to_a_list_a_peek_agrees_with_the_state(
    sqlite: Place, wanted: dict[str, Any], after: int
) -> None:
    """Before and after the next fold is saved."""
    async with sqlite.open() as m:
        await talk(m)
        await m.state.update("a", wanted)
        if "messages" not in (await m.state.get("a")).data:
            await m.state.update("a", {"messages": [{"n": "again"}] * 5})
        for number in range(after):
            await m.state.update("a", {"messages": maos.Extend([{"n": f"after {number}"}])})
        whole = (await m.state.get("a")).to_dict()
        for path, items in (("messages", whole["messages"]), ("memory/facts", whole["memory"]["facts"])):
            for last in (2, 7, 100):
                for peek in await both(m, path, last):
                    assert peek.entries == items[-last:]
                    assert (peek.start, peek.length) == (max(0, len(items) - last), len(items))
                    assert peek.head["status"] == whole["status"]
                    assert peek.checksum == (await m.state.get("a")).checksum


@pytest.mark.parametrize("strategy", ["snapshot", "merge", "delete"])
@pytest.mark.parametrize("keep_last", [0, 3, 30])
async def test_a_peek_agrees_after_a_compaction(sqlite: Place, strategy: str, keep_last: int) -> None:
    async with sqlite.open() as m:
        messages = await talk(m)
        await m.state.compact("a", strategy=strategy, keep_last=keep_last)
        for more in range(3):
            for last in (1, 2, 10, 45):
                for peek in await both(m, last=last):
                    assert peek.entries == messages[-last:]
                    assert peek.length == len(messages)
            messages.append({"n": f"more {more}"})
            await m.state.update("a", {"messages": maos.Extend([messages[-1]])})


async def test_a_peek_agrees_after_a_rollback(m: Maos) -> None:
    messages = await talk(m)
    await m.state.rollback("a", 31)
    await m.state.update("a", {"messages": maos.Extend([{"n": "after"}])})
    for peek in await both(m, last=3):
        assert peek.entries == [*messages[28:30], {"n": "after"}]
        assert peek.length == 31


async def test_what_another_process_wrote_is_peeked_at(durable: Place) -> None:
    async with durable.open() as m, durable.open() as other:
        await talk(m, 10)
        for n in range(12):
            assert (await other.state.peek("a", "messages", last=1)).entries == [{"n": 9 if n == 0 else f"m{n - 1}"}]
            await m.state.update("a", {"messages": maos.Extend([{"n": f"m{n}"}])})
            if n == 5:
                await other.state.get("a")


@pytest.mark.parametrize("path", ["nothing", "status", "memory", "/messages/0", "/messages/x", "", "/", "messages/"])
async def test_what_is_no_list_cannot_be_peeked_at(sqlite: Place, path: str) -> None:
    async with sqlite.open() as m:
        await talk(m, 6)
        for _ in range(2):
            with pytest.raises(InvalidInput, match="has no list at"):
                await m.state.peek("a", path)
            m.state.cache.clear()
        with pytest.raises(InvalidInput, match="the last -1"):
            await m.state.peek("a", "messages", last=-1)


async def test_damage_in_the_end_of_a_list_is_an_error(sqlite: Place) -> None:
    """I7: also when only the end is read."""
    async with sqlite.open() as m:
        await talk(m, 43)
        for version in (44, 42):
            [(body,)] = await sqlite.sql("SELECT body FROM events WHERE version = $1", version)
            await sqlite.sql("UPDATE events SET body = $1 WHERE version = $2", body.replace(b"at", b"AT"), version)
            m.state.cache.clear()
            with pytest.raises(Corrupt, match=f"agent/a@{version}"):
                await m.state.peek("a", "messages", last=10)
            await sqlite.sql("UPDATE events SET body = $1 WHERE version = $2", body, version)
