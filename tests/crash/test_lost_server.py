"""A PostgreSQL server that dies, goes away or hangs up: each append ends once, and work goes on (I1, I3, I9)."""

import asyncio
import itertools
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from maos.errors import Corrupt, DiskFull, MaosError, StoreUnavailable
from maos.store.contract import Store, Write
from maos_testing.postgres import SOCKET_PORT, PostgresServer
from tests.crash.promises import Found, Step, damage, events, everything, key
from tests.crash.stores import Place

WRITERS = 12


@pytest.fixture
def place(postgres_url: str, tmp_path: Path) -> Place:
    """An empty schema."""
    return Place(str(tmp_path), postgres_url)


class Load:
    """Writers that append for as long as they are let, each its own numbers, some under a key."""

    def __init__(self, store: Store) -> None:
        self.acks: list[tuple[Step, int, tuple[int, ...]]] = []
        self._store = store
        self._enough = False
        self._moved = asyncio.Event()
        self._tasks = [asyncio.create_task(self._write(number)) for number in range(WRITERS)]

    async def _write(self, writer: int) -> None:
        for number in itertools.count():
            if self._enough:
                return
            name = f"{writer}.{number}"
            step = Step((Write(f"writer/{writer % 5}", events(name, 2)),), key(name) if number % 4 == 0 else None)
            reply = await step.take(self._store)
            self.acks.append((step, reply.position, reply.versions))
            self._moved.set()

    async def until(self, count: int) -> None:
        """Wait for that many more acknowledgements; a writer that fails fails here."""
        wanted = len(self.acks) + count
        while len(self.acks) < wanted:
            self._moved.clear()
            moved = asyncio.create_task(self._moved.wait())
            done, _ = await asyncio.wait({moved, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
            moved.cancel()
            for task in done - {moved}:
                await task

    async def stop(self) -> None:
        """Let every writer finish what it waits for."""
        self._enough = True
        await asyncio.gather(*self._tasks)

    async def look(self) -> None:
        """Each append exactly once, and nothing else."""
        assert await damage(self._store) == []
        found = Found(await everything(self._store))
        for step, position, versions in self.acks:
            found.keeps(step, position, versions)
            assert found.has(step)
        assert len(found.log) == sum(step.size for step, *_ in self.acks)


async def killed(place: Place, server: PostgresServer, rounds: int) -> None:
    """Kill the server under load and start it again; nobody who appends notices."""
    async with place.open() as store:
        load = Load(store)
        for _ in range(rounds):
            await load.until(150)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        await load.until(150)
        await load.stop()
        await load.look()


async def test_a_server_killed_under_load(place: Place, postgres: PostgresServer) -> None:
    await killed(place, postgres, rounds=4)


@pytest.mark.soak
async def test_a_server_killed_under_load_many_times(place: Place, postgres: PostgresServer) -> None:
    await killed(place, postgres, rounds=200)


async def test_a_server_stopped_in_order_under_load(place: Place, postgres: PostgresServer) -> None:
    async with place.open() as store:
        load = Load(store)
        await load.until(100)
        await asyncio.to_thread(postgres.stop)
        await asyncio.to_thread(postgres.start)
        await load.until(100)
        await load.stop()
        await load.look()


async def test_connections_ended_under_load(place: Place) -> None:
    """All of our connections ended by an administrator, again and again."""
    end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'maos'"
    administrator = await asyncpg.connect(place.url)
    try:
        async with place.open() as store:
            load = Load(store)
            for _ in range(15):
                await load.until(40)
                assert await administrator.fetchval(end)
            await load.stop()
            await load.look()
    finally:
        await administrator.close()


async def test_a_server_that_stays_away(place: Place, postgres: PostgresServer) -> None:
    """Told within the patience, alone and in a group; when it is back, work goes on."""
    async with place.open(wait_s=0.3) as store:
        first = Step((Write("run/1", events("first")),))
        await first.take(store)
        await asyncio.to_thread(postgres.kill)
        steps = [Step((Write("run/1", events(f"away {number}")),)) for number in range(5)]
        for group in (steps[:1], steps[1:]):
            began = time.monotonic()
            results = await asyncio.gather(*(step.take(store) for step in group), return_exceptions=True)
            assert time.monotonic() - began < 12  # by far less than the patience that a store has by default
            for result in results:
                assert isinstance(result, StoreUnavailable)
                assert not isinstance(result, DiskFull)
                assert result.hint
        # None of the second group was ever sent: the first had found out that the server is gone.
        assert [result.written for result in results if isinstance(result, StoreUnavailable)] == [False] * 4
        with pytest.raises(StoreUnavailable) as caught:
            await store.read("run/1")
        assert caught.value.hint
        await asyncio.to_thread(postgres.start)
        last = Step((Write("run/1", events("last")),))
        await last.take(store)
        assert await damage(store) == []
        found = Found(await everything(store))
        assert found.has(first)
        assert found.has(last)
        assert not any(found.has(step) for step in steps)


async def test_a_server_that_is_not_there(tmp_path: Path, postgres: PostgresServer) -> None:
    nowhere = urlsplit(postgres.url("nothing"))._replace(path="/no_such_database").geturl()
    for url in (nowhere, f"postgresql://postgres@/x?host={tmp_path}&port={SOCKET_PORT}"):
        with pytest.raises(StoreUnavailable) as caught:
            async with Place(str(tmp_path), url).open(wait_s=0.2):
                pass
        assert caught.value.hint
        assert caught.value.written is False


async def test_a_full_disk_of_the_server(place: Place) -> None:
    """The server's own error, raised by a trigger: the disk of a server is hard to fill."""
    administrator = await asyncpg.connect(place.url)
    try:
        async with place.open() as store:
            await store.append(Write("run/1", events("before")))
            await administrator.execute("""
                CREATE FUNCTION maos.no_space() RETURNS trigger LANGUAGE plpgsql
                    AS $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
                CREATE TRIGGER full_disk BEFORE INSERT ON maos.events EXECUTE FUNCTION maos.no_space();
            """)
            for options in ({}, {"key": key("long way")}):
                with pytest.raises(DiskFull) as caught:
                    await store.append(Write("run/1", events("during")), **options)
                assert caught.value.written is False
                assert len(await store.read("run/1")) == 1
            await administrator.execute("DROP TRIGGER full_disk ON maos.events")
            await store.append(Write("run/1", events("after")))
            assert await damage(store) == []
            assert len(await store.read("run/1")) == 2
    finally:
        await administrator.close()


async def test_a_damaged_page_is_told(place: Place, postgres: PostgresServer) -> None:
    """PostgreSQL's checksums find it; it must reach the caller as an error of ours (I11)."""
    async with place.open() as store:
        for number in range(5):
            await store.append(Write("run/1", events(f"{number}", 1, 300)))
    administrator = await asyncpg.connect(place.url)
    table = await administrator.fetchval("SELECT pg_relation_filepath('maos.events')")
    await administrator.close()
    await asyncio.to_thread(postgres.stop)
    file = postgres.directory / "data" / table
    content = bytearray(file.read_bytes())
    content[content.index(b"2/0 ....") + 20] ^= 4
    file.write_bytes(content)
    await asyncio.to_thread(postgres.start)
    with pytest.raises(Corrupt) as caught:
        async with place.open() as store:
            await everything(store)
    assert caught.value.hint


# --- replies that never arrive ------------------------------------------------------------------------------------


class HangUp:
    """A way to the server that hangs up at a chosen message, before passing it on."""

    def __init__(self, server: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="maos-"))
        self.cuts: list[int] = []
        self.seen = 0
        self._server = server / f".s.PGSQL.{SOCKET_PORT}"
        self._passing: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    async def __aenter__(self) -> "HangUp":
        path = self.folder / f".s.PGSQL.{SOCKET_PORT}"
        self._listener = await asyncio.start_unix_server(self._accept, path)
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._listener is not None
        self._listener.close()
        for task in self._passing:
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)
        shutil.rmtree(self.folder)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(self._server)
        ends = (writer, far_writer)
        for source, target in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._pass_on(source, target, ends))
            self._passing.add(task)
            task.add_done_callback(self._passing.discard)

    async def _pass_on(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, ends: tuple[asyncio.StreamWriter, ...]
    ) -> None:
        try:
            while data := await source.read(1 << 20):
                self.seen += 1
                if self.seen in self.cuts:
                    break
                target.write(data)
        except ConnectionError:
            pass
        finally:
            for end in ends:
                end.close()


