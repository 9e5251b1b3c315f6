"""Compression dictionaries: trained on the journal's own events, stored before they are used, never guessed."""

import asyncio
from typing import Any

import pytest
import zstandard

import maos
from maos.app import Maos
from maos.errors import Conflict, Corrupt, DiskFull
from maos.journal import dictionary
from maos.journal.dictionary import MAGIC, STREAM, Dictionaries
from maos.store.contract import Appended, RawEvent, Write
from tests.journal.places import Place, readable


@pytest.fixture(autouse=True)
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train after a few events instead of after many."""
    monkeypatch.setattr(dictionary, "STAGES", ((16, 4 << 10), (40, 8 << 10)))


def note(number: int) -> maos.Event:
    """One of many similar events, long enough to be compressed."""
    call = {"id": f"call_{number:08d}", "name": "read_file", "arguments": {"path": f"src/module_{number % 7}.py"}}
    result = {"status": "ok", "lines": number, "text": f"def function_{number}(argument): return argument + {number}"}
    about = {"role": "assistant", "model": "large", "stop_reason": "tool_use", "usage": {"input": number, "output": 3}}
    return maos.Event("note", {"call": call, "result": result, "about": about, "instructions": "be brief, " * 12})


async def write_notes(m: Maos, numbers: range, stream: str = "run/1") -> None:
    for number in numbers:
        await m.journal.append(stream, note(number))


async def trained(m: Maos) -> None:
    """Wait for a training that is under way."""
    trainer = m.journal._trainer
    if trainer is not None:
        await trainer


async def read_notes(m: Maos, stream: str = "run/1") -> list[Any]:
    return [record.data async for record in m.journal.read(stream)]


def needed(body: bytes) -> int:
    """The number of the dictionary a stored body needs; 0 when it needs none."""
    return zstandard.get_frame_parameters(body).dict_id if body.startswith(b"\x28\xb5\x2f\xfd") else 0


async def stored(m: Maos, stream: str = "run/1") -> list[bytes]:
    return [event.body for event in await m.journal.store.read(stream, limit=1000)]


async def test_a_dictionary_is_an_event_and_later_bodies_use_it(durable: Place) -> None:
    async with durable.open() as m:
        await write_notes(m, range(16))
        await trained(m)
        [event] = await m.journal.store.read(STREAM)
        assert event.type == "dictionary_trained"
        assert event.body.startswith(MAGIC)
        await write_notes(m, range(16, 24))
        bodies = await stored(m)
        number = zstandard.ZstdCompressionDict(event.body).dict_id()
        assert {needed(body) for body in bodies[:16]} == {0}
        assert {needed(body) for body in bodies[16:]} == {number}
        assert sum(map(len, bodies[16:])) / 8 < 0.6 * sum(map(len, bodies[:16])) / 16, "and they are much smaller"
        assert await read_notes(m) == [note(n).data for n in range(24)]
        [record] = [record async for record in m.journal.read(STREAM)]
        assert record.data == {"bytes": len(event.body)}
    async with durable.open() as other:  # another process, that has seen none of it
        assert await read_notes(other) == [note(n).data for n in range(24)]
        assert (await other.verify()).ok


async def test_a_long_journal_gets_a_second_dictionary_and_no_third(sqlite: Place) -> None:
    async with sqlite.open() as m:
        for start in range(0, 140, 10):
            await write_notes(m, range(start, start + 10))
            await trained(m)
        assert await m.journal.version(STREAM) == 2
        numbers = list(dict.fromkeys(needed(body) for body in await stored(m)))
        assert len(numbers) == 3
        assert numbers[0] == 0
    async with sqlite.open() as m:
        await write_notes(m, range(140, 145))
        assert needed((await stored(m))[-1]) == numbers[2], "the newest is used"
        assert await read_notes(m) == [note(n).data for n in range(145)]
        assert (await m.verify()).ok


async def test_a_journal_that_is_open_learns_of_the_dictionaries_of_others(durable: Place) -> None:
    async with durable.open() as one, durable.open() as other:
        assert await read_notes(other) == []
        await write_notes(one, range(16))
        await trained(one)
        await write_notes(one, range(16, 20))
        assert await read_notes(other) == [note(n).data for n in range(20)]
        await write_notes(other, range(20, 22))
        assert needed((await stored(other))[-1]) != 0
        assert await read_notes(one) == [note(n).data for n in range(22)]


async def test_of_two_who_train_at_once_one_wins_and_both_go_on(durable: Place) -> None:
    async with durable.open() as one, durable.open() as other:
        await asyncio.gather(write_notes(one, range(16), "run/1"), write_notes(other, range(100, 116), "run/2"))
        await asyncio.gather(trained(one), trained(other))
        assert await one.journal.version(STREAM) == 1
        await write_notes(one, range(16, 18), "run/1")
        await write_notes(other, range(116, 118), "run/2")
        assert needed((await stored(one, "run/1"))[-1]) == needed((await stored(one, "run/2"))[-1]) != 0
        for m in (one, other):
            assert await read_notes(m, "run/1") == [note(n).data for n in range(18)]
            assert await read_notes(m, "run/2") == [note(n).data for n in range(100, 118)]
            assert m.journal.notes == []


@pytest.mark.parametrize("error", [DiskFull("here"), Conflict(STREAM, expected=0, actual=1)])
async def test_a_dictionary_that_could_not_be_stored_is_not_used(
    sqlite: Place, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise every body written with it would be lost (I11)."""
    async with sqlite.open() as m:
        append = m.journal.store.append

        async def refuse(*writes: Write, **more: Any) -> Appended:
            if writes[0].stream == STREAM:
                raise error
            return await append(*writes, **more)

        monkeypatch.setattr(m.journal.store, "append", refuse)
        await write_notes(m, range(16))
        await trained(m)
        await write_notes(m, range(16, 20))
        assert {needed(body) for body in await stored(m)} == {0}
        if isinstance(error, DiskFull):
            assert "no compression dictionary was trained" in m.journal.notes[0]
    async with sqlite.open() as m:
        assert await read_notes(m) == [note(n).data for n in range(20)]


