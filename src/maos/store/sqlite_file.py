"""The files of an SQLite database (created, preallocated, copied), the pipes beside it that wake other processes, and
the errors of maos for errors of SQLite."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

from maos.clock import SystemClock
from maos.errors import Corrupt, DiskFull, InvalidInput, MaosError, StoreUnavailable
from maos.faults import crash_point
from maos.files import sync_folder, whole_file
from maos.store.database import Row
from maos.tuples import NamedTuple

SQLITE_MIN = (3, 51, 3)
WANTED_MAX = 16
"""How many streams the name of a pipe can name; a process that waits for more is woken by every commit."""
_WANTS = "="
BUSY_MS_MAX = 10_000  # how long a writer waits for other processes before it raises

# SQLite does not check that a stored value has its column's type; a flipped bit can turn a text into a number.
EVENT_TYPES: list[type] = [int, str, int, int, str, int, int, int, bytes, bytes]
_JUST_CHANGED_NS = 100_000_000
"""A folder that changed this recently may change again without a new time stamp."""


def create(path: Path, place: str) -> bool:
    """Create the file, readable by its owner only; SQLite gives its other files the same mode.

    A link is refused: it could come with a cloned repository and lead to any file of the person.
    """
    if path.is_symlink():
        raise InvalidInput(f"{place} is a link to {os.readlink(path)}", hint="give the path of the file itself")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    except OSError as error:
        raise StoreUnavailable(
            f"{place} cannot be created: {error.strerror}",
            written=False,
            hint="check that the folder exists and is writable",
        ) from error
    return True


def copy(connection: apsw.Connection, target: Path) -> None:
    """Copy a database to another file, completely or not at all."""
    with whole_file(target) as partial:
        connection.execute("VACUUM INTO ?", (str(partial),))


@contextlib.contextmanager
def closed_to_others(path: Path, place: str, *, readable: bool = False) -> Iterator[None]:
    """Keep every process from using a database for the time of the block, with everything in its one file, no log.

    With `readable`, it can be read meanwhile. A database in write-ahead mode is locked by each connection to it, so
    leaving that mode shows that there is none. Raises StoreUnavailable when a process has it open. A process that opens
    it meanwhile waits, and then looks which file has its name.
    """
    connection = apsw.Connection(str(path), apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(0)
        try:
            if not readable:
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = DELETE")  # copies the log into the file, and removes it
            connection.execute("BEGIN IMMEDIATE" if readable else "BEGIN EXCLUSIVE")
        except apsw.BusyError as error:
            raise StoreUnavailable(
                f"a process has {place} open",
                written=False,
                hint="end every `maos serve`, engine, command and MCP server that uses it; `lsof` finds them",
            ) from error
        except apsw.Error as error:
            raise translate(error, place) from error
        yield
    finally:
        connection.close()


def head_of_copy(copy: Path, query: str) -> int:
    """Return the newest position of a copy."""
    connection = open_frozen(copy)
    try:
        row: Any = connection.execute(query).fetchone()
        return row[0] if row else 0
    finally:
        connection.close()


def has_keys(connection: apsw.Connection) -> bool:
    """Return whether a database is encrypted; one below level 5 has no table of keys."""
    has_table = one(connection, "SELECT count(*) FROM sqlite_schema WHERE name = 'keyring'")
    return bool(has_table and one(connection, "SELECT count(*) FROM keyring"))


def put_in_place(new: Path, path: Path) -> None:
    """Replace a database that is held alone by another one, which is closed; at any time one of them is there."""
    path.with_name(f"{path.name}-head").unlink(missing_ok=True)  # the mark is of the old one
    crash_point("convert: mark removed")
    new.rename(path)
    sync_folder(path.parent)
    crash_point("convert: in place")
    for suffix in ("-head", "-wal", "-shm"):
        new.with_name(new.name + suffix).unlink(missing_ok=True)


def can_only_be_read(path: Path, place: str) -> bool:
    """Return whether a database has to be read without locks: it can only be read, and no process has it open.

    While a process has it open, or after it was killed, the shared-memory file is there, and SQLite can read it all.
    """
    writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    log, shared = (path.with_name(f"{path.name}-{end}") for end in ("wal", "shm"))
    if writable or not path.exists() or shared.exists():
        return False
    if log.exists() and log.stat().st_size:
        raise StoreUnavailable(
            f"{place} cannot be read: its newest events are in {log.name}, and {shared.name}, with which they are "
            f"read, cannot be created in a folder that can only be read",
            written=False,
            hint=f"copy {path.name} and {log.name} to another folder, and name the copy with --db",
        )
    return True


def state(path: Path) -> tuple[int, ...]:
    """Return numbers that change when a database that was opened without locks is written to."""
    found = os.stat(path)
    try:
        log_bytes = os.stat(f"{path}-wal").st_size
    except FileNotFoundError:
        log_bytes = 0
    return found.st_ino, found.st_size, found.st_mtime_ns, log_bytes


def settled_state(path: Path) -> tuple[int, ...]:
    """Return the state of a file once it is old enough that every later change would have another time stamp."""
    while True:
        found = state(path)
        if SystemClock().now_us() * 1000 - found[2] > _JUST_CHANGED_NS:
            return found
        time.sleep(_JUST_CHANGED_NS / 1e9)


def open_frozen(path: Path) -> apsw.Connection:
    """Open a database without locks and without the files beside it."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    return apsw.Connection(f"{path.absolute().as_uri()}?immutable=1", flags)


