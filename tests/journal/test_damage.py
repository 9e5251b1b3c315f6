"""Damage: whatever is changed, swapped, removed or inserted is an error with a name, never a wrong answer (I7, I11)."""

import asyncio

import pytest

import maos
from maos.app import Maos
from maos.errors import Corrupt
from maos.journal import verify
from maos.store import chain
from maos.store.contract import GENESIS
from tests.journal.places import NOTE, Place, readable

TYPES = (NOTE, maos.EventType("remark", 2, upcasts={1: dict}))
EVENTS = 5


async def fill(m: Maos) -> None:
    """Two streams, taking turns, the other one last."""
    lease = await m.journal.acquire("run/1", ttl_s=600)
    for number in range(1, EVENTS + 1):
        await m.journal.append("run/1", maos.Event("note", {"n": number}), under=lease)
        await m.journal.append("run/2", maos.Event("note", {"other": number}))


async def versions(m: Maos, stream: str = "run/1") -> tuple[list[int], Corrupt | None]:
    """The versions that can be read, and what ended it."""
    found, error = await readable(m, stream)
    assert error is None or isinstance(error, Corrupt)
    return [record.version for record in found], error


ROW = "stream = (SELECT id FROM streams WHERE name = 'run/1') AND version = 3"
NEXT = ROW.replace("version = 3", "version = 4")

CHANGED = {
    "body": ("UPDATE events SET body = $1 WHERE " + ROW, b'{"n":4}'),
    "an empty body": ("UPDATE events SET body = $1 WHERE " + ROW, b""),
    "type": ("UPDATE events SET type = 'remark' WHERE " + ROW,),
    "format": ("UPDATE events SET format = 2 WHERE " + ROW,),
    "time": ("UPDATE events SET time_us = time_us + 1 WHERE " + ROW,),
    "token": ("UPDATE events SET token = token + 1 WHERE " + ROW,),
    "no token": ("UPDATE events SET token = 0 WHERE " + ROW,),
    "spans": ("UPDATE events SET spans = 2 WHERE " + ROW,),
    "spans beyond the start": ("UPDATE events SET spans = 9 WHERE " + ROW,),
    "no spans": ("UPDATE events SET spans = 0 WHERE " + ROW,),
    "hash": ("UPDATE events SET hash = $1 WHERE " + ROW, bytes(32)),
    "a short hash": ("UPDATE events SET hash = $1 WHERE " + ROW, b""),
}


@pytest.mark.parametrize("statement", CHANGED.values(), ids=CHANGED.keys())
async def test_a_changed_event_is_named(durable: Place, statement: tuple[str, bytes]) -> None:
    """I7: what comes before it is read all the same; what comes after it is intact and said to be."""
    async with durable.open(TYPES) as m:
        await fill(m)
        await durable.sql(*statement)
        found, error = await versions(m)
        assert found == [1, 2]
        assert str(error).startswith("run/1@3 does not match its hash")
        assert (error.stream, error.version) == ("run/1", 3)
        with pytest.raises(Corrupt, match=r"run/1@[34]"):  # backwards, a damaged hash shows in the event after it
            await m.journal.page_back("run/1", before=5)
        with pytest.raises(Corrupt, match="run/1@3"):
            await m.journal.event("run/1", 3)
        assert (await versions(m, "run/2")) == ([1, 2, 3, 4, 5], None)
        report = await verify.verify(m.journal)
        assert not report.ok
        assert {(each.stream, each.version) for each in report.damage if each.stream} == {("run/1", 3)}
        assert {each.recoverable for each in report.damage if each.stream} == {"versions 1-2, 4-5 verify"}


@pytest.mark.parametrize("spans", [2, 5, -1])
async def test_a_first_event_that_claims_more_than_there_is_does_not_hang_a_reader(sqlite: Place, spans: int) -> None:
    async with sqlite.open(TYPES) as m:
        await m.state.create("a", {"n": 1})
        await m.state.update("a", {"n": 2})
        await sqlite.sql("UPDATE events SET spans = $1 WHERE version = 1", spans)
        m.state.cache.clear()
        for work in (m.state.get("a"), m.state.at("a", version=1), m.state.history("a")):
            with pytest.raises(Corrupt, match="agent/a@1"):
                await work
        assert ("agent/a", 1) in {(each.stream, each.version) for each in (await m.verify()).damage}


async def test_a_damaged_hash_is_told_from_damaged_content(durable: Place) -> None:
    """The event after it vouches for what it says; after the last one nothing does."""
    async with durable.open(TYPES) as m:
        await fill(m)
        await durable.sql("UPDATE events SET hash = $1 WHERE " + ROW, bytes(32))
        [damage] = (await verify.verify(m.journal)).damage
        assert "the next event proves its content" in damage.what
        await durable.sql("UPDATE events SET hash = $1 WHERE " + ROW.replace("version = 3", "version = 5"), bytes(32))
        assert [(each.version, each.what) for each in (await verify.verify(m.journal)).damage][1:] == [
            (5, "does not match its hash")
        ]


