"""Whatever is done to a store, in whatever order: it answers as the simplest store there is.

Hypothesis invents programs of appends, repeats, leases, documents, compactions and restarts. Each step is done to two
stores that share one database, and to a `MemoryStore`; every answer, every refusal and in the end every byte must be
the same. Time is moved by hand, so that also times, and with them the hashes, can be compared.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from maos.errors import InvalidInput, MaosError
from maos.store import chain
from maos.store.contract import GENESIS, Document, Key, Lease, RawEvent, Replacement, Store, Write
from maos.store.postgres import PostgresDatabase
from maos.store.sql_store import SqlStore
from maos.store.sqlite import SqliteDatabase
from maos_testing.manual_clock import ManualClock
from maos_testing.postgres import PostgresServer
from tests.store.oracle import MemoryStore

NODES = st.sampled_from([0, 1])
STREAMS = st.sampled_from(["a", "b", "c/é", "😀"])
NAMES = st.sampled_from(["agent/1", "agent/2"])
BODIES = st.lists(st.binary(max_size=3), max_size=3)
EXPECTED = st.sampled_from(["any", "right", "right", "wrong"])
WRITES = st.lists(st.tuples(STREAMS, BODIES, EXPECTED), min_size=1, max_size=3)
DOCUMENTS = st.lists(
    st.builds(
        Document,
        st.sampled_from(["view", "cursor"]),
        st.sampled_from(["x", "y", "é"]),
        st.integers(1, 4),
        st.one_of(st.none(), st.binary(max_size=3)),
    ),
    max_size=2,
)
RANGES = st.lists(
    st.builds(
        Replacement,
        STREAMS,
        st.integers(0, 4),
        st.integers(1, 6),
        st.builds(RawEvent, st.just("merged"), st.integers(1, 2), st.binary(max_size=3)),
    ),
    min_size=1,
    max_size=2,
)
SECONDS = st.sampled_from([0.0, 0.5, 1.0, 10.0])

SHRINKING_S_MAX = 600
"""Some seconds are enough when all is well; a failure is worth the time to find its shortest program."""

Call = Callable[[Store], Coroutine[Any, Any, Any]]


class StoreMachine(RuleBasedStateMachine):
    """Two stores on one database, and the oracle."""

    leases = Bundle("leases")
    keys = Bundle("keys")

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.runner = asyncio.Runner()
        self.oracle = MemoryStore(self.clock)
        self.fresh_keys = itertools.count(1)
        self.prepare()
        self.nodes = [self.run(self.open()) for _ in range(2)]

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def prepare(self) -> None:
        """Make the place of a new database."""
        raise NotImplementedError

    async def open(self) -> SqlStore:
        """Open it, once more."""
        raise NotImplementedError

    async def set_time(self) -> None:
        """Tell the database what time it is."""
        raise NotImplementedError

    def check(self, node: int, call: Call) -> Any:
        """Do the same to a store and to the oracle: the same must come of it."""
        expected = self.run(outcome(call(self.oracle)))
        assert self.run(outcome(call(self.nodes[node]))) == expected
        return expected

    def writes(self, wanted: list[tuple[str, list[bytes], str]]) -> list[Write]:
        writes = []
        for stream, bodies, mode in wanted:
            version = self.run(self.oracle.version(stream))
            expected = {"any": None, "right": version, "wrong": version + 1 if len(bodies) % 2 else version - 1}[mode]
            writes.append(Write(stream, [RawEvent("noted", 1, body) for body in bodies], expected))
        return writes

    # --- what can happen -------------------------------------------------------------------------------------

    @rule(node=NODES, wanted=WRITES, documents=DOCUMENTS)
    def append(self, node: int, wanted: list[tuple[str, list[bytes], str]], documents: list[Document]) -> None:
        writes = self.writes(wanted)
        self.check(node, lambda store: store.append(*writes, documents=documents))

    @rule(node=NODES, wanted=WRITES, lease=leases)
    def append_under_a_lease(self, node: int, wanted: list[tuple[str, list[bytes], str]], lease: Lease) -> None:
        writes = self.writes(wanted)
        self.check(node, lambda store: store.append(*writes, under=lease))

    @rule(target=keys, node=NODES, wanted=WRITES, documents=DOCUMENTS)
    def append_with_a_key(
        self, node: int, wanted: list[tuple[str, list[bytes], str]], documents: list[Document]
    ) -> tuple[Key, list[Write], list[Document]]:
        key, writes = Key(f"k{next(self.fresh_keys)}", b"f"), self.writes(wanted)
        self.check(node, lambda store: store.append(*writes, key=key, documents=documents))
        return key, writes, documents

    @rule(node=NODES, before=keys)
    def repeat_with_the_key(self, node: int, before: tuple[Key, list[Write], list[Document]]) -> None:
        key, writes, documents = before
        self.check(node, lambda store: store.append(*writes, key=key, documents=documents))

    @rule(node=NODES, before=keys, wanted=WRITES)
    def use_the_key_for_something_else(
        self,
        node: int,
        before: tuple[Key, list[Write], list[Document]],
        wanted: list[tuple[str, list[bytes], str]],
    ) -> None:
        writes = self.writes(wanted)
        self.check(node, lambda store: store.append(*writes, key=before[0]._replace(fingerprint=b"g")))

    @rule(wanted=st.lists(st.tuples(NODES, STREAMS, st.binary(max_size=3)), min_size=2, max_size=8))
    def append_all_at_once(self, wanted: list[tuple[int, str, bytes]]) -> None:
        """The order is the stores' choice; the oracle follows it."""

        async def together() -> list[Any]:
            return await asyncio.gather(
                *(self.nodes[node].append(Write(stream, [RawEvent("noted", 1, body)])) for node, stream, body in wanted)
            )

        replies = self.run(together())
        for reply, (_node, stream, body) in sorted(zip(replies, wanted, strict=True)):
            assert self.run(self.oracle.append(Write(stream, [RawEvent("noted", 1, body)]))) == reply

    @rule(node=NODES, ranges=RANGES, wanted=WRITES)
    def replace(self, node: int, ranges: list[Replacement], wanted: list[tuple[str, list[bytes], str]]) -> None:
        writes = self.writes(wanted)
        self.check(node, lambda store: store.append(*writes, replacing=ranges))

    @rule(node=NODES, stream=STREAMS)
    def replace_all(self, node: int, stream: str) -> None:
        last = self.run(self.oracle.version(stream))
        merged = Replacement(stream, 1, last, RawEvent("merged", 1, b"all"))
        self.check(node, lambda store: store.append(replacing=[merged]))

    @rule(target=leases, node=NODES, name=NAMES, owner=st.sampled_from(["me", "you"]), ttl_s=st.sampled_from([1, 5]))
    def acquire(self, node: int, name: str, owner: str, ttl_s: float) -> Any:
        lease = self.check(node, lambda store: store.acquire(name, owner=owner, ttl_s=ttl_s))
        return multiple() if lease is None else lease

    @rule(node=NODES, lease=leases, ttl_s=st.sampled_from([1, 5]))
    def renew(self, node: int, lease: Lease, ttl_s: float) -> None:
        self.check(node, lambda store: store.renew(lease, ttl_s=ttl_s))

    @rule(node=NODES, lease=consumes(leases))
    def release(self, node: int, lease: Lease) -> None:
        self.check(node, lambda store: store.release(lease))

    @rule(seconds=SECONDS)
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.run(self.set_time())

    @rule(node=NODES)
    def reopen(self, node: int) -> None:
        self.run(self.nodes[node].close())
        self.nodes[node] = self.run(self.open())

    @rule(
        node=NODES,
        stream=STREAMS,
        after=st.integers(0, 6),
        limit=st.integers(1, 4),
        backwards=st.booleans(),
    )
    def read(self, node: int, stream: str, after: int, limit: int, backwards: bool) -> None:
        self.check(node, lambda store: store.read(stream, after=after, limit=limit, backwards=backwards))
        self.check(node, lambda store: store.read_log(after=after, limit=limit))
        self.check(node, lambda store: store.streams(prefix=stream[:1], limit=limit))

    # --- what always holds -----------------------------------------------------------------------------------

    @invariant()
    def both_stores_are_where_the_oracle_is(self) -> None:
        for node in (0, 1):
            self.check(node, lambda store: store.head())
            self.check(node, lambda store: store.version("a"))

    def teardown(self) -> None:
        try:
            for node in (0, 1):
                self.check(node, lambda store: store.streams())
                self.check(node, lambda store: store.scan("view"))
                self.check(node, lambda store: store.scan("cursor"))
                self.check(node, lambda store: store.check())
                log = self.check(node, lambda store: store.read_log(limit=100_000))
                assert sum(event.spans for event in log) == self.run(self.oracle.head())
                self.check_chain(log)
        finally:
            for store in self.nodes:
                self.run(store.close())
            self.runner.close()

    def check_chain(self, log: list[Any]) -> None:
        """I7: what was never replaced follows from what was before it, replaced or not."""
        hashes: dict[str, bytes] = {}
        for event in log:
            if event.type != "merged":
                assert event.hash == chain.hash_of(event, hashes.get(event.stream, GENESIS))
            hashes[event.stream] = event.hash


