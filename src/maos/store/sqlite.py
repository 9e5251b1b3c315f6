"""The journal in one SQLite file, through apsw.

apsw includes its own SQLite: every release before 3.51.3 can lose committed writes in a race of checkpoint and commit.
Reads and uncontended commits run on the event loop's thread (microseconds, and one fsync); group commits run in one
worker thread. Only the driver opens the live file: closing it elsewhere would drop SQLite's locks.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.resources.abc import Traversable
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import apsw

from maos.clock import Clock
from maos.errors import Corrupt, DiskFull, InvalidInput, MaosError, NotFound, StoreUnavailable, UnknownFormat
from maos.faults import crash_point
from maos.files import sync_folder
from maos.store import queries, upgrade
from maos.store.bell import Bell
from maos.store.contract import Replacement
from maos.store.ledger import AppendRequest, Head, KeyRow, Ledger, WriteBatch
from maos.store.mark import Mark, MarkFile

SQLITE_MIN = (3, 51, 3)
BUSY_MS_MAX = 10_000  # how long a writer waits for other processes before it raises
LOCK_PAUSE_S = 0.000_1  # the first pause before a lock is tried again
LOCK_PAUSE_S_MAX = 0.01
WAL_PAGES_MAX = 1_000  # with more pages the log is copied into the database
WAL_PREALLOCATED_PAGES = (256, 1_100)  # the log is preallocated: a part soon, all of it for processes that write much
WAL_PAGES_PREALLOCATED = 12  # from this many pages on; not for a process that writes once and ends
NEWS_MAX = 10_000  # with more events of other processes the ledger is cleared

ROWS_AT_ONCE = 16  # rows per statement: a third less work than one each

_VALUES = "(?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT = "INSERT INTO events (position, stream, version, type, format, time_us, token, body, hash) VALUES "
_INSERT_EVENT = _INSERT + _VALUES
_INSERT_EVENTS = _INSERT_EVENT + f", {_VALUES}" * (ROWS_AT_ONCE - 1)

VIEWS_KNOWN = "SELECT count(*) FROM sqlite_schema WHERE type = 'view' AND name = 'maos_views' AND instr(?, sql)"

# SQLite does not check that a stored value has its column's type; a flipped bit can turn a text into a number.
_EVENT_QUERIES = frozenset(("read_stream", "read_stream_backwards", "read_log"))
_EVENT_TYPES: list[type] = [int, str, int, int, str, int, int, int, bytes, bytes]

Row = tuple[Any, ...]
T = TypeVar("T")


class _Locked(Exception):
    """Another process is writing, and the caller does not wait."""


class SqliteDatabase:
    """The connections to one SQLite file, and the transactions of the writer."""

    blocking = True

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        create: bool = True,
        vfs: str | None = None,
        schema: Traversable | None = None,
    ) -> None:
        self.place = str(path)
        self.path = path = path.absolute()  # connections may be opened after the process has changed its folder
        self.mark = MarkFile(path.with_name(path.name + "-head"))
        self.notes: list[str] = []
        self.wal_pages = 0
        self._maintain_at = WAL_PAGES_PREALLOCATED
        self._preallocated_pages = 0
        self._bell = Bell(path.with_name(path.name + "-wake"))
        self._clock = clock
        self._create = create
        self._vfs = vfs
        self._schema = schema
        self._sql = queries.for_sqlite()
        self._reader: apsw.Connection | None = None
        self._stamps: apsw.Cursor | None = None
        self._writer: apsw.Connection | None = None
        self._read_only = False
        """Whether the disk was too full to open the database for writing."""
        self._data_version = -1
        """SQLite's count of changes at the last commit; if it is the same at the next, no other process has written."""

    # --- opening and closing ---------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, create or upgrade; raise when that is not possible."""
        _check_library()
        try:
            with translate_errors(self.place):
                created = self._create_file()
                level = self._connect_reader()
                todo = upgrade.pending(upgrade.steps("sqlite", self._schema), level, self.place)
                if todo:
                    self._upgrade(level, todo)
                if created:
                    sync_folder(self.path.parent)
        except BaseException:
            await self.close(refused=True)
            raise

    async def close(self, *, refused: bool = False) -> None:
        """Copy the log into the database and close it; a database that was refused is left as it is."""
        self._bell.close()
        log = self.path.with_name(self.path.name + "-wal")
        if refused and self._reader is not None and log.exists() and log.stat().st_size:
            # Behind the damage the log may have frames that can still be recovered; copying it would lose them.
            self._reader.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        for connection in (self._writer, self._reader):
            if connection is not None:
                connection.close()
        self._writer = self._reader = self._stamps = None
        self.mark.close()

    def _create_file(self) -> bool:
        """Create the file, readable by its owner only; SQLite gives its other files the same mode."""
        if not self._create and (not self.path.exists() or self.path.stat().st_size == 0):
            raise NotFound(f"there is no database {self.place}", hint="check the path; nothing was created")
        if self._vfs is not None:
            return False
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            return False
        except OSError as error:
            raise StoreUnavailable(
                f"{self.place} cannot be created: {error.strerror}",
                written=False,
                hint="check that the folder exists and is writable",
            ) from error
        return True

    def _connect_reader(self) -> int:
        """Open the connection for reading; return the schema level.

        A first connection needs space for the shared-memory file. A full disk has none, but reading must still work:
        in exclusive mode SQLite keeps that file in memory. Nothing can be written then.
        """
        self._reader = self._connect()
        try:
            level = self._level()
        except apsw.IOError as error:
            if not _is_full(error):
                raise
            self._reader.close()
            self._reader = self._connect()
            self._reader.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._read_only = True
            self.notes.append(f"{DiskFull(self.place).what}: opened for reading only")
            level = self._level()
        self._stamps = self._reader.cursor()
        return level

    def _connect(self) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        connection = apsw.Connection(str(self.path), flags, vfs=self._vfs)
        connection.set_busy_timeout(BUSY_MS_MAX)
        connection.create_scalar_function("now_us", lambda *_: self._clock.now_us(), 0)
        return connection

    def _connect_writer(self, *, new: bool = False) -> apsw.Connection:
        if self._read_only:
            raise DiskFull(self.place)
        connection = self._connect()
        if new:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # so that pages freed by compaction can be returned
        self._switch_to_wal(connection)  # a copy made by VACUUM INTO is not in that mode
        connection.execute("PRAGMA synchronous = FULL")
        if _one(connection, "PRAGMA synchronous") != 2:
            raise StoreUnavailable(f"{self.place}: synchronous=FULL was not accepted", written=False)
        connection.set_wal_hook(self._after_commit)  # replaces SQLite's own checkpoints; see `maintain`
        self._writer = connection
        return connection

    def _after_commit(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self.wal_pages = pages
        return apsw.SQLITE_OK

    # --- schema ----------------------------------------------------------------------------------------------

    def _level(self) -> int:
        """Return the schema level; refuse a database of another program."""
        assert self._reader is not None
        row: Any = self._reader.execute(
            "SELECT user_version, (SELECT count(*) FROM sqlite_schema),"
            " (SELECT count(*) FROM sqlite_schema WHERE name IN ('streams', 'events')) FROM pragma_user_version"
        ).fetchone()
        level, tables, ours = row
        if tables if level == 0 else ours < 2:
            raise UnknownFormat(
                f"{self.place} is a SQLite database, but not a journal",
                hint="give maos a file of its own; nothing was changed",
            )
        return int(level)

    def _upgrade(self, level: int, todo: Sequence[upgrade.UpgradeStep]) -> None:
        connection = self._connect_writer(new=level == 0)
        try:
            for step in todo:
                crash_point(f"upgrade: before level {step.level}")
                connection.execute("BEGIN IMMEDIATE")
                try:
                    found = int(_one(connection, "PRAGMA user_version"))
                    if found < step.level:  # or another process was first
                        if found and found == level:
                            self._keep_copy(level)
                        connection.execute(step.sql)
                        connection.execute(f"PRAGMA user_version = {step.level:d}")
                    crash_point(f"upgrade: level {step.level} not committed")
                    connection.execute("COMMIT")
                except BaseException:
                    _roll_back(connection)
                    raise
        finally:
            connection.close()
            self._writer = None

    def add_views(self, views: str) -> None:
        """Create or update the SQL views, which other programs use and maos does not need.

        Not part of opening: SQLite would parse every view each time, which would double its cost.
        """
        if self._read_only or _one(self._open_reader(), VIEWS_KNOWN, views):
            return
        connection = self._connect()
        connection.set_wal_hook(self._after_commit)
        try:
            connection.execute("BEGIN IMMEDIATE")
            if not _one(connection, VIEWS_KNOWN, views):  # or another process was first
                connection.execute(views)
            connection.execute("COMMIT")
        except apsw.Error as error:
            _roll_back(connection)
            self.notes.append(f"the views could not be created: {error}")
        finally:
            connection.close()

    def _switch_to_wal(self, connection: apsw.Connection) -> None:
        if _one(connection, "PRAGMA journal_mode") == "wal":
            return
        deadline = time.monotonic() + BUSY_MS_MAX / 1000
        while True:
            try:
                mode = _one(connection, "PRAGMA journal_mode = WAL")
            except apsw.BusyError:  # another process is creating it; SQLite does not wait here
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.005)
                continue
            if mode != "wal" and self._vfs is None:
                raise StoreUnavailable(
                    f"{self.place}: the file system does not allow write-ahead logging",
                    written=False,
                    hint="put the database on a local disk",
                )
            return

    def _keep_copy(self, level: int) -> None:
        """Copy the database while it is locked; replace a copy of a failed upgrade, which may lack newer events."""
        assert self._reader is not None
        copy = self.path.with_name(f"{self.path.name}.level-{level}.bak")
        _copy(self._reader, copy)
        self.notes.append(f"kept {copy} from before the schema upgrade")

    # --- reading ---------------------------------------------------------------------------------------------

    async def fetch(self, query: str, *arguments: apsw.SQLiteValue) -> list[Row]:
        """Return all rows of a short read, on this thread: another would cost more than the read."""
        try:
            rows: list[Row] = self._open_reader().execute(self._sql[query], arguments).fetchall()
        except (apsw.Error, UnicodeDecodeError) as error:
            raise translate(error, self.place) from error
        if query in _EVENT_QUERIES and [*map(type, chain.from_iterable(rows))] != _EVENT_TYPES * len(rows):
            raise _wrong_type(rows)
        return rows

    async def fetch_row(self, query: str, *arguments: apsw.SQLiteValue) -> Row | None:
        """Return the first row, or None."""
        try:
            return self._open_reader().execute(self._sql[query], arguments).fetchone()
        except (apsw.Error, UnicodeDecodeError) as error:
            raise translate(error, self.place) from error

    def _open_reader(self) -> apsw.Connection:
        if self._reader is None:
            raise self._closed()
        return self._reader

    def _closed(self) -> StoreUnavailable:
        return StoreUnavailable(f"{self.place} is closed", written=False, hint="open it again")

    def stamp(self) -> int | None:
        """Return SQLite's count of changes by other connections; the reading one makes none itself."""
        if self._stamps is None:
            raise self._closed()
        try:
            stamp: int = self._stamps.execute("PRAGMA data_version").get
        except apsw.Error as error:
            raise translate(error, self.place) from error
        return stamp

    async def listen(self, woken: Callable[[], None]) -> None:
        """Call `woken` after commits of other processes."""
        self._bell.listen(woken)

    # --- writing ---------------------------------------------------------------------------------------------

    def commit_now(self, ledger: Ledger, batch: Sequence[AppendRequest]) -> bool:
        """Write a batch on this thread, unless another process is writing."""
        try:
            self._transact(ledger, batch)
        except _Locked:
            return False
        return True

    async def commit(self, ledger: Ledger, batch: Sequence[AppendRequest]) -> None:
        """Write a batch, waiting for other processes if necessary."""
        self._transact(ledger, batch, wait_ms=BUSY_MS_MAX)

    def _transact(self, ledger: Ledger, batch: Sequence[AppendRequest], wait_ms: int = 0) -> None:
        """Decide and write a batch in one transaction."""
        connection = self._writer or self._connect_writer()
        self._begin(connection, wait_ms)
        try:
            plan = self._decide(connection, ledger, batch)
            if plan.empty:
                connection.execute("ROLLBACK")
                return
            self._write(connection, plan)
            crash_point("commit: written, not committed")
            connection.execute("COMMIT")
            self._data_version = connection.data_version()
        except BaseException as error:
            self._data_version = -1
            _roll_back(connection)
            if isinstance(error, apsw.ReadOnlyError):
                connection.close()  # this connection stays read-only; a new one may be allowed to write later
                self._writer = None
            raise
        crash_point("commit: committed, not marked")
        ledger.advance(plan)
        if plan.rows:
            self.mark.write(Mark(ledger.position, plan.last_hash))
        crash_point("commit: marked, not announced")
        self._bell.ring()

    def _begin(self, connection: apsw.Connection, wait_ms: int) -> None:
        """Acquire the write lock. Others hold it for less than a millisecond, SQLite's shortest wait."""
        connection.set_busy_timeout(0)
        until_s, pause_s = time.monotonic() + wait_ms / 1000, LOCK_PAUSE_S
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                break
            except apsw.BusyError:
                if not wait_ms:
                    raise _Locked from None
                if time.monotonic() > until_s:
                    raise
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.25, LOCK_PAUSE_S_MAX)
        connection.set_busy_timeout(wait_ms)

    async def execute(self, query: str, *arguments: apsw.SQLiteValue) -> list[Row]:
        """Execute one small write of its own, such as acquiring a lease; needs the writer's turn."""
        with translate_errors(self.place):
            connection = self._writer or self._connect_writer()
            connection.set_busy_timeout(BUSY_MS_MAX)
            return connection.execute(self._sql[query], arguments).fetchall()

    def outcome_unknown(self, error: Exception) -> bool:
        """Return True unless the disk was full, or the database locked or read-only: these write nothing."""
        return isinstance(error, apsw.Error) and not isinstance(
            error, (apsw.FullError, apsw.BusyError, apsw.ReadOnlyError)
        )

    def explain(self, error: Exception) -> Exception:
        """Return the error to raise for a failure of SQLite."""
        return translate(error, self.place) if isinstance(error, apsw.Error) else error

    async def recover(self) -> None:
        """Reconnect after an I/O error, and write everything that is readable to disk again (I9).

        After a failed fsync, pages may be lost although the page cache still has them. Copying the log into the
        database writes these pages again and syncs them there.
        """
        if self._writer is not None:
            with contextlib.suppress(apsw.Error):  # it is replaced because it is broken
                self._writer.close()
            self._writer = None
        with translate_errors(self.place):
            self._connect_writer().wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)

    async def was_written(self, plan: WriteBatch) -> bool | None:
        """Return whether a plan with an unknown outcome is in the database; None if it was compacted since."""
        if not plan.rows:
            return False  # documents only: they can be written again
        assert self._writer is not None
        with translate_errors(self.place):
            return plan.matches(self._writer.execute(self._sql["hash_at"], plan.last_version).fetchone())

    def needs_maintenance(self) -> bool:
        """Return whether the log has grown enough to be copied into the database, or to be preallocated."""
        return self.wal_pages >= self._maintain_at

    def maintain_concurrently(self) -> None:
        """Copy most of the log on a connection of its own, while commits continue."""
        if self._preallocated_pages < WAL_PREALLOCATED_PAGES[-1]:
            return
        self._maintain_at = self.wal_pages + WAL_PAGES_MAX  # if this fails, retry later
        with translate_errors(self.place):
            connection = self._connect()
            try:
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            finally:
                connection.close()

    async def maintain(self) -> None:
        """Copy the rest of the log, so that the next commit starts it from the beginning."""
        writer = self._writer or self._connect_writer()
        with translate_errors(self.place):
            if self._preallocated_pages < WAL_PREALLOCATED_PAGES[-1]:
                self._preallocate_wal(writer)
                return
            self._maintain_at = WAL_PAGES_MAX
            writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            writer.execute("PRAGMA incremental_vacuum").fetchall()  # return the pages that compaction freed
        self.mark.sync()
        self.wal_pages = 0

    def _preallocate_wal(self, writer: apsw.Connection) -> None:
        """Fill the log file with zeros up to its usual length: syncing a file that does not grow takes half the time.

        SQLite ignores what follows the last valid frame. The write lock is held, so no process appends frames where the
        zeros go. Unlike the database file, the log has no locks that closing it here could drop.
        """
        pages = next(pages for pages in WAL_PREALLOCATED_PAGES if pages > self._preallocated_pages)
        self._preallocated_pages = pages
        self._maintain_at = min(WAL_PAGES_MAX, pages - pages // 8)
        if self._vfs is not None:
            return
        length = 32 + pages * (24 + 4096)  # a header, and for each page its header and itself
        writer.set_busy_timeout(BUSY_MS_MAX)
        writer.execute("BEGIN IMMEDIATE")
        try:
            log = os.open(f"{self.path}-wal", os.O_RDWR | os.O_CLOEXEC)
            try:
                size = os.fstat(log).st_size
                if size < length:
                    os.pwrite(log, bytes(length - size), size)
                    os.fdatasync(log)
            finally:
                os.close(log)
        except OSError as error:  # no space for the zeros: the log grows as needed
            self.notes.append(f"{self.place}-wal was not preallocated: {error.strerror}")
        finally:
            writer.execute("ROLLBACK")

    def _decide(self, connection: apsw.Connection, ledger: Ledger, batch: Sequence[AppendRequest]) -> WriteBatch:
        sql = self._sql
        if connection.data_version() != self._data_version or ledger.position < 0:
            # Another process has committed since, or may have.
            position, time_us, _hash = connection.execute(sql["log_head"]).fetchone() or (0, 0, None)
            if position != ledger.position:
                self._catch_up(connection, ledger, position, time_us)
        unknown = ledger.unknown(batch)
        if unknown:
            ledger.learn(unknown, dict(_heads(connection, sql["stream_head"], unknown)))
        keys: dict[str, KeyRow] = {}
        leases: dict[str, tuple[int, int]] = {}
        for request in batch:
            if request.key is not None:
                row = connection.execute(sql["used_key"], (request.key.id,)).fetchone()
                if row:
                    keys[row[0]] = KeyRow(*row)
            if request.under is not None:
                row = connection.execute(sql["lease"], (request.under.name,)).fetchone()
                if row:
                    leases[request.under.name] = row
        return ledger.decide(batch, self._clock.now_us(), leases, keys)

    def _catch_up(self, connection: apsw.Connection, ledger: Ledger, position: int, time_us: int) -> None:
        news: Iterable[tuple[str, Head]] | None = None
        if 0 <= ledger.position < position <= ledger.position + NEWS_MAX:
            rows: Any = connection.execute(self._sql["news"], (ledger.position, NEWS_MAX)).fetchall()
            news = [(name, (id_, version, hash_)) for name, id_, version, hash_ in rows]
        ledger.catch_up(position, time_us, int(_one(connection, self._sql["next_stream"])), news)

    def _write(self, connection: apsw.Connection, plan: WriteBatch) -> None:
        sql = self._sql
        for stream in plan.streams:
            connection.execute(sql["insert_stream"], stream)
        rows = plan.rows
        whole = len(rows) - len(rows) % ROWS_AT_ONCE
        for start in range(0, whole, ROWS_AT_ONCE):
            connection.execute(_INSERT_EVENTS, tuple(chain.from_iterable(rows[start : start + ROWS_AT_ONCE])))
        for row in rows[whole:]:
            connection.execute(_INSERT_EVENT, row)
        crash_point("commit: events inserted")
        for key in plan.keys.values():
            connection.execute(sql["insert_key"], key)
        for document in plan.documents:
            if document.body is None:
                connection.execute(sql["delete_document"], document[:3])
            else:
                connection.execute(sql["save_document"], document)
        for stream_id, replacement in plan.replacing:
            _replace(connection, sql, stream_id, replacement)

    # --- copying and checking ------------------------------------------------------------------------------------

    async def copy_to(self, target: Path) -> int:
        """Copy the database to another file, completely or not at all, while in use; return its newest position."""

        def work(connection: apsw.Connection) -> int:
            log = target.with_name(target.name + "-wal")
            if log.exists() or (target.exists() and target.samefile(self.path)):
                # A copy under the name of a database in use would be mixed with its log, and events be lost.
                raise InvalidInput(f"{target} is a database in use", hint="name a file that does not exist")
            with translate_errors(self.place):
                _copy(connection, target)
                return self._head_of_copy(target)

        return await self._read_long(work)

    def _head_of_copy(self, copy: Path) -> int:
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(f"{copy.absolute().as_uri()}?immutable=1", flags)  # creates no files beside it
        try:
            row: Any = connection.execute(self._sql["log_head"]).fetchone()
            return row[0] if row else 0
        finally:
            connection.close()

    async def problems(self) -> list[str]:
        """Return what SQLite's own integrity check finds."""

        def work(connection: apsw.Connection) -> list[Row]:
            try:
                return connection.execute("PRAGMA integrity_check(20)").fetchall()
            except apsw.CorruptError as error:
                return [(str(error),)]

        rows = await self._read_long(work)
        return [str(row[0]) for row in rows if row[0] != "ok"]

    async def _read_long(self, work: Callable[[apsw.Connection], T]) -> T:
        """Read in a thread on a connection of its own; on the only one there can be when opened for reading only."""
        if self._read_only:
            return work(self._open_reader())

        def run() -> T:
            connection = self._connect()
            try:
                return work(connection)
            finally:
                connection.close()

        return await asyncio.get_running_loop().run_in_executor(None, run)


def _copy(connection: apsw.Connection, target: Path) -> None:
    partial = target.with_name(target.name + ".partial")
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    crash_point("copy: begun")
    try:
        connection.execute("VACUUM INTO ?", (str(partial),))
        descriptor = os.open(partial, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        crash_point("copy: not yet named")
        partial.rename(target)
    except BaseException:  # an incomplete copy is useless, and may be what filled the disk
        for left in (partial, partial.with_name(partial.name + "-journal")):
            left.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def _roll_back(connection: apsw.Connection) -> None:
    if connection.in_transaction:
        with contextlib.suppress(apsw.Error):  # the first error matters
            connection.execute("ROLLBACK")


def _heads(connection: apsw.Connection, query: str, names: Iterable[str]) -> Iterable[tuple[str, Head]]:
    for name in names:
        row = connection.execute(query, (name,)).fetchone()
        if row:
            yield name, row


def _replace(connection: apsw.Connection, sql: dict[str, str], stream: int, replacement: Replacement) -> None:
    first, last, event = replacement.first, replacement.last, replacement.event
    connection.execute(sql["replace_last"], (stream, last, last - first + 1, event.type, event.format, event.body))
    if connection.changes() != 1:
        raise InvalidInput(f"versions {first}..{last} of {replacement.stream} are not whole events")
    connection.execute(sql["delete_replaced"], (stream, first, last))


def _one(connection: apsw.Connection, query: str, *arguments: apsw.SQLiteValue) -> Any:
    row = connection.execute(query, arguments).fetchone()
    assert row is not None
    return row[0]


def _check_library() -> None:
    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < SQLITE_MIN:
        raise StoreUnavailable(
            f"the SQLite library is {apsw.sqlite_lib_version()}, which can lose committed writes",
            written=False,
            hint="install apsw 3.51.3 or newer",
        )


@contextlib.contextmanager
def translate_errors(place: str) -> Iterator[None]:
    """Raise errors of maos for errors of SQLite."""
    try:
        yield
    except apsw.Error as error:
        raise translate(error, place) from error


def _wrong_type(rows: Iterable[Row]) -> Corrupt:
    stream, version = next(row[1:3] for row in rows if [*map(type, row)] != _EVENT_TYPES)
    return Corrupt(
        f"{stream} has an event with a column of another type at version {version}",
        stream=str(stream),
        version=version if isinstance(version, int) else 0,
    )


def _is_full(error: Exception) -> bool:
    """Return whether the disk has no space left for a page, or for the shared-memory file."""
    return isinstance(error, apsw.FullError) or getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE


def translate(error: apsw.Error | UnicodeDecodeError, place: str) -> MaosError:
    """Return the error of maos for an error of SQLite."""
    if _is_full(error):
        return DiskFull(place)
    if isinstance(error, apsw.BusyError):
        return StoreUnavailable(
            f"another process has kept {place} locked for {BUSY_MS_MAX // 1000} s",
            written=False,
            hint="find that process with `lsof`; wait for it, or end it",
        )
    if isinstance(error, (apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError)):
        return Corrupt(
            f"{place} is damaged or not a maos database: {error}",
            hint="check the path; if it is the right file, restore a copy and run `maos state verify` on it",
        )
    if isinstance(error, (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError)):
        return StoreUnavailable(
            f"{place} cannot be opened for writing: {error}",
            written=False,
            hint="check that the folder exists and is writable",
        )
    return StoreUnavailable(
        f"{place}: {error}",
        written=None,
        hint="the outcome is unknown; repeating the append under the same key is safe",
    )
