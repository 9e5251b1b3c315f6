"""Many callers, one transaction: nobody waits for ever, and nobody pays for another's mistake."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import apsw
import asyncpg
import pytest

from maos.clock import SystemClock
from maos.errors import Conflict, StoreUnavailable
from maos.store import ledger, writer
from maos.store.contract import Appended, Document, Key, Store
from maos.store.postgres import PostgresDatabase
from maos.store.sql_store import SqlStore
from maos.store.sqlite import SqliteDatabase
from maos_testing.store_contract.streams import check_journal, log_of, write

Opener = Callable[[], Awaitable[SqlStore]]
Stall = Callable[[], contextlib.AbstractAsyncContextManager[None]]


class Bench:
    """One database, as many stores on it as a test likes, and a way to make all writers wait."""

    def __init__(self, open_store: Opener, stalled: Stall) -> None:
        self._open_store = open_store
        self.stalled = stalled
        self._opened: list[SqlStore] = []

    async def open(self) -> SqlStore:
        store = await self._open_store()
        self._opened.append(store)
        return store

    async def close(self) -> None:
        for store in self._opened:
            await store.close()


@pytest.fixture(params=["sqlite", "postgres"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    if request.param == "sqlite":
        bench = sqlite_bench(tmp_path)
    else:
        bench = postgres_bench(request.getfixturevalue("postgres_url"), tmp_path)
    yield bench
    await bench.close()


def sqlite_bench(folder: Path) -> Bench:
    async def open_store() -> SqlStore:
        return await SqlStore.open(SqliteDatabase(folder / "maos.db", clock=SystemClock()))

    @contextlib.asynccontextmanager
    async def stalled() -> AsyncIterator[None]:
        connection = apsw.Connection(str(folder / "maos.db"))
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")
        connection.close()

    return Bench(open_store, stalled)


def postgres_bench(url: str, folder: Path) -> Bench:
    async def open_store() -> SqlStore:
        return await SqlStore.open(PostgresDatabase(url, clock=SystemClock(), mark_path=folder / "head"))

    @contextlib.asynccontextmanager
    async def stalled() -> AsyncIterator[None]:
        lock = PostgresDatabase(url, clock=SystemClock(), mark_path=folder / "head")._lock
        connection = await asyncpg.connect(url)
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", lock)
            yield
        await connection.close()

    return Bench(open_store, stalled)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.002)


def start(store: Store, *bodies: bytes) -> list[asyncio.Future[Appended]]:
    return [asyncio.ensure_future(store.append(write("a", body))) for body in bodies]


async def test_callers_share_transactions(bench: Bench) -> None:
    """A hundred callers at once cost a few commits, not a hundred."""
    store = await bench.open()
    commits = 0
    commit = store.database.commit

    async def counted(*arguments: object) -> None:
        nonlocal commits
        commits += 1
        await commit(*arguments)  # type: ignore[arg-type]

    store.database.commit = counted  # type: ignore[method-assign]
    await asyncio.gather(*start(store, *(b"%d" % number for number in range(100))))
    assert 1 <= commits <= 5
    await check_journal(store)


async def test_a_full_queue_makes_callers_wait(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded by the queue, not by the number of callers; none of them is lost."""
    monkeypatch.setattr(writer, "QUEUE_REQUESTS_MAX", 4)
    store = await bench.open()
    async with bench.stalled():
        calls = start(store, *(b"%d" % number for number in range(20)))
        await until(lambda: len(store._writer._space) == 16)
        assert store._writer._pending == 4
    await asyncio.wait_for(asyncio.gather(*calls), timeout=60)
    assert sorted(event.body for event in await log_of(store)) == sorted(b"%d" % number for number in range(20))
    assert store._writer._pending == store._writer._pending_bytes == 0


