"""The moment between deciding and writing: others use it, and what was decided on old news is not written."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import apsw
import asyncpg
import pytest

from maos.errors import Conflict, KeyReused, LeaseLost
from maos.store.contract import Appended, Key, Lease
from maos.store.sql_store import SqlStore
from maos.store.sqlite import SqliteDatabase
from maos_testing.manual_clock import ManualClock
from maos_testing.store_contract.streams import check_journal, log_of, write
from tests.interleaving.processes import Place

Meanwhile = Callable[[], Awaitable[object]]


class Interrupted:
    """Something with a method that, called for the first time, lets others act before it does its work."""

    def __init__(
        self, wrapped: Any, method: str, act: Callable[[], object], arguments: tuple[object, ...] = ()
    ) -> None:
        self._wrapped, self._method, self._act, self._arguments = wrapped, method, act, arguments

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._wrapped, name)
        if name != self._method:
            return found

        def call(*arguments: Any) -> Any:
            if arguments[: len(self._arguments)] != self._arguments:
                return found(*arguments)
            act, self._act = self._act, lambda: None
            acted = act()
            if not isinstance(acted, Awaitable):
                return found(*arguments)

            async def later() -> Any:
                await acted
                return await found(*arguments)

            return later()

        return call


class Pair:
    """Two stores on one journal; what the second does can be put right before the first one's write."""

    def __init__(self, first: SqlStore, second: SqlStore) -> None:
        self.first, self.second = first, second

    def before_the_write(self, act: Meanwhile) -> None:
        database: Any = self.first.database
        if isinstance(database, SqliteDatabase):
            # The second store's appends never suspend when nobody else is about, so they can be run to their end here.
            begin = ("BEGIN IMMEDIATE",)
            database._writer = Interrupted(database._writer, "execute", lambda: finish(act()), begin)
        else:
            database._fast_append = Interrupted(database._fast_append, "fetchval", act)


def finish(work: Awaitable[object]) -> None:
    """Run something of a store that nobody else uses, from within the loop's thread."""
    task: Any = work.__await__()
    with contextlib.suppress(StopIteration):
        while True:
            next(task)


@pytest.fixture
async def pair(place: Place, clock: ManualClock) -> Pair:
    first, second = await place.open(clock), await place.open(clock)
    await first.append(write("a", b"1"), write("b", b"1"))
    await first.append(write("a", b"2"))
    return Pair(first, second)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def take_lease(pair: Pair, place: Place) -> Lease:
    lease = await pair.first.acquire("agent/1", owner="first", ttl_s=600)
    assert lease is not None
    await pair.first.append(write("a", b"mine"), under=lease)
    return lease


async def test_a_stream_that_moved_at_the_last_moment_is_a_conflict(pair: Pair) -> None:
    """I5: the expected version is compared in the transaction that writes."""

    async def act() -> None:
        await pair.second.append(write("a", b"theirs", expected=2))

    pair.before_the_write(act)
    with pytest.raises(Conflict) as refused:
        await pair.first.append(write("a", b"mine", expected=2))
    assert refused.value.actual == 3
    assert [event.body for event in await pair.first.read("a")] == [b"1", b"2", b"theirs"]
    await check_journal(pair.first)


async def test_an_append_goes_behind_what_was_written_at_the_last_moment(pair: Pair) -> None:
    """I4: its versions, positions and hashes are counted from there, also those of a stream that is new to both."""

    async def act() -> None:
        await pair.second.append(write("a", b"theirs"), write("new", b"theirs"))

    pair.before_the_write(act)
    reply = await pair.first.append(write("a", b"mine"), write("b", b"mine"))
    assert reply[:2] == (7, (4, 2))
    await pair.first.append(write("new", b"mine", expected=1))
    await check_journal(pair.first)


