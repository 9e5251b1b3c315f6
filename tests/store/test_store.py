"""Every store keeps the contract of stores."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest

from maos.errors import StoreUnavailable
from maos.store import sql_store
from maos.store.contract import Store
from maos.store.postgres import PostgresDatabase
from maos.store.sql_store import SqlStore
from maos.store.sqlite import MemoryDatabase, SqliteDatabase
from maos_testing.manual_clock import ManualClock
from maos_testing.postgres import PostgresServer
from maos_testing.store_contract import StoreContract
from maos_testing.store_contract.streams import log_of, write
from tests.store.oracle import MemoryStore

OpenAgain = Callable[[], Awaitable[Store]]
PassTime = Callable[[float], Awaitable[None]]

schema_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def bells_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiters hardly ever look for themselves, so a bell that is not rung is noticed."""
    monkeypatch.setattr(sql_store, "POLL_S", 600.0)


@pytest.fixture(scope="module")
def url(postgres: PostgresServer) -> str:
    """One database for all tests of this file: a schema for each is made in a tenth of the time."""
    if not postgres.pid:
        postgres.start()
    return postgres.create_database("contract")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class TestMemory(StoreContract):
    @pytest.fixture(params=["sqlite", "oracle"])
    async def store(self, request: pytest.FixtureRequest, clock: ManualClock) -> AsyncIterator[Store]:
        """The store of `:memory:`, and the oracle that other tests compare stores with."""
        is_oracle = request.param == "oracle"
        store = MemoryStore(clock) if is_oracle else await SqlStore.open(MemoryDatabase(clock))
        yield store
        await store.close()

    @pytest.fixture
    async def open_again(self) -> OpenAgain:
        pytest.skip("a store in memory is gone when it is closed, and nobody else can open it")

    @pytest.fixture
    async def pass_time(self, clock: ManualClock) -> PassTime:
        async def pass_time(seconds: float) -> None:
            clock.advance(seconds)

        return pass_time

    async def test_it_cannot_be_copied(self, store: Store, tmp_path: Path) -> None:
        with pytest.raises(StoreUnavailable, match="memory"):
            await store.copy_to(tmp_path / "copy")


class TestSqlite(StoreContract):
    @pytest.fixture
    async def open_again(self, tmp_path: Path, clock: ManualClock) -> AsyncIterator[OpenAgain]:
        opened = []

        async def open_again() -> Store:
            store = await SqlStore.open(SqliteDatabase(tmp_path / "maos.db", clock=clock))
            opened.append(store)
            return store

        yield open_again
        for store in opened:
            await store.close()

    @pytest.fixture
    async def store(self, open_again: OpenAgain) -> Store:
        return await open_again()

    @pytest.fixture
    async def pass_time(self, clock: ManualClock) -> PassTime:
        async def pass_time(seconds: float) -> None:
            clock.advance(seconds)

        return pass_time

    async def test_a_copy_is_a_store_that_holds_the_position_it_says(
        self, store: Store, tmp_path: Path, clock: ManualClock
    ) -> None:
        """I34: the same events with the same hashes, readable by nobody else, and no unfinished file stays."""
        await store.append(write("a", b"1", b"2"), write("b", b"3"))
        assert await store.copy_to(tmp_path / "copy.db") == 3
        assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
        assert not list(tmp_path.glob("*.partial*"))
        copy = await SqlStore.open(SqliteDatabase(tmp_path / "copy.db", clock=clock))
        assert await log_of(copy) == await log_of(store)
        await copy.close()

    async def test_its_files_can_be_read_by_nobody_else(self, store: Store, tmp_path: Path) -> None:
        """A database is as private as what agents say in it; its log and its marks are too."""
        await store.append(write("a", b"1"))
        await store.wait(after=0, timeout_s=0)
        modes = {path.name: path.stat().st_mode & 0o077 for path in tmp_path.rglob("*")}
        assert {"maos.db", "maos.db-wal", "maos.db-head", "maos.db-wake"} <= set(modes)
        assert set(modes.values()) == {0}


class TestPostgres(StoreContract):
    @pytest.fixture
    def schema(self) -> str:
        return f"contract_{next(schema_numbers)}"

    @pytest.fixture
    async def open_again(self, url: str, schema: str, tmp_path: Path, clock: ManualClock) -> AsyncIterator[OpenAgain]:
        opened = []

        async def open_again() -> Store:
            database = PostgresDatabase(url, clock=clock, schema_name=schema, mark_path=tmp_path / "head")
            store = await SqlStore.open(database)
            opened.append(store)
            return store

        yield open_again
        for store in opened:
            await store.close()

    @pytest.fixture
    async def store(self, open_again: OpenAgain) -> Store:
        return await open_again()

    @pytest.fixture
    async def pass_time(self, url: str, schema: str, clock: ManualClock, store: Store) -> PassTime:
        """The server's clock is a function of ours: it is put ahead, and that of the node is never asked."""
        ahead_us = 0

        async def pass_time(seconds: float) -> None:
            nonlocal ahead_us
            clock.advance(seconds)
            ahead_us += int(seconds * 1_000_000)
            connection = await asyncpg.connect(url)
            await connection.execute(
                f"CREATE OR REPLACE FUNCTION {schema}.now_us() RETURNS bigint LANGUAGE sql VOLATILE AS "
                f"$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + {ahead_us} $$"
            )
            await connection.close()

        return pass_time

    async def test_a_copy_holds_the_position_it_says(self, store: Store, tmp_path: Path) -> None:
        """I34: readable by nobody else, and no unfinished file stays."""
        await store.append(write("a", b"1", b"2"), write("b", b"3"))
        assert await store.copy_to(tmp_path / "copy.jsonl") == 3
        assert (tmp_path / "copy.jsonl").stat().st_mode & 0o777 == 0o600
        assert not list(tmp_path.glob("*.partial*"))
        assert (tmp_path / "copy.jsonl").read_text().count('"table": "events"') == 3
