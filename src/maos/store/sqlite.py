"""The journal in one SQLite file, or in the memory of SQLite, through apsw.

apsw includes its own SQLite: every release before 3.51.3 can lose committed writes in a race of checkpoint and commit.
Reads and uncontended commits run on the event loop's thread (microseconds, and one fsync); group commits run in one
worker thread. Only the driver opens the live file: closing it elsewhere would drop SQLite's locks.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import apsw

from maos.clock import Clock
from maos.errors import DiskFull, InvalidInput, NotFound, StoreUnavailable, UnknownFormat
from maos.faults import crash_point
from maos.files import sync_folder
from maos.store import database, sqlite_file
from maos.store.database import Database, Mark, MarkFile, Row
from maos.store.ledger import AppendRequest, Asking, Ledger, WriteBatch
from maos.store.patience import WAIT_S, Patience
from maos.store.sqlite_file import (
    BUSY_MS_MAX,
    EVENT_TYPES,
    Bell,
    is_full,
    one,
    roll_back,
    translate,
    translate_errors,
    wrong_type,
)

LOCK_PAUSE_S = 0.000_1  # the first pause before a lock is tried again
LOCK_PAUSE_S_MAX = 0.01
WAL_PAGES_MAX = 1_000  # with more pages the log is copied into the database
WAL_PREALLOCATED_PAGES = (256, 1_100)  # the log is preallocated: a part soon, all of it for processes that write much
WAL_PAGES_PREALLOCATED = 12  # from this many pages on; not for a process that writes once and ends

FULL_LOOK_S = 1.0  # how often a process that was opened on a full disk looks whether there is space again
ROWS_AT_ONCE = 16  # rows per statement: a third less work than one each

_VALUES = "(?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT = "INSERT INTO events (position, stream, version, type, format, time_us, token, body, hash) VALUES "
_INSERT_EVENT = _INSERT + _VALUES
_INSERT_EVENTS = _INSERT_EVENT + f", {_VALUES}" * (ROWS_AT_ONCE - 1)

VIEWS_KNOWN = "SELECT count(*) FROM sqlite_schema WHERE type = 'view' AND name = 'maos_views' AND instr(?, sql)"

_EVENT_QUERIES = frozenset(("read_stream", "read_stream_backwards", "read_log"))
T = TypeVar("T")


@cache
def _statements() -> dict[str, str]:
    """Return each statement by its name, with the parameters of SQLite."""
    return {name: re.sub(r"\$(\d)", r"?\1", query) for name, query in database.statements().items()}


class SqliteDatabase(Database):
    """The connections to one SQLite file, and the transactions of the writer."""

    blocking = True

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        create: bool = True,
        vfs: str | None = None,
        schema: Path | None = None,
        wait_s: float | None = WAIT_S,
    ) -> None:
        self.place = str(path)
        self.patience = Patience(self.place, clock, wait_s)
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
        self._sql = _statements()
        self._reader: apsw.Connection | None = None
        self._stamps: apsw.Cursor | None = None
        self._writer: apsw.Connection | None = None
        self._is_full = False
        """Whether the disk was too full to open the database for writing."""
        self._frozen: tuple[int, ...] | None = None
        """The file as it was when it was opened without locks, because its folder can only be read; else None."""
        self._generation = 0
        """How often the connection for reading was opened."""
        self._look_again_s = 0.0
        self._data_version = -1
        """SQLite's count of changes at the last commit; if it is the same at the next, no other process has written."""

    # --- opening and closing ---------------------------------------------------------------------------------

    async def open(self) -> None:
        sqlite_file.check_library()
        try:
            with translate_errors(self.place):
                if not self._create and (not self.path.exists() or self.path.stat().st_size == 0):
                    raise NotFound(f"there is no database {self.place}", hint="check the path; nothing was created")
                created = self._vfs is None and sqlite_file.create(self.path, self.place)
                number = self.file_number() if self._vfs is None else 0
                level = self._connect_reader()
                if number and self.file_number() != number:  # a restored database took its place while it was locked
                    level = self._connect_reader()
                todo = database.pending(database.steps("sqlite", self._schema), level, self.place)
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

    def _connect_reader(self) -> int:
        """Open the connection for reading; return the schema level.

        A first connection needs space for the shared-memory file. A full disk has none, but reading must still work:
        in exclusive mode SQLite keeps that file in memory. Nothing can be written until there is space.

        A folder that can only be read has no room for that file either. A database that no process has open there is
        opened without locks, and every read checks that the file has not changed meanwhile.
        """
        if self._reader is not None:
            self._reader.close()
        self._is_full, self._frozen = False, None
        self._generation += 1
        if self._vfs is None and sqlite_file.can_only_be_read(self.path, self.place):
            self._frozen = sqlite_file.settled_state(self.path)
            self._reader = sqlite_file.open_frozen(self.path)
            self._reader.create_scalar_function("now_us", lambda *_: self._clock.now_us(), 0)
        else:
            self._reader = self._connect()
        try:
            level = self._level()
        except apsw.IOError as error:
            if not is_full(error):
                raise
            self._reader.close()
            self._reader = self._connect()
            self._reader.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._is_full = True
            self._look_again_s = time.monotonic() + FULL_LOOK_S
            if (note := f"{DiskFull(self.place).what}: opened for reading only") not in self.notes:
                self.notes.append(note)
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
        if self._is_full:
            raise DiskFull(self.place)
        if self._frozen is not None and sqlite_file.can_only_be_read(self.path, self.place):
            raise translate(apsw.ReadOnlyError("it can only be read"), self.place)  # trying would leave files behind
        connection = self._connect()
        if new:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # so that pages freed by compaction can be returned
        sqlite_file.switch_to_wal(
            connection, self.place, is_real=self._vfs is None
        )  # a copy made by VACUUM INTO is not in that mode
        connection.execute("PRAGMA synchronous = FULL")
        if one(connection, "PRAGMA synchronous") != 2:
            raise StoreUnavailable(f"{self.place}: synchronous=FULL was not accepted", written=False)
        if self.is_encrypted:
            connection.execute("PRAGMA secure_delete = ON")  # a key that is erased must not stay in a free page
        elif sqlite_file.has_keys(connection):
            connection.close()
            hint = "start this process again"
            raise StoreUnavailable(f"{self.place} was encrypted meanwhile", written=False, hint=hint)
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

    def _upgrade(self, level: int, todo: Sequence[database.UpgradeStep]) -> None:
        connection = self._connect_writer(new=level == 0)
        try:
            for step in todo:
                crash_point(f"upgrade: before level {step.level}")
                connection.execute("BEGIN IMMEDIATE")
                try:
                    found = int(one(connection, "PRAGMA user_version"))
                    if found < step.level:  # or another process was first
                        if found and found == level:
                            self._keep_copy(level)
                        connection.execute(step.sql)
                        connection.execute(f"PRAGMA user_version = {step.level:d}")
                    crash_point(f"upgrade: level {step.level} not committed")
                    connection.execute("COMMIT")
                except BaseException:
                    roll_back(connection)
                    raise
        finally:
            connection.close()
            self._writer = None

    def add_views(self, views: str) -> None:
        """Create or update the SQL views, which other programs use and maos does not need.

        Not part of opening: SQLite would parse every view each time, which would double its cost.
        """
        if self._is_full or self._frozen is not None or one(self._open_reader(), VIEWS_KNOWN, views):
            return
        connection = self._connect()
        connection.set_wal_hook(self._after_commit)
        try:
            connection.execute("BEGIN IMMEDIATE")
            if not one(connection, VIEWS_KNOWN, views):  # or another process was first
                connection.execute(views)
            connection.execute("COMMIT")
        except (apsw.ReadOnlyError, apsw.CantOpenError):
            roll_back(connection)  # it can only be read
        except apsw.Error as error:
            roll_back(connection)
            self.notes.append(f"the views could not be created: {error}")
        finally:
            connection.close()

    def _keep_copy(self, level: int) -> None:
        """Copy the database while it is locked; replace a copy of a failed upgrade, which may lack newer events."""
        assert self._reader is not None
        copy = self.path.with_name(f"{self.path.name}.level-{level}.bak")
        sqlite_file.copy(self._reader, copy)
        self.notes.append(f"kept {copy} from before the schema upgrade")

    # --- reading ---------------------------------------------------------------------------------------------

    async def fetch(self, query: str, *arguments: apsw.SQLiteValue) -> list[Row]:
        """Return all rows of a short read, on this thread: another would cost more than the read."""
        try:
            rows: list[Row] = self._open_reader().execute(self._sql[query], arguments).fetchall()
            while self._has_changed():
                rows = self._open_reader().execute(self._sql[query], arguments).fetchall()
        except (apsw.Error, UnicodeDecodeError) as error:
            if self._has_changed():
                return await self.fetch(query, *arguments)
            raise translate(error, self.place) from error
        if query in _EVENT_QUERIES and [*map(type, chain.from_iterable(rows))] != EVENT_TYPES * len(rows):
            raise wrong_type(rows)
        return rows

    async def fetch_row(self, query: str, *arguments: apsw.SQLiteValue) -> Row | None:
        if self._frozen is not None:
            rows = await self.fetch(query, *arguments)
            return rows[0] if rows else None
        try:
            return self._open_reader().execute(self._sql[query], arguments).fetchone()
        except (apsw.Error, UnicodeDecodeError) as error:
            raise translate(error, self.place) from error

    def _open_reader(self) -> apsw.Connection:
        if self._reader is None:
            raise self.closed()
        if self._is_full and time.monotonic() > self._look_again_s:
            self._connect_reader()  # there may be space again
        return self._reader

    def _has_changed(self) -> bool:
        """Return whether a database that was opened without locks has changed since, and was opened again."""
        if self._frozen is None or self._frozen == sqlite_file.state(self.path):
            return False
        self._connect_reader()
        return True

    def stamp(self) -> int | None:
        """Return SQLite's count of changes by other connections; the reading one makes none itself."""
        if self._stamps is None:
            raise self.closed()
        try:
            if self._frozen is not None or self._is_full:
                self._has_changed()
                self._open_reader()
            stamp: int = self._stamps.execute("PRAGMA data_version").get
        except apsw.Error as error:
            raise translate(error, self.place) from error
        return stamp + (self._generation << 40)

    async def listen(self, woken: Callable[[], None]) -> None:
        self._bell.listen(woken)

    def want(self, streams: frozenset[str] | None) -> None:
        self._bell.want(streams)

    def mute(self) -> None:
        self._bell.mute()

    def unmute(self) -> None:
        self._bell.unmute()

    # --- writing ---------------------------------------------------------------------------------------------

    def commit_now(self, ledger: Ledger, batch: Sequence[AppendRequest]) -> bool:
        """Write a batch on this thread, unless another process is writing."""
        if self._is_full:
            self._connect_reader()  # there may be space again
        return self._transact(ledger, batch, wait_ms=0)

    async def commit(self, ledger: Ledger, batch: Sequence[AppendRequest]) -> None:
        self._transact(ledger, batch, wait_ms=BUSY_MS_MAX)

    def _transact(self, ledger: Ledger, batch: Sequence[AppendRequest], wait_ms: int) -> bool:
        """Decide and write a batch in one transaction; return False when it would have to wait and may not."""
        connection = self._writer or self._connect_writer()
        if not self._begin(connection, wait_ms):
            return False
        try:
            plan = self._decide(connection, ledger, batch)
            if plan.empty:
                connection.execute("ROLLBACK")
                return True
            self._write(connection, plan)
            crash_point("commit: written, not committed")
            connection.execute("COMMIT")
            self._data_version = connection.data_version()
        except BaseException as error:
            self._data_version = -1
            roll_back(connection)
            if isinstance(error, apsw.ReadOnlyError):
                connection.close()  # this connection stays read-only; a new one may be allowed to write later
                self._writer = None
            raise
        crash_point("commit: committed, not marked")
        ledger.advance(plan)
        if plan.rows:
            self.mark.write(Mark(ledger.position, plan.last_hash))
        crash_point("commit: marked, not announced")
        self._bell.ring(write.stream for request in batch for write in request.writes)
        return True

    def _begin(self, connection: apsw.Connection, wait_ms: int) -> bool:
        """Acquire the write lock, if need be after a wait. Others hold it for less than SQLite's shortest wait."""
        connection.set_busy_timeout(0)
        until_s, pause_s = time.monotonic() + wait_ms / 1000, LOCK_PAUSE_S
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                break
            except apsw.BusyError:
                if not wait_ms:
                    return False
                if time.monotonic() > until_s:
                    raise
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.25, LOCK_PAUSE_S_MAX)
        connection.set_busy_timeout(wait_ms)
        return True

    async def execute(self, query: str, *arguments: apsw.SQLiteValue) -> list[Row]:
        with translate_errors(self.place):
            connection = self._writer or self._connect_writer()
            connection.set_busy_timeout(BUSY_MS_MAX)
            return connection.execute(self._sql[query], arguments).fetchall()

    async def write_all(self, changes: Iterable[tuple[str, Sequence[Row]]], *, what: str) -> None:
        with translate_errors(self.place):
            connection = self._writer or self._connect_writer()
            self._begin(connection, BUSY_MS_MAX)
            self._data_version = -1  # what the writer knows of the journal is outdated
            try:
                for query, arguments in changes:
                    connection.executemany(self._sql[query], arguments)
                crash_point(f"{what}: written, not committed")
                connection.execute("COMMIT")
            except BaseException:
                roll_back(connection)
                raise

    async def forget_freed(self) -> bool:
        """Copy the log into the database and empty it, so that it has no earlier content of any page."""
        with translate_errors(self.place):
            connection = self._writer or self._connect_writer()
            connection.set_busy_timeout(BUSY_MS_MAX)
            try:
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except apsw.BusyError:  # another process reads an older state
                return False
        self.wal_pages = 0
        return True

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

    def needs_maintenance(self) -> bool:
        """Return whether the log has grown enough to be copied into the database, or to be preallocated."""
        return self.wal_pages >= self._maintain_at

    def maintain_concurrently(self) -> None:
        """Copy most of the log on a connection of its own, while commits continue."""
        if self._preallocated_pages < WAL_PREALLOCATED_PAGES[-1]:
            return
        self._maintain_at = self.wal_pages + WAL_PAGES_MAX  # if this fails, retry later
        with translate_errors(self.place), contextlib.closing(self._connect()) as connection:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

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
        """Preallocate the log: a part of it, or all of it for a process that writes much."""
        pages = next(pages for pages in WAL_PREALLOCATED_PAGES if pages > self._preallocated_pages)
        self._preallocated_pages = pages
        self._maintain_at = min(WAL_PAGES_MAX, pages - pages // 8)
        if self._vfs is not None:
            return
        try:
            sqlite_file.preallocate(writer, self.path, pages)
        except OSError as error:  # no space for the zeros: the log grows as needed
            self.notes.append(f"{self.place}-wal was not preallocated: {error.strerror}")

    def _decide(self, connection: apsw.Connection, ledger: Ledger, batch: Sequence[AppendRequest]) -> WriteBatch:
        if connection.data_version() != self._data_version or ledger.position < 0:
            # Another process has committed since, or may have.
            position, time_us, _hash = connection.execute(self._sql["log_head"]).fetchone() or (0, 0, None)
            if position != ledger.position:
                self._answer(connection, ledger.news(position, time_us))
        leases, keys = self._answer(connection, ledger.facts(batch))
        return ledger.decide(batch, self._clock.now_us(), leases, keys)

    def _answer(self, connection: apsw.Connection, asking: Asking[T]) -> T:
        """Execute the queries that the ledger asks for, and return what it makes of the rows."""
        rows: list[Row] | None = None
        try:
            while True:
                query, *arguments = asking.send(rows)
                rows = connection.execute(self._sql[query], arguments).fetchall()
        except StopIteration as done:
            found: T = done.value
            return found

    def _write(self, connection: apsw.Connection, plan: WriteBatch) -> None:
        for stream in plan.streams:
            connection.execute(self._sql["insert_stream"], stream)
        rows = plan.rows
        whole = len(rows) - len(rows) % ROWS_AT_ONCE
        for start in range(0, whole, ROWS_AT_ONCE):
            connection.execute(_INSERT_EVENTS, tuple(chain.from_iterable(rows[start : start + ROWS_AT_ONCE])))
        for row in rows[whole:]:
            connection.execute(_INSERT_EVENT, row)
        crash_point("commit: events inserted")
        for key in plan.keys.values():
            connection.execute(self._sql["insert_key"], key)
        if plan.data_keys:
            plan.check_keyring(connection.execute(self._sql["keyring"]).fetchall())
            connection.executemany(self._sql["insert_data_key"], plan.data_key_rows())
        for query, arguments in plan.other_rows():
            connection.execute(self._sql[query], arguments)
            if query == "replace_last" and connection.changes() != 1:
                raise plan.not_whole(arguments)

    # --- copying and checking ------------------------------------------------------------------------------------

    def file_number(self) -> int:
        return os.stat(self.path).st_ino

    def belongs_to_another(self) -> str:
        owner = os.stat(self.path).st_uid
        return "" if owner == os.geteuid() else f"the user with the number {owner}"

    async def copy_to(self, target: Path) -> int:
        def work(connection: apsw.Connection) -> int:
            log = target.with_name(target.name + "-wal")
            if log.exists() or (target.exists() and target.samefile(self.path)):
                # A copy under the name of a database in use would be mixed with its log, and events be lost.
                raise InvalidInput(f"{target} is a database in use", hint="name a file that does not exist")
            with translate_errors(self.place):
                sqlite_file.copy(connection, target)
                return sqlite_file.head_of_copy(target, self._sql["log_head"])

        head = await self._read_long(work)
        if self.registry is not None and not await self.why_untrusted():
            self.registry.add(await self.identity(), os.stat(target).st_ino)
        return head

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
        if self._is_full or self._frozen is not None:
            result = work(self._open_reader())
            return await self._read_long(work) if self._has_changed() else result

        def run() -> T:
            with contextlib.closing(self._connect()) as connection:
                return work(connection)

        return await asyncio.get_running_loop().run_in_executor(None, run)


class MemoryDatabase(SqliteDatabase):
    """A SQLite database in the memory of this process: nothing is durable, and no other process can open it."""

    blocking = False  # no commit waits for a disk or for another process, so none needs a thread

    def __init__(self, clock: Clock) -> None:
        super().__init__(Path(f"/maos-{secrets.token_hex(8)}"), clock=clock, vfs="memdb")
        self.place = ":memory:"
        self.mark = MarkFile(None)

    async def listen(self, woken: Callable[[], None]) -> None:
        """No other process commits."""

    async def copy_to(self, target: Path) -> int:
        raise StoreUnavailable(
            f"a store in memory cannot be copied to {target}", written=False, hint="open a file instead"
        )
