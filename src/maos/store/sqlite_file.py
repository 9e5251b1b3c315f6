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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

from maos.clock import SystemClock
from maos.errors import Corrupt, DiskFull, InvalidInput, MaosError, StoreUnavailable
from maos.files import whole_file
from maos.store.database import Row

SQLITE_MIN = (3, 51, 3)
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


def head_of_copy(copy: Path, query: str) -> int:
    """Return the newest position of a copy."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"{copy.absolute().as_uri()}?immutable=1", flags)  # creates no files beside it
    try:
        row: Any = connection.execute(query).fetchone()
        return row[0] if row else 0
    finally:
        connection.close()


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


class Bell:
    """Wakes the other processes on this machine when the journal has grown, and is woken by them.

    SQLite has no notifications. Each waiting process keeps a named pipe in a folder beside the database; each process
    that commits writes one byte into every pipe there. So waiters wake within a millisecond without polling. A lost
    byte does no harm: waiters also check the journal once a second.

    The folder may come with a cloned repository, or be another user's: a folder or pipe that is a link, is of another
    kind or belongs to another user is not used, and nothing but pipes is removed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = str(folder)
        self._own: str | None = None
        self._own_fd = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._peers: dict[str, int] = {}
        self._seen_ns = -1

    def ring(self) -> None:
        """Line 6/8: wake every other process that listens. Never raises: the event is on disk already."""
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
        for name, fd in list(self._peers.items()):
            try:
                os.write(fd, b"!")
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
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if not _is_own_folder(os.lstat(self._folder)):
                return  # the waiter only polls
            os.mkfifo(hidden, 0o600)
            # Open for reading and writing, so that there is no end of file when the last writer closes it. Visible to
            # others only once it is open, so that they never take it for the pipe of a dead process.
            self._own_fd = os.open(hidden, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            hidden.rename(self._folder / name)
        except OSError:
            return  # a full or read-only disk: the waiter only polls
        self._own = name
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._own_fd, self._drain, callback)

    def close(self) -> None:
        """Stop listening and close the pipes of the others."""
        if self._own is not None:
            assert self._loop is not None
            self._loop.remove_reader(self._own_fd)
            os.close(self._own_fd)
            with contextlib.suppress(FileNotFoundError):
                (self._folder / self._own).unlink()
            self._own = None
        for name in list(self._peers):
            os.close(self._peers.pop(name))

    def _drain(self, callback: Callable[[], None]) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._own_fd, 4096):
                pass
        callback()

    def _find_peers(self, *, is_ours: bool) -> None:
        listed = os.listdir(self._folder) if is_ours else ()
        present = {name for name in listed if not name.startswith(".") and _is_own_pipe(self._folder / name)}
        for name in set(self._peers) - present:
            os.close(self._peers.pop(name))
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        for name in present - set(self._peers) - {self._own}:
            try:
                self._peers[name] = os.open(self._folder / name, flags)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    self._drop(name)  # its process died without removing it

    def _drop(self, name: str) -> None:
        fd = self._peers.pop(name, -1)
        if fd >= 0:
            os.close(fd)
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