async def test_a_queue_of_large_bodies_is_full_earlier(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes count, those of events and those of documents."""
    monkeypatch.setattr(writer, "QUEUE_BYTES_MAX", 1000)
    store = await bench.open()
    async with bench.stalled():
        calls = start(store, bytes(900))
        calls.append(asyncio.ensure_future(store.append(documents=[Document("view", "k", 1, bytes(900))])))
        await until(lambda: store._writer._pending == 2)
        calls += start(store, b"small", b"small")
        await until(lambda: len(store._writer._space) == 2)
        assert store._writer._pending_bytes == 1800
    await asyncio.wait_for(asyncio.gather(*calls), timeout=60)
    assert await store.head() == 3
    assert store._writer._pending_bytes == 0


async def test_those_who_give_up_in_a_full_queue_strand_nobody(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is next in line is let in instead."""
    monkeypatch.setattr(writer, "QUEUE_REQUESTS_MAX", 1)
    store = await bench.open()
    async with bench.stalled():
        calls = start(store, *(b"%d" % number for number in range(12)))
        await until(lambda: len(store._writer._space) == 11)
        for call in calls[1:6]:
            call.cancel()
    # Some are cancelled at the very moment they are let in.
    await until(lambda: any(call.done() and not call.cancelled() for call in calls))
    for call in calls[6:9]:
        call.cancel()
    outcomes = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), timeout=60)
    stored = {event.body for event in await log_of(store)}
    for number, outcome in enumerate(outcomes):
        if isinstance(outcome, Appended):
            assert b"%d" % number in stored
    assert all(isinstance(outcome, Appended) for outcome in outcomes[9:])