def switch_to_wal(connection: apsw.Connection, place: str, *, is_real: bool) -> None:
    """Turn on write-ahead logging; what is not on a real file system (`is_real` off) may go without."""
    if one(connection, "PRAGMA journal_mode") == "wal":
        return
    deadline = time.monotonic() + BUSY_MS_MAX / 1000
    while True:
        try:
            mode = one(connection, "PRAGMA journal_mode = WAL")
        except apsw.BusyError:  # another process is creating it; SQLite does not wait here
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)
            continue
        if mode != "wal" and is_real:
            raise StoreUnavailable(
                f"{place}: the file system does not allow write-ahead logging",
                written=False,
                hint="put the database on a local disk",
            )
        return


def preallocate(writer: apsw.Connection, database: Path, pages: int) -> None:
    """Fill the log with zeros up to a number of pages: syncing a file that does not grow takes half the time.

    SQLite ignores what follows the last valid frame. The write lock is held, so no process appends frames where the
    zeros go. Unlike the database file, the log has no locks that closing it here could drop.
    """
    length = 32 + pages * (24 + 4096)  # a header, and for each page its header and itself
    writer.set_busy_timeout(BUSY_MS_MAX)
    writer.execute("BEGIN IMMEDIATE")
    try:
        log = os.open(f"{database}-wal", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            size = os.fstat(log).st_size
            if size < length:
                os.pwrite(log, bytes(length - size), size)
                os.fdatasync(log)
        finally:
            os.close(log)
    finally:
        writer.execute("ROLLBACK")


def roll_back(connection: apsw.Connection) -> None:
    """Roll a transaction back, if there is one."""
    if connection.in_transaction:
        with contextlib.suppress(apsw.Error):  # the first error matters
            connection.execute("ROLLBACK")


def one(connection: apsw.Connection, query: str, *arguments: apsw.SQLiteValue) -> Any:
    """Return the first value of the first row."""
    row = connection.execute(query, arguments).fetchone()
    assert row is not None
    return row[0]


def check_library() -> None:
    """Refuse a library that can lose committed writes."""
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


def wrong_type(rows: Sequence[Row]) -> Corrupt:
    """Return the error for events of which one has a column of another type."""
    stream, version = next(row[1:3] for row in rows if [*map(type, row)] != EVENT_TYPES)
    return Corrupt(
        f"{stream} has an event with a column of another type at version {version}",
        stream=str(stream),
        version=version if isinstance(version, int) else 0,
    )


def is_full(error: Exception) -> bool:
    """Return whether the disk has no space left for a page, or for the shared-memory file."""
    return isinstance(error, apsw.FullError) or getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE


def translate(error: apsw.Error | UnicodeDecodeError, place: str) -> MaosError:
    """Return the error of maos for an error of SQLite."""
    if is_full(error):
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
            hint="check the path; if it is the right file, restore a copy and run `maos admin verify` on it",
        )
    if isinstance(error, (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError)):
        return StoreUnavailable(
            f"{place} cannot be opened for writing: {error}",
            written=False,
            hint="check that the folder exists and is writable",
        )
    return StoreUnavailable(f"{place}: {error}", written=None)


class _Peer(NamedTuple):
    """The pipe of another process."""

    fd: int
    wants: frozenset[int] | None
    """Checksums of the streams that it waits for; None: it waits for all."""


def _checksum(stream: str) -> int:
    return zlib.crc32(stream.encode())


def _wants_of(name: str) -> frozenset[int] | None:
    """What the name of a pipe says; one that says nothing that can be read is woken by everything."""
    try:
        wants = name.partition(_WANTS)[2]
        return frozenset(int(each, 16) for each in wants.split(".")) if wants else None
    except ValueError:
        return None


