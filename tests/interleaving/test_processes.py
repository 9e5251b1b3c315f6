"""Several processes write to one journal at the same time."""

import asyncio
import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from maos.clock import SystemClock
from maos.store import sql_store
from maos.store.contract import Recorded
from maos.store.sql_store import SqlStore
from maos.store.sqlite import SqliteDatabase
from maos_testing.postgres import PostgresServer
from maos_testing.store_contract.streams import check_journal, log_of, write
from tests.interleaving.conftest import StartPuppet
from tests.interleaving.processes import Place

WAKE_MS_MAX = 250.0
"""The median append and wake-up take some milliseconds; without a bell it would be half a second and more."""


def check_acks(log: list[Recorded], said: list[dict[str, Any]]) -> int:
    """Every acknowledged append is where its acknowledgement says, once (I1, I4); returns how many there were."""
    bodies = [event.body for event in log]
    assert len(set(bodies)) == len(bodies)
    acks = [answer["ack"] for answer in said if "ack" in answer]
    for stream, version, position, body in acks:
        event = log[position - 1]
        assert (event.stream, event.version, event.body) == (stream, version, body.encode())
    return len(acks)


@pytest.mark.parametrize("streams", [["a"], ["a", "b", "c", "d", "e"]], ids=["one stream", "several streams"])
async def test_what_two_processes_append_is_all_there_once(
    place: Place, start_puppet: StartPuppet, streams: list[str]
) -> None:
    """I1, I4: no gap, no double, and every acknowledgement is true."""
    puppets = [await start_puppet(place), await start_puppet(place)]
    for puppet in puppets:
        await puppet.tell("append_many", me=puppet.name, streams=streams, count=120, width=6)
    said = [answer for puppet in puppets for answer in await puppet.finish()]

    store = await place.open()
    log = await log_of(store)
    assert check_acks(log, said) == len(log) == 240
    await check_journal(store)


async def test_processes_that_write_one_event_at_a_time_do_not_lose_any(
    place: Place, start_puppet: StartPuppet
) -> None:
    """I1, I4: each append finds that others wrote since the last one; the short way to the disk is taken in turns."""
    puppets = [await start_puppet(place) for _ in range(3)]
    for puppet in puppets:
        await puppet.tell("append_many", me=puppet.name, streams=["a", "b"], count=40, width=1)
    said = [answer for puppet in puppets for answer in await puppet.finish()]

    store = await place.open()
    log = await log_of(store)
    assert check_acks(log, said) == len(log) == 120
    await check_journal(store)


async def test_each_version_is_won_by_exactly_one_process(place: Place, start_puppet: StartPuppet) -> None:
    """I5: of all who want the next version of a stream one gets it, and nobody else believes so."""
    puppets = [await start_puppet(place), await start_puppet(place)]
    for puppet in puppets:
        await puppet.tell("race", me=puppet.name, stream="a", until=100)
    won: dict[int, str] = {}
    for puppet in puppets:
        for answer in await puppet.finish():
            if "won" in answer:
                assert answer["won"] not in won
                won[answer["won"]] = puppet.name

    store = await place.open()
    events = await store.read("a", limit=1000)
    assert {event.version: event.body.decode() for event in events} == won
    assert len(events) == 100
    await check_journal(store)


async def test_a_follower_never_sees_a_position_late(place: Place, start_puppet: StartPuppet) -> None:
    """I6: while several write, a reader that only looks forward sees every position, in order."""
    follower = await start_puppet(place)
    writers = [await start_puppet(place) for _ in range(2)]
    store = await place.open()
    await follower.tell("follow", until=310)
    for puppet in writers:
        await puppet.tell("append_many", me=puppet.name, streams=["a", "b", puppet.name], count=100, width=4)

    seen_here: list[int] = []

    async def follow_here() -> None:
        while len(seen_here) < 310:
            after = seen_here[-1] if seen_here else 0
            await store.wait(after=after, timeout_s=60)
            seen_here.extend(event.position for event in await store.read_log(after=after, limit=5))

    async def write_here() -> None:
        for number in range(110):
            await store.append(write("a", b"%d" % number))

    await asyncio.gather(follow_here(), write_here(), *(puppet.finish() for puppet in writers))
    (answer,) = await follower.finish()
    assert answer["seen"] == seen_here == list(range(1, 311))