async def test_one_cancelled_while_it_is_let_in_passes_its_place_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one behind it would otherwise wait for an answer that nobody is going to give."""
    monkeypatch.setattr(writer, "QUEUE_REQUESTS_MAX", 1)
    store = await bench.open()
    async with bench.stalled():
        calls = start(store, b"0")
        await until(lambda: store._writer._pending == 1)
        calls += start(store, b"1")
        await until(lambda: len(store._writer._space) == 1)
        calls += start(store, b"2")
        await until(lambda: len(store._writer._space) == 2)
        let_in = store._writer._admit

        def let_in_and_cancel(count: int) -> None:
            let_in(count)
            calls[1].cancel()

        monkeypatch.setattr(store._writer, "_admit", let_in_and_cancel)
    await asyncio.wait_for(asyncio.gather(calls[0], calls[2]), timeout=60)
    assert [event.body for event in await log_of(store)] == [b"0", b"2"]
    assert calls[1].cancelled()


async def test_closing_a_full_store_tells_everybody(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """I3: what was accepted is written, what was not says so, and nobody is left waiting."""
    monkeypatch.setattr(writer, "QUEUE_REQUESTS_MAX", 4)
    store = await bench.open()
    async with bench.stalled():
        calls = start(store, *(b"%d" % number for number in range(12)))
        await until(lambda: len(store._writer._space) == 8)
        closing = asyncio.ensure_future(store.close())
        await asyncio.sleep(0.01)
    await asyncio.wait_for(closing, timeout=60)
    outcomes = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), timeout=60)
    refused = [outcome for outcome in outcomes if isinstance(outcome, StoreUnavailable)]
    assert [outcome.written for outcome in refused] == [False] * 8
    assert sum(isinstance(outcome, Appended) for outcome in outcomes) == 4
    stored = {event.body for event in await log_of(await bench.open())}
    assert stored == {b"%d" % n for n, outcome in enumerate(outcomes) if isinstance(outcome, Appended)}


async def test_a_closed_store_writes_nothing_more(bench: Bench) -> None:
    """I3: a caller that has only just come in is served before the store is closed, or refused."""
    witness = await bench.open()
    for steps in range(4):
        store = await bench.open()
        before = await witness.head()
        calls = start(store, b"x")
        for _ in range(steps):
            await asyncio.sleep(0)
        await store.close()
        after = await witness.head()
        (outcome,) = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), timeout=60)
        assert after - before == isinstance(outcome, Appended)
        assert await witness.head() == after


async def test_a_cancelled_lease_request_stops_nobody(bench: Bench) -> None:
    """Those behind it in the queue are served."""
    store = await bench.open()
    async with bench.stalled():
        calls = start(store, b"0", b"1")
        await asyncio.sleep(0.01)
        lease = asyncio.ensure_future(store.acquire("name", owner="me", ttl_s=30))
        await asyncio.sleep(0.01)
        calls += start(store, b"2", b"3")
        await asyncio.sleep(0.01)
        lease.cancel()
        await asyncio.sleep(0.01)
    await asyncio.wait_for(asyncio.gather(*calls), timeout=60)
    assert await store.acquire("other", owner="me", ttl_s=30) is not None
    assert await store.head() == 4


async def test_an_append_that_cannot_be_written_fails_alone(bench: Bench) -> None:
    """A lone surrogate comes from a careless client; the appends it shares a transaction with are not its fault."""
    store = await bench.open()
    await store.append(write("a", b"first"))
    calls = [store.append(write("a", b"%d" % number), key=Key(f"{number}", b"")) for number in range(6)]
    calls.insert(2, store.append(write("\ud800", b"no")))
    calls.insert(5, store.append(write("b", b"no"), key=Key("\ud800", b"")))
    outcomes = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), timeout=60)
    assert [isinstance(outcome, Appended) for outcome in outcomes] == [
        True, True, False, True, True, False, True, True,
    ]  # fmt: skip
    assert sorted(event.body for event in await store.read("a")) == [*(b"%d" % n for n in range(6)), b"first"]
    assert await store.streams() == ["a"]
    await check_journal(store)


async def test_a_large_group_is_written_in_parts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """No transaction grows without bounds."""
    monkeypatch.setattr(writer, "BATCH_REQUESTS_MAX", 3)
    monkeypatch.setattr(writer, "BATCH_BYTES_MAX", 100)
    store = await bench.open()
    await asyncio.gather(*start(store, *(bytes(number) for number in range(0, 120, 3))))
    assert await store.head() == 40
    await check_journal(store)


async def test_more_streams_than_are_remembered(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """I4: the memory of where streams end starts anew; the streams go on where they were."""
    monkeypatch.setattr(ledger, "STREAMS_REMEMBERED_MAX", 3)
    store = await bench.open()
    for round_ in range(6):
        await store.append(*(write(f"s{number}", b"x", expected=round_) for number in range(4)))
        await store.append(*(write(f"t{number}", b"x", expected=round_) for number in range(3)))
        await asyncio.gather(*(store.append(write(f"s{number}", expected=round_ + 1)) for number in range(4)))
        await store.append(write(f"s{round_ % 4}"), write(f"new{round_}", b"x", expected=0))
    await check_journal(store)


@pytest.mark.parametrize("news_max", [0, 3, 10_000])
async def test_much_or_little_news_from_others(bench: Bench, monkeypatch: pytest.MonkeyPatch, news_max: int) -> None:
    """I4, I5: whether the writer follows what others wrote or starts its memory anew."""
    monkeypatch.setattr(ledger, "NEWS_MAX", news_max)
    store, other = await bench.open(), await bench.open()
    version = 0
    for count in (1, 2, 3, 4, 5):
        await store.append(write("a", b"mine", expected=version))
        for number in range(count):
            await other.append(write("a", b"theirs", expected=version + 1 + number), write(f"b{number}", b"x"))
        version += 1 + count
        with pytest.raises(Conflict):
            await store.append(write("a", b"no", expected=version - 1))
    await check_journal(store)


async def test_a_group_decided_on_old_news_is_decided_again(bench: Bench) -> None:
    """I3, I5: an answer is never left over from a plan that was not written."""
    store, other = await bench.open(), await bench.open()
    await store.append(write("a", b"1"), write("b", b"1"))
    for version in range(1, 6):
        await other.append(write("a", b"theirs"))
        right, wrong, free = await asyncio.gather(
            store.append(write("a", b"mine", expected=2 * version)),
            store.append(write("b", b"no", expected=99)),
            store.append(write("c", b"mine")),
            return_exceptions=True,
        )
        assert isinstance(right, Appended)
        assert right.version == 2 * version + 1
        assert isinstance(wrong, Conflict)
        assert isinstance(free, Appended)
    assert [event.body for event in await store.read("a")] == [b"1", *[b"theirs", b"mine"] * 5]
    await check_journal(store)