@pytest.fixture
async def hang_up(postgres: PostgresServer) -> AsyncIterator[HangUp]:
    async with HangUp(postgres.directory) as proxy:
        yield proxy


async def cut_at(place: Place, proxy: HangUp, cuts: list[int], number: int) -> bool:
    """Append in the ways there are while connections are cut at some messages; whether all cuts were reached."""
    through = place._replace(
        url=place.url.replace(str(urlsplit(place.url).query), f"host={proxy.folder}&port={SOCKET_PORT}")
    )
    told: list[tuple[Step, int, tuple[int, ...], MaosError | None]] = []

    async def tell(store: Store, step: Step) -> None:
        try:
            reply = await step.take(store)
        except MaosError as error:
            told.append((step, 0, (), error))
        else:
            told.append((step, reply.position, reply.versions, None))

    prefix = f"cut {number}"
    async with through.open() as store:
        await store.append(Write(f"{prefix}/run", events(f"{prefix} before")))
        proxy.seen = 0
        proxy.cuts = cuts
        await tell(store, Step((Write(f"{prefix}/run", events(f"{prefix} fast")),)))
        await tell(store, Step((Write(f"{prefix}/new", events(f"{prefix} long", 2)),), key(f"{prefix} long")))
        await asyncio.gather(
            *(tell(store, Step((Write(f"{prefix}/run", events(f"{prefix} group {n}")),))) for n in range(3))
        )
        reached = proxy.seen > max(cuts)
        proxy.cuts = []
        found = Found(await everything(store))
        for step, position, versions, error in told:
            there = found.has(step)  # never twice
            if error is None:
                found.keeps(step, position, versions)
                assert there
            else:
                assert isinstance(error, StoreUnavailable), error
                assert len(cuts) > 1, f"one lost connection is none of the caller's business: {error!r}"
                assert not (there and error.written is False), error
        assert await damage(store) == []
    return reached


async def test_a_connection_lost_at_every_message(place: Place, hang_up: HangUp) -> None:
    """I3: whatever was lost, the request or the reply, each append is there once and nobody is told of it."""
    for at in itertools.count(1):
        if not await cut_at(place, hang_up, [at], at):
            break
    assert at > 10


async def test_a_connection_lost_again_while_the_loss_is_looked_into(place: Place, hang_up: HangUp) -> None:
    numbers = itertools.count(1_000)
    for first in (1, 2, 3, 5, 8):
        for later in (1, 2, 4, 6, 9, 12):
            await cut_at(place, hang_up, [first, first + later], next(numbers))