async def test_an_append_wakes_another_process(place: Place, start_puppet: StartPuppet) -> None:
    """No polling: the other process looks only when it is told, and is told at once."""
    puppet = await start_puppet(place)
    store = await place.open()
    rounds = 30
    await puppet.tell("hear", rounds=rounds)
    latencies_ms = []
    for round_ in range(1, rounds + 1):
        assert await puppet.hear() == {"waiting": round_ - 1}
        await asyncio.sleep(0.02)  # so that it really waits; a wake-up that comes earlier would prove nothing
        asked_ns = time.monotonic_ns()
        reply = await store.append(write("a", b"%d" % round_))
        answer = await puppet.hear()
        assert answer["woken"] == reply.position == round_
        latencies_ms.append((answer["at_ns"] - asked_ns) / 1e6)
    await puppet.finish()
    median_ms = statistics.median(latencies_ms)
    print(f"median of {rounds} wake-ups: {median_ms:.2f} ms")  # shown by -s
    assert median_ms < WAKE_MS_MAX


async def test_many_processes_hear_of_one_append_and_the_dead_hold_nobody_up(
    place: Place, start_puppet: StartPuppet
) -> None:
    """One of those who listened was killed; the others are woken all the same."""
    listeners = [await start_puppet(place) for _ in range(3)]
    store = await place.open()
    for puppet in listeners:
        await puppet.tell("hear", rounds=3)
        await puppet.hear()
    await asyncio.sleep(0.05)
    await store.append(write("a", b"1"))
    for puppet in listeners:
        assert (await puppet.hear())["woken"] == 1
        await puppet.hear()
    await listeners[0].kill()
    for position in (2, 3):
        await asyncio.sleep(0.05)
        await store.append(write("a", b"%d" % position))
        for puppet in listeners[1:]:
            assert (await puppet.hear())["woken"] == position
            await puppet.hear()


async def test_processes_that_open_a_new_database_at_the_same_moment(
    place: Place, start_puppet: StartPuppet, tmp_path: Path
) -> None:
    """One creates it, the other finds it made; both can write."""
    puppets = [await start_puppet(), await start_puppet()]
    for round_ in range(8):
        if place.on_postgres:
            new, schema = place, f"schema_{round_}"
        else:
            new, schema = Place(str(tmp_path / f"{round_}.db"), place.mark), "unused"
        mark = str(tmp_path / f"mark {round_}")
        for puppet in puppets:
            await puppet.tell("open", place=new.url, mark=mark, schema=schema)
        for puppet in puppets:
            await puppet.finish()
        for puppet in puppets:
            await puppet.tell("append_many", me=puppet.name, streams=["a"], count=3, width=1)
        said = [answer["ack"] for puppet in puppets for answer in await puppet.finish()]
        assert sorted(version for _stream, version, _position, _body in said) == [1, 2, 3, 4, 5, 6]


async def test_opening_while_another_process_writes(place: Place, start_puppet: StartPuppet) -> None:
    """I8: the comparison with the mark that others move on never takes their progress for a loss."""
    puppet = await start_puppet(place)
    await puppet.tell("append_many", me="p", streams=["a"], count=300, width=1)
    working = asyncio.ensure_future(puppet.finish())
    opened = 0
    while not working.done():
        store = await place.open()
        await store.append(write("b", b"%d" % opened))
        await store.close()
        opened += 1
        await asyncio.sleep(0)
    said = await working
    store = await place.open()
    assert check_acks(await log_of(store), said) == 300
    assert await store.version("b") == opened > 1
    await check_journal(store)


async def test_a_copy_made_while_others_write_holds_what_it_says(
    sqlite_place: Place, tmp_path: Path, start_puppet: StartPuppet
) -> None:
    """I34: the journal up to the position returned, complete, and not one event more."""
    store = await sqlite_place.open()
    await store.append(write("a", b"0"))
    puppet = await start_puppet(sqlite_place)
    await puppet.tell("append_many", me="p", streams=["a", "b"], count=300, width=2)
    working = asyncio.ensure_future(puppet.finish())
    copies = []
    while not working.done():
        target = tmp_path / f"copy {len(copies)}.db"
        copies.append((target, await store.copy_to(target)))
    await working
    log = await log_of(store)
    for target, position in copies:
        copy = await SqlStore.open(SqliteDatabase(target, clock=SystemClock()))
        assert await log_of(copy) == log[:position]
        await copy.close()


async def test_wake_ups_come_again_after_the_server_was_away(
    postgres: PostgresServer, postgres_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many attempts to hear of it again were in vain; waiters do not fall back to looking now and then."""
    monkeypatch.setattr(sql_store, "POLL_S", 600.0)
    monkeypatch.setattr("maos.store.postgres.LISTEN_AGAIN_S", 0.02)
    store, other = await postgres_place.open(), await postgres_place.open()
    waiting = asyncio.ensure_future(store.wait(after=0, timeout_s=600))
    await asyncio.sleep(0.05)
    database: Any = store.database
    first = database._listener
    postgres.stop()
    await asyncio.sleep(0.2)  # some attempts fail
    postgres.start()
    async with asyncio.timeout(60):
        while database._listener is first or database._listener.is_closed():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        await other.append(write("a", b"1"))
        assert await waiting == 1