async def test_a_lease_lost_at_the_last_moment_stops_the_append(pair: Pair, place: Place) -> None:
    """I22, I25: the lease is checked in the transaction that writes, not before it."""
    lease = await take_lease(pair, place)
    before = await log_of(pair.first)
    pair.before_the_write(lambda: steal(place, lease))
    with pytest.raises(LeaseLost):
        await pair.first.append(write("a", b"late"), under=lease)
    assert await log_of(pair.first) == before


async def steal(place: Place, lease: Lease) -> None:
    """What a take-over does to the table of leases, done at once."""
    change = "UPDATE {}leases SET token = token + 1, owner = 'thief' WHERE name = 'agent/1'"
    if place.on_postgres:
        connection = await asyncpg.connect(place.url)
        await connection.execute(change.format("maos."))
        await connection.close()
    else:
        thief = apsw.Connection(place.url)
        thief.execute(change.format(""))
        thief.close()


async def test_a_key_used_at_the_last_moment_is_known(pair: Pair, place: Place) -> None:
    """I3: two processes repeat one append at the same time; it is written once."""
    if place.on_postgres:
        pytest.skip("PostgreSQL reads keys under the lock that writes; there is no moment before")
    for number, fingerprint in enumerate((b"f", b"g")):
        key = Key(f"k{number}", b"f")

        async def act(key: Key = key) -> None:
            await pair.second.append(write("a", b"theirs"), key=key)

        pair.before_the_write(act)
        outcome = await asyncio.gather(
            pair.first.append(write("a", b"mine"), key=key._replace(fingerprint=fingerprint)), return_exceptions=True
        )
        assert isinstance(outcome[0], Appended if fingerprint == b"f" else KeyReused)
        assert await pair.first.version("a") == 3 + number


async def test_a_take_over_waits_for_the_append_under_way(postgres_place: Place, clock: ManualClock) -> None:
    """I22: whoever is given a lease sees all that was written under the one before, and nothing is added later."""
    first, second = await postgres_place.open(clock), await postgres_place.open(clock)
    watcher = await asyncpg.connect(postgres_place.url)
    lease = await first.acquire("agent/1", owner="first", ttl_s=600)
    assert lease is not None
    database: Any = first.database
    taking: asyncio.Future[Lease | None] | None = None
    write_rows = database._write

    async def expire_and_take(*arguments: Any) -> None:
        """The lease was found valid; now, before the commit, it expires and another wants it."""
        nonlocal taking
        await watcher.execute(
            "CREATE OR REPLACE FUNCTION maos.now_us() RETURNS bigint LANGUAGE sql VOLATILE"
            f" AS $$ SELECT {lease.expires_us + 1}::bigint $$"
        )
        taking = asyncio.ensure_future(second.acquire("agent/1", owner="second", ttl_s=600))
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%leases%'"
        async with asyncio.timeout(60):
            while not taking.done() and not await watcher.fetchval(waiting):
                await asyncio.sleep(0.01)
        assert not taking.done()
        await write_rows(*arguments)

    database._write = expire_and_take
    reply = await first.append(write("a", b"in time"), under=lease, key=Key("k", b""))
    assert taking is not None
    taken = await taking
    assert taken is not None
    assert taken.token == lease.token + 1
    assert await second.version("a") == reply.version == 1
    with pytest.raises(LeaseLost):
        await first.append(write("a", b"late"), under=lease)
    await watcher.close()


async def test_an_append_between_two_looks_is_not_taken_for_a_loss(place: Place, clock: ManualClock) -> None:
    """I8: another process commits, and moves the mark, while this one compares the mark with the journal."""
    other = await place.open(clock)
    await other.append(write("a", b"1"))
    database = (await place.open(clock)).database
    await database.close()
    fetch_row: Any = database.fetch_row

    async def look_and_let_others_write(query: str, *arguments: object) -> Any:
        row = await fetch_row(query, *arguments)
        if query == "log_head":
            await other.append(write("a", b"2"))
        return row

    database.fetch_row = look_and_let_others_write  # type: ignore[method-assign]
    store = await SqlStore.open(database)
    assert [event.body for event in await log_of(store)][:2] == [b"1", b"2"]
