"""The journal in PostgreSQL, through asyncpg: for many machines.

Positions are assigned under one advisory lock, so a reader that has seen position n has seen everything below n:
without it a slower transaction could commit n-1 after n was read, and every follower would miss it. An ordinary batch
is one call of the function `append_if_unmoved`, one round trip; any other batch takes several, under the same lock. All
times are the server's.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import asyncpg

from maos.clock import Clock
from maos.errors import Corrupt, DiskFull, InvalidInput, MaosError, NotFound, StoreUnavailable
from maos.faults import crash_point
from maos.files import whole_file
from maos.settings import DatabaseName
from maos.store import database
from maos.store.database import Database, Mark, MarkFile, Row, default_mark
from maos.store.ledger import AppendRequest, Asking, Ledger, WriteBatch
from maos.store.patience import WAIT_S, Patience

CONNECT_TIMEOUT_S = 10.0
COMMAND_TIMEOUT_S = 60.0
CLOSE_S_MAX = 1.0  # how long connections may take to close
IDLE_MS_MAX = 5_000  # between two statements of one transaction; then the server ends it
READERS_MAX = 4
LISTEN_AGAIN_S = 1.0  # between attempts to listen again

# Numbers travel as text: asyncpg takes much longer over a list of integers than PostgreSQL over their digits.
_FAST_APPEND = """
SELECT append_if_unmoved($1, $2, $3, $4, $5::text::bigint[], $6, $7::text::bigint[], $8::text::bigint[], $9,
                         $10::text::bigint[], $11::text::bigint[], $12, $13)
"""
_INSERT_EVENTS = """
INSERT INTO events (position, stream, version, type, format, time_us, token, body, hash)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[],
                     $8::bytea[], $9::bytea[])