async def test_every_byte_of_an_event_counts(sqlite: Place) -> None:
    """I7: one flipped bit in each byte of body and hash."""
    async with sqlite.open(TYPES) as m:
        await fill(m)
        [(body, hash_)] = await sqlite.sql("SELECT body, hash FROM events WHERE " + ROW)
        for column, value in (("body", body), ("hash", hash_)):
            for index in range(len(value)):
                damaged = bytearray(value)
                damaged[index] ^= 1 << index % 8
                await sqlite.sql(f"UPDATE events SET {column} = $1 WHERE {ROW}", bytes(damaged))
                found, error = await versions(m)
                assert (found, error and error.version) == ([1, 2], 3), f"byte {index} of {column}"
            await sqlite.sql(f"UPDATE events SET {column} = $1 WHERE {ROW}", value)
        assert (await m.verify()).ok


async def test_a_removed_event_leaves_a_hole_with_a_name(durable: Place) -> None:
    async with durable.open(TYPES) as m:
        await fill(m)
        await durable.sql("DELETE FROM events WHERE " + ROW)
        found, error = await versions(m)
        assert found == [1, 2]
        assert (error.stream, error.version) == ("run/1", 4)
        damage = (await verify.verify(m.journal)).damage
        assert [(each.stream, each.version) for each in damage] == [("", 0), ("run/1", 3)]
        assert damage[0].what == "10 versions were written, 9 are there"
        assert damage[1].what == "versions 3 to 3 are missing"
        assert damage[1].recoverable == "versions 1-2, 4-5 verify"


async def test_a_removed_beginning_is_noticed(durable: Place) -> None:
    async with durable.open(TYPES) as m:
        await fill(m)
        await durable.sql("DELETE FROM events WHERE " + ROW.replace("= 3", "< 3"))
        found, error = await versions(m)
        assert found == []
        assert (error.stream, error.version) == ("run/1", 3)
        damage = (await verify.verify(m.journal)).damage
        assert damage[1:] == [verify.Damage("run/1", 1, "versions 1 to 2 are missing", "versions 3-5 verify")]


async def test_a_removed_end_of_a_stream_is_counted(durable: Place) -> None:
    """No event follows it in its stream, but the journal knows how many it wrote."""
    async with durable.open(TYPES) as m:
        await fill(m)
        await durable.sql("DELETE FROM events WHERE " + ROW.replace("= 3", "= 5"))
        [damage] = (await verify.verify(m.journal)).damage
        assert damage.what == "10 versions were written, 9 are there"


async def test_two_events_cannot_change_places(durable: Place) -> None:
    async with durable.open(TYPES) as m:
        await fill(m)
        await durable.sql("UPDATE events SET version = 99 WHERE " + ROW)
        await durable.sql("UPDATE events SET version = 3 WHERE " + NEXT)
        await durable.sql("UPDATE events SET version = 4 WHERE " + ROW.replace("= 3", "= 99"))
        found, error = await versions(m)
        assert found == [1, 2]
        assert error is not None
        assert error.version == 3
        damaged = {(each.stream, each.version) for each in (await verify.verify(m.journal)).damage}
        assert damaged == {("run/1", 3), ("run/1", 4), ("run/1", 5)}


async def test_the_contents_of_two_events_cannot_change_places(durable: Place) -> None:
    async with durable.open(TYPES) as m:
        await fill(m)
        [(three,)] = await durable.sql("SELECT body FROM events WHERE " + ROW)
        [(four,)] = await durable.sql("SELECT body FROM events WHERE " + NEXT)
        await durable.sql("UPDATE events SET body = $1 WHERE " + ROW, four)
        await durable.sql("UPDATE events SET body = $1 WHERE " + NEXT, three)
        assert (await versions(m))[0] == [1, 2]
        damaged = {(each.stream, each.version) for each in (await verify.verify(m.journal)).damage}
        assert damaged == {("run/1", 3), ("run/1", 4)}


INSERT = (
    "INSERT INTO events (position, stream, version, spans, type, format, time_us, token, body, hash) "
    "SELECT 1000, stream, {version}, 1, type, format, time_us, token, body, hash FROM events WHERE " + ROW
)


async def test_an_inserted_event_is_noticed_at_the_end(durable: Place) -> None:
    async with durable.open(TYPES) as m:
        await fill(m)
        await durable.sql(INSERT.format(version=6))
        found, error = await versions(m)
        assert found == [1, 2, 3, 4, 5]
        assert error is not None
        assert error.version == 6
        damage = (await verify.verify(m.journal)).damage
        assert ("run/1", 6) in {(each.stream, each.version) for each in damage}
        assert ("", 0) in {(each.stream, each.version) for each in damage}, "and there are more than were written"