async def test_a_dictionary_is_stored_before_the_first_body_that_needs_it(sqlite: Place) -> None:
    """In the journal's own order, so that no copy or cut can hold one without the other."""
    async with sqlite.open() as m:
        await asyncio.gather(*(write_notes(m, range(start, start + 8), f"run/{start}") for start in range(0, 80, 8)))
        await trained(m)
        await write_notes(m, range(100, 104))
        known = {0}
        for event in await m.journal.store.read_log(limit=1000):
            if event.stream == STREAM:
                known.add(zstandard.ZstdCompressionDict(event.body).dict_id())
            else:
                assert needed(event.body) in known
        assert len(known) > 1


async def test_a_missing_dictionary_is_named_and_nothing_is_made_up(durable: Place) -> None:
    """I11."""
    async with durable.open() as m:
        await write_notes(m, range(16))
        await trained(m)
        await write_notes(m, range(16, 18))
        number = needed((await stored(m))[-1])
    await durable.sql("DELETE FROM events WHERE type = 'dictionary_trained'")
    async with durable.open() as m:
        found, error = await readable(m, "run/1")
        assert [record.data for record in found] == [note(n).data for n in range(16)]
        assert isinstance(error, Corrupt)
        assert (error.stream, error.version) == ("run/1", 17)
        assert error.what == f"run/1@17 needs compression dictionary {number}, which is not in {STREAM}"
        report = await m.verify()
        assert {(each.stream, each.version) for each in report.damage} >= {("", 0), ("run/1", 17), ("run/1", 18)}


async def test_a_damaged_dictionary_is_never_used(durable: Place) -> None:
    """I7: it is an event, so the hash chain covers it."""
    async with durable.open() as m:
        await write_notes(m, range(16))
        await trained(m)
        await write_notes(m, range(16, 18))
        [event] = await m.journal.store.read(STREAM)
    body = bytearray(event.body)
    body[len(body) // 2] ^= 1
    await durable.sql("UPDATE events SET body = $1 WHERE type = 'dictionary_trained'", bytes(body))
    async with durable.open() as m:
        with pytest.raises(Corrupt, match=f"{STREAM}@1 does not match its hash"):
            await read_notes(m)
        with pytest.raises(Corrupt, match=f"{STREAM}@1"):
            await write_notes(m, range(1))
        damage = (await m.verify()).damage
        assert (STREAM, 1) in {(each.stream, each.version) for each in damage}


@pytest.mark.parametrize("content", [b"", b"no dictionary", MAGIC, MAGIC + b"\1\0\0\0" + bytes(200)])
async def test_what_is_no_dictionary_is_refused(sqlite: Place, content: bytes) -> None:
    async with sqlite.open() as m:
        await m.journal.store.append(Write(STREAM, [RawEvent("dictionary_trained", 1, content)]))
        with pytest.raises(Corrupt, match=f"dictionary in {STREAM} is damaged"):
            await m.journal.append("run/1", note(1))


async def test_a_training_that_fails_costs_space_and_nothing_else(
    sqlite: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: Any, **_more: Any) -> Any:
        raise zstandard.ZstdError("cannot train dict: Src size is incorrect")

    monkeypatch.setattr(zstandard, "train_dictionary", fail)
    async with sqlite.open() as m:
        await write_notes(m, range(20))
        await trained(m)
        assert await m.journal.version(STREAM) == 0
        assert m.journal.notes == ["no compression dictionary was trained: cannot train dict: Src size is incorrect"]
        assert (await m.verify()).notes == m.journal.notes
        assert await read_notes(m) == [note(n).data for n in range(20)]


def test_a_body_that_does_not_get_smaller_stays_as_it_is() -> None:
    ours = Dictionaries()
    noise = bytes(range(256)) * 2
    assert ours.compress(noise[:300]) == noise[:300]
    assert ours.compress(b"a" * 300) != b"a" * 300


def test_very_long_bodies_are_no_samples() -> None:
    """They would fill the memory, and say little about the others."""
    ours = Dictionaries()
    for _ in range(20):
        ours.compress(b"a" * (1 << 16))
    assert not ours.due()


async def test_closing_waits_for_a_training(sqlite: Place) -> None:
    async with sqlite.open() as m:
        await write_notes(m, range(16))
    async with sqlite.open() as m:
        assert await m.journal.version(STREAM) == 1