"""
T = TypeVar("T")
_KNOWN_VIEWS = "SELECT definition FROM pg_views WHERE schemaname = $1 AND viewname = 'maos_views'"
_TABLES = ("streams", "events", "keys", "leases", "documents")
_KEY_TABLES = ("keyring", "data_keys")
"""Not part of a copy before an upgrade: databases before level 5 have none."""
_LOST = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server announced its shutdown between two requests
    asyncpg.PostgresConnectionError,
)
_AWAY = (OSError, TimeoutError, asyncpg.PostgresConnectionError)
"""Why a server cannot be connected to that may be there later; wrong options and refused passwords are not among it."""
_URL_HINT = "percent-encode special characters, such as %2F for / in a password; put an IPv6 address into [ ]"
_ENDING = (
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TooManyConnectionsError,  # every client of a restarted server connects at the same time
)


class PostgresDatabase(Database):
    """The connections to one schema of a PostgreSQL database, and the transactions of the writer."""

    def __init__(
        self,
        url: str | DatabaseName,
        *,
        clock: Clock,
        create: bool = True,
        schema_name: str = "maos",
        mark_path: Path | None = None,
        schema: Path | None = None,
        wait_s: float | None = WAIT_S,
    ) -> None:
        if not schema_name.isidentifier() or not schema_name.isascii():
            raise InvalidInput(f"{schema_name!r} cannot name a schema", hint="use letters, digits and underscores")
        self._url = DatabaseName(url)
        self.place = str(self._url) + ("" if schema_name == "maos" else f" (schema {schema_name})")
        self.mark = MarkFile(mark_path or default_mark(self.place))
        self.notes: list[str] = []
        self._schema_name = schema_name.lower()
        self._channel = f"maos_{self._schema_name}"
        # The same number on every node, but different for every schema.
        self._lock = int.from_bytes(hashlib.sha256(self._channel.encode()).digest()[:8], "big", signed=True)
        self._clock = clock
        self._create = create
        self._schema = schema
        self.patience = Patience(self.place, clock, wait_s)
        self._sql = database.statements()
        self._writer: asyncpg.Connection[Any] | None = None
        self._fast_append: Any = None
        """The statement of an ordinary batch, prepared on the writing connection."""
        self._listener: asyncpg.Connection[Any] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._readers: asyncpg.Pool[Any] | None = None
        self._server_ahead_us = 0  # relative to the steady clock: the wall clock may be wrong, or be set

    # --- opening and closing ---------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, waiting for a server that is not there yet; create or upgrade."""
        attempts = self.patience.begin()
        while True:
            try:
                await self._open_once()
            except (*_AWAY, *_ENDING) as error:
                if isinstance(error, ssl.SSLError) or not await attempts.pause(f"{self.place}: {_text(error)}"):
                    raise self._cannot_connect(error) from error
            else:
                self.patience.worked()
                return

    async def _open_once(self) -> None:
        try:
            self._writer = await self._connect()
            if await self._writer.fetchval("SHOW fsync") != "on":
                raise StoreUnavailable(
                    f"{self.place} runs with fsync off, so acknowledged events could be lost",
                    written=False,
                    hint="set fsync = on in postgresql.conf",
                )
            await self._upgrade(self._writer)
            # Connections are made when they are needed: a pool that keeps some open prints a traceback for each
            # attempt to reach a lost server.
            self._readers = await asyncpg.create_pool(
                self._url.reveal(), min_size=0, max_size=READERS_MAX, **self._connection_options()
            )
        except ValueError as error:  # its text can have parts of the password
            await self.close()
            raise InvalidInput(f"{self.place} is not a URL that PostgreSQL accepts", hint=_URL_HINT) from error
        except (*_AWAY, *_ENDING):
            await self.close()
            raise
        except (*_LOST, asyncpg.PostgresError) as error:
            await self.close()
            raise self._cannot_connect(error) from error
        except BaseException:
            await self.close()
            raise

    async def close(self, *, refused: bool = False) -> None:
        if self._listening is not None:
            self._listening.cancel()
        for connection in (self._writer, self._listener):
            if connection is not None and not connection.is_closed():
                connection.terminate()
        readers, self._readers = self._readers, None
        self._writer = self._listener = None
        if readers is not None:
            try:  # connections of cancelled reads are being reset
                await asyncio.wait_for(readers.close(), CLOSE_S_MAX)
            except (OSError, asyncpg.InterfaceError, asyncpg.PostgresError):
                readers.terminate()
        self.mark.close()

    def _connection_options(self) -> dict[str, Any]:
        return {
            "timeout": CONNECT_TIMEOUT_S,
            "command_timeout": COMMAND_TIMEOUT_S,
            "server_settings": {
                "search_path": self._schema_name,
                "synchronous_commit": "on",
                # A transaction that waited for the lock must see what was committed in the meantime.
                "default_transaction_isolation": "read committed",
                "application_name": "maos",
                "jit": "off",  # compiling takes longer than the statements
                # A node that is stopped inside a transaction must not block the others.
                "idle_in_transaction_session_timeout": f"{IDLE_MS_MAX}ms",
            },
        }

    async def _connect(self) -> asyncpg.Connection[Any]:
        connection: asyncpg.Connection[Any] = await asyncpg.connect(self._url.reveal(), **self._connection_options())
        return connection

    def _cannot_connect(self, error: Exception) -> MaosError:
        return StoreUnavailable(
            f"cannot use {self.place}: {_text(error)}",
            written=False,
            hint="check that the server is running and that the URL, user and password are right",
        )

    # --- schema ----------------------------------------------------------------------------------------------

    async def _upgrade(self, connection: asyncpg.Connection[Any]) -> None:
        steps = database.steps("postgres", self._schema)
        level = begun = await self._level(connection)
        if not database.pending(steps, level, self.place):
            return
        if level == 0 and not self._create:
            raise NotFound(f"there is no journal in {self.place}", hint="check the URL; nothing was created")
        async with connection.transaction():  # one node upgrades, the others wait
            await connection.execute("SELECT pg_advisory_xact_lock($1)", self._lock)
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self._schema_name}")
            await connection.execute("CREATE TABLE IF NOT EXISTS schema_level (level bigint NOT NULL)")
        for step in steps:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", self._lock)
                level = await self._level(connection)
                if level >= step.level:
                    continue
                crash_point(f"upgrade: before level {step.level}")
                if level and level == begun:
                    await self._keep_copy(connection, level)
                await connection.execute(step.sql)
                await connection.execute("DELETE FROM schema_level")
                await connection.execute("INSERT INTO schema_level VALUES ($1)", step.level)
                crash_point(f"upgrade: level {step.level} not committed")

    async def add_views(self, views: str) -> None:
        """Create or update the SQL views, which other programs use and maos does not need."""
        version = views[views.rindex("CREATE VIEW ") :].split("'")[1]
        connection = self._writer
        assert connection is not None
        try:
            if version in (await connection.fetchval(_KNOWN_VIEWS, self._schema_name) or ""):
                return
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", self._lock)
                if version not in (await connection.fetchval(_KNOWN_VIEWS, self._schema_name) or ""):
                    await connection.execute(views)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            self.notes.append(f"the views could not be created: {error}")

    async def _level(self, connection: asyncpg.Connection[Any]) -> int:
        found = await connection.fetchval("SELECT to_regclass($1)", f"{self._schema_name}.schema_level")
        return (await connection.fetchval("SELECT max(level) FROM schema_level") or 0) if found else 0

    async def _keep_copy(self, connection: asyncpg.Connection[Any], level: int) -> None:
        copy = f"{self._schema_name}_level_{level}"
        if await connection.fetchval("SELECT to_regnamespace($1)", copy):
            return
        await connection.execute(f"CREATE SCHEMA {copy}")
        for table in _TABLES:
            await connection.execute(f"CREATE TABLE {copy}.{table} AS TABLE {self._schema_name}.{table}")
        self.notes.append(f"kept schema {copy} from before the schema upgrade")

    # --- reading ---------------------------------------------------------------------------------------------

    async def fetch(self, query: str, *arguments: Any) -> list[Row]:
        """Return all rows of a read; wait for a server that restarts as long as a write does."""
        attempts = self.patience.begin()
        while True:
            readers = self._readers
            if readers is None:
                raise self.closed()
            try:
                rows = [tuple(row) for row in await readers.fetch(self._sql[query], *arguments)]
            except (*_LOST, *_ENDING) as error:
                if not await attempts.pause(f"{self.place}: {_text(error)}"):
                    raise self._cannot_connect(error) from error
                await readers.expire_connections()  # they were lost with the server
            except asyncpg.PostgresError as error:
                raise self.explain(error) from error
            else:
                self.patience.worked()
                return rows

    async def listen(self, woken: Callable[[], None]) -> None:
        """Call `woken` after commits of all nodes; reconnect when the connection is lost."""
        lost = await self._listen_until_lost(woken)
        self._listening = asyncio.create_task(self._keep_listening(woken, lost))

    async def _listen_until_lost(self, woken: Callable[[], None]) -> asyncio.Event:
        if self._listener is not None:
            self._listener.terminate()
        lost = asyncio.Event()
        try:
            self._listener = await self._connect()
            self._listener.add_termination_listener(lambda _: lost.set())
            await self._listener.add_listener(self._channel, lambda *_: woken())
        except (*_LOST, asyncpg.PostgresError):
            lost.set()
        return lost

    async def _keep_listening(self, woken: Callable[[], None], lost: asyncio.Event) -> None:
        while True:
            await lost.wait()
            await asyncio.sleep(LISTEN_AGAIN_S)
            lost = await self._listen_until_lost(woken)
            if not lost.is_set():
                woken()  # commits may have been missed

    # --- writing ---------------------------------------------------------------------------------------------

    async def commit(self, ledger: Ledger, batch: Sequence[AppendRequest]) -> None:
        """Write a batch: in one call if no other node has written since, else after catching up."""
        plan = await self._commit_fast(ledger, batch) or await self._commit_locked(ledger, batch)
        if plan.rows:
            self.mark.write(Mark(ledger.position, plan.last_hash))

    async def _commit_fast(self, ledger: Ledger, batch: Sequence[AppendRequest]) -> WriteBatch | None:
        connection = self._writer
        assert connection is not None
        if ledger.position < 0 or any(request.key is not None for request in batch) or ledger.unknown(batch):
            return None
        plan = ledger.decide(batch, self._clock.steady_us() + self._server_ahead_us, None, {})
        if plan.empty or not plan.only_events:
            return None  # a refusal needs the lock too: others may have written since
        _positions, streams, versions, types, formats, _times, tokens, bodies, hashes = zip(*plan.rows, strict=True)
        leases = list(plan.leases)
        crash_point("commit: about to be sent")
        if self._fast_append is None:
            self._fast_append = await connection.prepare(_FAST_APPEND)
        now_us = await self._fast_append.fetchval(
            self._lock, self._channel, plan.expected, [name for name, _ in leases],
            _digits(token for _, token in leases), plan.time_us,
            _digits(streams), _digits(versions), types, _digits(formats), _digits(tokens), bodies, hashes,
        )  # fmt: skip
        if now_us is None:
            return None
        crash_point("commit: committed, not marked")
        self._server_ahead_us = now_us - self._clock.steady_us()
        ledger.advance(plan)
        return plan

    async def _commit_locked(self, ledger: Ledger, batch: Sequence[AppendRequest]) -> WriteBatch:
        connection = self._writer
        assert connection is not None
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", self._lock)
            plan = await self._decide(connection, ledger, batch)
            if not plan.empty:
                await self._write(connection, plan)
                crash_point("commit: written, not committed")
        crash_point("commit: committed, not marked")
        if not plan.empty:
            ledger.advance(plan)
        return plan

    async def _decide(
        self, connection: asyncpg.Connection[Any], ledger: Ledger, batch: Sequence[AppendRequest]
    ) -> WriteBatch:
        position, time_us, _hash = await connection.fetchrow(self._sql["log_head"]) or (0, 0, None)
        if position != ledger.position:
            await self._answer(connection, ledger.news(position, time_us))
        leases, keys = await self._answer(connection, ledger.facts(batch))
        now_us = await connection.fetchval("SELECT now_us()")
        self._server_ahead_us = now_us - self._clock.steady_us()
        return ledger.decide(batch, now_us, leases, keys)

    async def _answer(self, connection: asyncpg.Connection[Any], asking: Asking[T]) -> T:
        """Execute the queries that the ledger asks for, and return what it makes of the rows."""
        rows: list[Any] | None = None
        try:
            while True:
                query, *arguments = asking.send(rows)
                # A lease is locked until the commit, as in `append_if_unmoved`: a takeover waits until then.
                if query == "lease":
                    rows = await connection.fetch(self._sql["lease"] + " FOR SHARE", *arguments)
                else:
                    rows = await connection.fetch(self._sql[query], *arguments)
        except StopIteration as done:
            found: T = done.value
            return found

    async def _write(self, connection: asyncpg.Connection[Any], plan: WriteBatch) -> None:
        if plan.streams:
            await connection.executemany(self._sql["insert_stream"], plan.streams)
        if plan.rows:
            await connection.execute(_INSERT_EVENTS, *zip(*plan.rows, strict=True))
        if plan.keys:
            await connection.executemany(self._sql["insert_key"], list(plan.keys.values()))
        if plan.data_keys:
            plan.check_keyring(await connection.fetch(self._sql["keyring"]))
            await connection.executemany(self._sql["insert_data_key"], plan.data_key_rows())
        for query, arguments in plan.other_rows():
            changed = await connection.execute(self._sql[query], *arguments)
            if query == "replace_last" and changed != "UPDATE 1":
                raise plan.not_whole(arguments)
        await connection.execute("SELECT pg_notify($1, $2)", self._channel, str(plan.expected + len(plan.rows)))

    async def write_all(self, changes: Iterable[tuple[str, Sequence[Row]]], *, what: str) -> None:
        connection = self._writer
        assert connection is not None
        try:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", self._lock)
                for query, arguments in changes:
                    await connection.executemany(self._sql[query], arguments)
                crash_point(f"{what}: written, not committed")
        except (*_LOST, asyncpg.PostgresError) as error:
            raise self.explain(error) from error

    def outcome_unknown(self, error: Exception) -> bool:
        """Return whether the connection was lost, so that the server may have committed."""
        return isinstance(error, (*_LOST, *_ENDING))

    def explain(self, error: Exception) -> Exception:
        """Return the error to raise for a failure of the server."""
        if isinstance(error, asyncpg.DiskFullError):
            return DiskFull(self.place)
        if isinstance(error, (*_LOST, *_ENDING)):
            return StoreUnavailable(f"the connection to {self.place} was lost: {_text(error)}", written=None)
        if isinstance(error, (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError)):
            return Corrupt(f"{self.place} is damaged: {error}")
        if isinstance(error, asyncpg.DataError):
            return InvalidInput(f"{self.place} cannot store this: {error}")
        if isinstance(error, asyncpg.PostgresError):
            return StoreUnavailable(f"{self.place} refused the request: {error}", written=False)
        return error

    async def recover(self) -> None:
        """Reconnect after a lost connection, waiting for a server that restarts."""
        attempts = self.patience.begin()
        if self._writer is not None:
            self._writer.terminate()
        while True:
            try:
                self._writer = await self._connect()
                self._fast_append = None
                # Once the lock is acquired, no transaction of the old connection is still running.
                async with self._writer.transaction():
                    await self._writer.execute("SELECT pg_advisory_xact_lock($1)", self._lock)
            except (*_LOST, *_ENDING) as error:
                if not await attempts.pause(f"{self.place}: {_text(error)}"):
                    what = f"{self.place} does not answer: {_text(error)}"
                    hint = "start the server; the next append reconnects"
                    raise StoreUnavailable(what, written=None, hint=hint) from error
            except asyncpg.PostgresError as error:
                raise StoreUnavailable(f"{self.place} refused the connection: {_text(error)}", written=None) from error
            else:
                self.patience.worked()
                return

    # --- copying and checking ------------------------------------------------------------------------------------

    async def copy_to(self, target: Path) -> int:
        """Write all rows of one snapshot as lines of JSON, completely or not at all; return the newest position."""
        assert self._readers is not None
        with whole_file(target) as partial, partial.open("w", encoding="utf-8") as file:
            async with self._readers.acquire() as connection, connection.transaction(isolation="repeatable_read"):
                head = await connection.fetchrow(self._sql["log_head"])
                for table in (*_TABLES, *_KEY_TABLES):
                    async for row in connection.cursor(f"SELECT * FROM {table}"):  # noqa: S608 - constant names
                        values = ((name, each.hex() if isinstance(each, bytes) else each) for name, each in row.items())
                        file.write(json.dumps({"table": table, **dict(values)}) + "\n")
        return head[0] if head else 0


def _digits(numbers: Iterable[int]) -> str:
    """Return numbers as the text of a PostgreSQL array."""
    return f"{{{','.join(map(str, numbers))}}}"


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