async def outcome(call: Coroutine[Any, Any, Any]) -> Any:
    """What came of a call: its answer, or its refusal."""
    try:
        return await call
    except InvalidInput as error:
        return type(error)  # of several reasons each store names the one it meets first
    except MaosError as error:
        return type(error), str(error)


class SqliteMachine(StoreMachine):
    folder: Path

    def prepare(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=type(self).parent))

    parent: Path

    async def open(self) -> SqlStore:
        return await SqlStore.open(SqliteDatabase(self.folder / "maos.db", clock=self.clock))

    async def set_time(self) -> None:
        """SQLite asks our clock."""

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)


class PostgresMachine(StoreMachine):
    url: str
    parent: Path
    numbers = itertools.count(1)

    def prepare(self) -> None:
        self.schema = f"machine_{next(self.numbers)}"

    async def open(self) -> SqlStore:
        mark = self.parent / self.schema
        database = PostgresDatabase(self.url, clock=self.clock, schema_name=self.schema, mark_path=mark)
        store = await SqlStore.open(database)
        await self.set_time()
        return store

    async def set_time(self) -> None:
        connection = await asyncpg.connect(self.url)
        await connection.execute(
            f"CREATE OR REPLACE FUNCTION {self.schema}.now_us() RETURNS bigint LANGUAGE sql VOLATILE"
            f" AS $$ SELECT {self.clock.now_us()}::bigint $$"
        )
        await connection.close()


def budget(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.timeout(SHRINKING_S_MAX)
def test_sqlite_answers_as_the_oracle_does(tmp_path: Path) -> None:
    """I3-I7, I22, I25, in the order Hypothesis likes best."""
    SqliteMachine.parent = tmp_path
    run_state_machine_as_test(SqliteMachine, settings=budget(examples=100, steps=25))


@pytest.mark.timeout(SHRINKING_S_MAX)
def test_postgres_answers_as_the_oracle_does(postgres: PostgresServer, postgres_url: str, tmp_path: Path) -> None:
    """I3-I7, I22, I25, with a server whose clock is moved by hand."""
    PostgresMachine.url, PostgresMachine.parent = postgres_url, tmp_path
    run_state_machine_as_test(PostgresMachine, settings=budget(examples=30, steps=20))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("machine", [SqliteMachine, PostgresMachine])
def test_for_a_long_time(machine: type[StoreMachine], postgres_url: str, tmp_path: Path) -> None:
    """The same, for as long as it takes to find what is rare."""
    SqliteMachine.parent = PostgresMachine.parent = tmp_path
    PostgresMachine.url = postgres_url
    run_state_machine_as_test(machine, settings=budget(examples=2_000, steps=60))