class Bell:
    """Wakes the other processes on this machine when the journal has grown, and is woken by them.

    SQLite has no notifications. Each waiting process keeps a named pipe in a folder beside the database; each process
    that commits writes one byte into the pipes of those that wait for a stream it has appended to. So waiters wake
    within a millisecond without polling, and are left alone by what is not theirs. A lost byte does no harm: waiters
    also check the journal once a second.

    The name of a pipe says what its process waits for: checksums of the names of streams, or nothing for all of them. A
    process that waits for something else renames its pipe, which the others notice before their next commit.

    The folder may come with a cloned repository, or be another user's: a folder or pipe that is a link, is of another
    kind or belongs to another user is not used, and nothing but pipes is removed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = str(folder)
        self._own: str | None = None
        self._own_fd = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._callback: Callable[[], None] = lambda: None
        self._is_muted = False
        self._wanted: frozenset[str] | None = None
        self._peers: dict[str, _Peer] = {}
        self._seen_ns = -1

    def ring(self, streams: Iterable[str]) -> None:
        """Line 6/8: wake the other processes that wait for one of these streams. Never raises: the event is on disk
        already."""
        if not os.access(self._path, os.F_OK):
            return  # no process has ever listened: the usual case, so checked without an exception
        try:
            found = os.lstat(self._path)
            changed_ns = found.st_mtime_ns
            if changed_ns != self._seen_ns:
                self._find_peers(is_ours=_is_own_folder(found))
                self._seen_ns = -1 if SystemClock().now_us() * 1000 - changed_ns < _JUST_CHANGED_NS else changed_ns
        except OSError:
            return  # the folder cannot be read now; waiters check by themselves
        appended: frozenset[int] | None = None
        for name, peer in list(self._peers.items()):
            if peer.wants is not None:
                if appended is None:
                    appended = frozenset(map(_checksum, streams))
                if appended.isdisjoint(peer.wants):
                    continue
            try:
                os.write(peer.fd, b"!")
            except BlockingIOError:
                continue  # its pipe is full of wake-ups it has not read yet
            except OSError:
                self._drop(name)

    def listen(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the running loop whenever another process has committed."""
        if self._own is not None:
            return
        name = f"{os.getpid()}-{secrets.token_hex(4)}"
        hidden = self._folder / f".{name}"
        try:
            if not self._make_pipe(hidden):
                return  # the waiter only polls
            # Open for reading and writing, so that there is no end of file when the last writer closes it. Visible to
            # others only once it is open, so that they never take it for the pipe of a dead process.
            self._own_fd = os.open(hidden, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            hidden.rename(self._folder / name)
        except OSError:
            return  # a full or read-only disk: the waiter only polls
        self._own = name
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._own_fd, self._drain)

    def want(self, streams: frozenset[str] | None) -> None:
        """Be woken by appends to these streams alone; None: to any."""
        if self._own is None or streams == self._wanted:
            return
        wants = (
            ""
            if streams is None or len(streams) > WANTED_MAX
            else _WANTS + ".".join(f"{each:x}" for each in sorted(map(_checksum, streams)))
        )
        name = self._own.partition(_WANTS)[0] + wants
        try:
            (self._folder / self._own).rename(self._folder / name)
        except OSError:
            return  # it is still woken as before, or by its own checks
        self._own, self._wanted = name, streams

    def mute(self) -> None:
        """Ignore commits until `unmute`: nothing waits."""
        if self._own is not None and not self._is_muted:
            assert self._loop is not None
            self._is_muted = True
            self._loop.remove_reader(self._own_fd)

    def unmute(self) -> None:
        """Be woken again, by commits from now on."""
        if self._own is not None and self._is_muted:
            assert self._loop is not None
            self._is_muted = False
            self._empty()
            self._loop.add_reader(self._own_fd, self._drain)

    def _make_pipe(self, path: Path) -> bool:
        """Create the folder, which the last process that listened has removed, and a pipe; False if it is not ours."""
        for last_try in (False, False, True):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if not _is_own_folder(os.lstat(self._folder)):
                return False
            try:
                os.mkfifo(path, 0o600)
            except FileNotFoundError:  # removed in between
                if last_try:
                    raise
            else:
                return True
        raise AssertionError

    def close(self) -> None:
        """Stop listening, close the pipes of the others, and remove the folder unless another process listens."""
        if self._own is not None:
            assert self._loop is not None
            self._loop.remove_reader(self._own_fd)
            os.close(self._own_fd)
            with contextlib.suppress(FileNotFoundError):
                (self._folder / self._own).unlink()
            self._own = None
            with contextlib.suppress(OSError):
                self._find_peers(is_ours=_is_own_folder(os.lstat(self._folder)))  # removes pipes of killed processes
                self._folder.rmdir()
        for name in list(self._peers):
            os.close(self._peers.pop(name).fd)

    def _drain(self) -> None:
        self._empty()
        self._callback()

    def _empty(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._own_fd, 4096):
                pass

    def _find_peers(self, *, is_ours: bool) -> None:
        listed = os.listdir(self._folder) if is_ours else ()
        present = {name for name in listed if not name.startswith(".") and _is_own_pipe(self._folder / name)}
        for name in set(self._peers) - present:
            os.close(self._peers.pop(name).fd)
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        for name in present - set(self._peers) - {self._own}:
            try:
                self._peers[name] = _Peer(os.open(self._folder / name, flags), _wants_of(name))
            except OSError as error:
                if error.errno == errno.ENXIO:
                    self._drop(name)  # its process died without removing it

    def _drop(self, name: str) -> None:
        peer = self._peers.pop(name, None)
        if peer is not None:
            os.close(peer.fd)
        with contextlib.suppress(OSError):
            (self._folder / name).unlink()


def _is_own_folder(found: os.stat_result) -> bool:
    """Return whether this is a folder, not a link to one, in which no other user can create files."""
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _is_own_pipe(path: Path) -> bool:
    try:
        found = os.lstat(path)
    except FileNotFoundError:  # removed in the meantime
        return False
    return stat.S_ISFIFO(found.st_mode) and found.st_uid == os.geteuid()