async def test_an_inserted_event_is_noticed_in_the_middle(durable: Place) -> None:
    async with durable.open(TYPES) as m:
        await fill(m)
        for version in (5, 4, 3):
            await durable.sql(f"UPDATE events SET version = {version + 1} WHERE " + ROW.replace("= 3", f"= {version}"))
        await durable.sql(INSERT.format(version=3).replace("version = 3", "version = 2"))
        found, error = await versions(m)
        assert found == [1, 2]
        assert error is not None
        assert error.version == 3


async def test_a_stream_under_another_name_does_not_verify(durable: Place) -> None:
    """The name is part of the hash: one agent's history cannot be passed off as another's."""
    async with durable.open(TYPES) as m:
        await fill(m)
        await durable.sql("UPDATE streams SET name = 'run/9' WHERE name = 'run/1'")
        found, error = await versions(m, "run/9")
        assert found == []
        assert (error.stream, error.version) == ("run/9", 1)
        damage = (await verify.verify(m.journal)).damage
        assert {each.stream for each in damage} == {"run/9"}
        assert {each.recoverable for each in damage} == {"nothing in this stream"}


async def chain_anew(place: Place) -> None:
    """Give all events of the stream hashes that fit, as a careful forger would."""
    id_ = "(SELECT id FROM streams WHERE name = 'run/1')"
    previous = GENESIS
    for version, type_, format_, time_us, token, body in await place.sql(
        f"SELECT version, type, format, time_us, token, body FROM events WHERE stream = {id_} ORDER BY version"
    ):
        previous = chain.link(previous, b"run/1", version, type_.encode(), format_, time_us, token, body)
        await place.sql(f"UPDATE events SET hash = $1 WHERE stream = {id_} AND version = {version}", previous)


ORDER = {
    "position": (
        "UPDATE events SET position = position - 100 WHERE " + ROW,
        3,
        "has a lower position than its predecessor",
    ),
    "time": ("UPDATE events SET time_us = time_us - 1000000 WHERE " + ROW, 3, "is older than its predecessor"),
    "token": ("UPDATE events SET token = token + 5 WHERE " + ROW, 4, "was written under token 1 after 6"),
}


@pytest.mark.parametrize(("statement", "version", "what"), ORDER.values(), ids=ORDER.keys())
async def test_what_must_grow_is_seen_to_grow(durable: Place, statement: str, version: int, what: str) -> None:
    """I22: positions, times and tokens never fall along a stream, whatever the hashes say."""
    async with durable.open(TYPES) as m:
        await fill(m)
        await durable.sql(statement)
        await chain_anew(durable)
        found = (await verify.verify(m.journal)).damage
        assert any(each.version == version and what in each.what for each in found), found
        assert not any("hash" in each.what for each in found)


async def test_an_undamaged_journal_is_said_to_be_so(m: Maos) -> None:
    await m.journal.append("run/1", [maos.Event("note", {"n": n}) for n in range(300)])
    await m.journal.append("run/2", maos.Event("note", {}))
    heard = []
    report = await verify.verify(m.journal, progress=lambda done, all_: heard.append((done, all_)))
    assert report.ok
    assert (report.head, report.streams, report.events, report.damage) == (301, 2, 301, [])
    assert heard == [(300, 301), (301, 301)]
    only = await verify.verify(m.journal, stream="run/2")
    assert (only.streams, only.events) == (1, 1)


async def test_a_journal_that_others_are_writing_to_verifies(durable: Place) -> None:
    """Neither their appends nor their compactions look like damage."""
    async with durable.open(TYPES) as m, durable.open(TYPES) as other:
        await m.state.create("a", {"n": 0})
        done = asyncio.Event()

        async def write() -> None:
            number = 0
            while not done.is_set():
                number += 1
                await other.state.update("a", {"n": number, "log": maos.Extend([number])})
                if number % 7 == 0:
                    await other.state.compact("a", strategy=("merge", "delete")[number % 2], keep_last=number % 3)

        writer = asyncio.create_task(write())
        try:
            for _ in range(8):
                assert (await m.verify()).damage == []
        finally:
            done.set()
            await writer


async def test_only_the_stream_that_was_asked_for_is_checked(sqlite: Place) -> None:
    async with sqlite.open() as m:
        for name in ("a", "ab", "abc"):
            await m.state.create(name, {})
            await m.state.update(name, {"n": 1})
        await sqlite.sql("UPDATE events SET body = $1 WHERE version = 2 AND stream = 3", b"{}")
        assert [each.stream for each in (await m.verify()).damage] == ["agent/abc"]
        report = await m.verify("ab")
        assert report.ok
        assert (report.streams, report.events) == (1, 2)
        assert not (await m.verify("abc")).ok


def test_versions_are_said_in_ranges() -> None:
    assert verify._ranges([]) == ""
    assert verify._ranges([1]) == "1"
    assert verify._ranges([1, 2, 3, 5, 7, 8]) == "1-3, 5, 7-8"
