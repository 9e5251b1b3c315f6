"""Reads a database of maos-cli without writing to it, and without trusting its content.

The file is opened read-only. If SQLite has to recover it first (there is a `-journal` or a `-wal`), a copy is opened
instead. Values are cut, counted and checked before they are used; JSON is decoded only into the expected types.
"""

from __future__ import annotations

import math
import shutil
import stat
import tempfile
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import apsw
import msgspec

from maos.errors import Corrupt, InvalidInput, MaosError, NotFound, StoreUnavailable, UnknownFormat

FILE_BYTES_MAX = 4 << 30
ROWS_MAX = 500_000
"""The most rows of one table."""
VALUE_BYTES_MAX = 4 << 20
ROW_BYTES_MAX = 64 << 20
TOTAL_BYTES_MAX = 512 << 20
"""The most bytes of all values together."""
BUSY_MS = 2_000
COPIES_MAX = 3

COLUMNS: Mapping[str, frozenset[str]] = {
    "agents": frozenset(("id", "name", "type", "session_id", "status", "metadata")),
    "sessions": frozenset(("session_id", "agent_id", "task", "conversation_history", "total_cost")),
    "tasks": frozenset(("id", "description", "status", "result")),
    "messages": frozenset(("id", "from_agent", "to_agent", "message", "message_type", "timestamp", "acknowledged")),
    "checkpoints": frozenset(("id", "name")),
    "orchestrations": frozenset(("id", "request", "status", "agents", "batches")),
}
"""Columns that every version from 0.8.9 to 0.9.4 has, among others."""

Row = dict[str, Any]
T = TypeVar("T")


class Tables(NamedTuple):
    """The content of the file."""

    rows: Mapping[str, list[Row]]
    """By table, in the order in which they were written; values are texts, numbers or None."""
    others: Mapping[str, int]
    """Other tables, with their numbers of rows."""
    cut: int
    """How many values were cut because they are too long, or neither text nor number."""


def read(path: Path) -> Tables:
    """Read a database of maos-cli; raise an error that says what is wrong with the file."""
    _check(path)
    try:
        with _open(path) as connection:
            return _Reader(connection, path).read()
    except apsw.BusyError as error:
        raise StoreUnavailable(
            f"{path} is locked by another process",
            written=False,
            hint="stop maos-cli, or the program that has it open, and import again; nothing was imported",
        ) from error
    except apsw.NotADBError as error:
        raise InvalidInput(
            f"{path} is not a SQLite database",
            hint="name the maos.db of maos-cli, by default in the folder of the project",
        ) from error
    except apsw.Error as error:
        raise _damaged(path, str(error)) from error
    except OSError as error:
        raise StoreUnavailable(
            f"{path} cannot be read: {error.strerror or error}", written=False, hint="check the permissions of the file"
        ) from error


def parse_json(text: Any, type_: type[T], otherwise: T) -> T:
    """Decode JSON from the file into a type; return `otherwise` when it does not match."""
    if not isinstance(text, str) or not text:
        return otherwise
    try:
        return msgspec.json.decode(text.encode(), type=type_)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return otherwise


# --- opening -----------------------------------------------------------------------------------------------------


def _check(path: Path) -> None:
    try:
        found = path.stat()
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}", hint="name a bundle, or the maos.db of maos-cli") from None
    except OSError as error:
        raise NotFound(f"{path} cannot be reached: {error.strerror}", hint="check the path") from error
    if stat.S_ISDIR(found.st_mode):
        raise InvalidInput(f"{path} is a folder", hint=f"name the file in it, such as {path / 'maos.db'}")
    if not stat.S_ISREG(found.st_mode):
        raise InvalidInput(f"{path} is not a file", hint="name the maos.db of maos-cli")
    if found.st_size == 0:
        raise InvalidInput(f"{path} is empty", hint="maos-cli has not written to it; name another file")
    if found.st_size > FILE_BYTES_MAX:
        raise InvalidInput(
            f"{path} has {found.st_size} bytes, more than {FILE_BYTES_MAX}",
            hint="delete old rows of `sessions` and `messages` first, then VACUUM",
        )


@contextmanager
def _open(path: Path) -> Iterator[apsw.Connection]:
    """Open a snapshot of the database; the file and its folder are not changed."""
    if not _needs_copy(path):
        try:
            connection = _connect(path, "mode=ro")
        except (apsw.ReadOnlyError, apsw.CantOpenError, apsw.IOError):
            pass  # its last writer was killed, so SQLite must recover it first
        else:
            try:
                yield connection
            finally:
                connection.close()
            return
    with tempfile.TemporaryDirectory(prefix="maos-import-") as folder:
        connection = _connect(_copy(path, Path(folder)), "mode=rw")
        try:
            yield connection
        finally:
            connection.close()


def _needs_copy(path: Path) -> bool:
    """Return whether SQLite would have to write files beside the database to read it."""
    with path.open("rb") as file:
        header = file.read(20)
    return header[18:20] == b"\x02\x02" or path.with_name(path.name + "-wal").exists()


def _copy(path: Path, folder: Path) -> Path:
    beside = [path.with_name(path.name + end) for end in ("", "-wal", "-journal")]
    for _ in range(COPIES_MAX):
        before = [_stamp(each) for each in beside]
        for each, stamp in zip(beside, before, strict=True):
            target = folder / f"copy{each.name.removeprefix(path.name)}"
            target.unlink(missing_ok=True)
            if stamp is not None:
                shutil.copyfile(each, target)
        if [_stamp(each) for each in beside] == before:
            return folder / "copy"
    raise StoreUnavailable(
        f"{path} is being written", written=False, hint="stop maos-cli, and import again; nothing was imported"
    )


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns


def _connect(path: Path, mode: str) -> apsw.Connection:
    """Open a connection in a read transaction, so that it sees one snapshot."""
    flags = apsw.SQLITE_OPEN_URI | (apsw.SQLITE_OPEN_READONLY if mode == "mode=ro" else apsw.SQLITE_OPEN_READWRITE)
    connection = apsw.Connection(f"file:{urllib.parse.quote(str(path.absolute()))}?{mode}", flags)
    try:
        connection.set_busy_timeout(BUSY_MS)
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, ROW_BYTES_MAX)  # an expression in the file may make gigabytes
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA query_only = ON")
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


# --- reading -----------------------------------------------------------------------------------------------------


class _Reader:
    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._bytes = 0
        self._cut = 0

    def read(self) -> Tables:
        found = self._connection.execute("SELECT type, name, sql FROM sqlite_schema").fetchall()
        names = {str(name): str(sql or "") for type_, name, sql in found if type_ == "table"}
        names = {name: sql for name, sql in names.items() if not name.startswith("sqlite_")}
        self._check_tables(names)
        check = self._connection.execute("PRAGMA quick_check(1)").fetchall()
        if check != [("ok",)]:
            raise _damaged(self._path, str(check[0][0]).splitlines()[-1])
        rows = {table: self._rows(table) for table in COLUMNS}
        others = {name: self._count(name) for name in sorted(set(names) - set(COLUMNS)) if not _is_virtual(names[name])}
        return Tables(rows, others, self._cut)

    def _check_tables(self, names: Mapping[str, str]) -> None:
        if {"streams", "events"} <= set(names):
            raise InvalidInput(f"{self._path} is a journal of this maos", hint=f"open it with `--db {self._path}`")
        if not names:
            raise InvalidInput(f"{self._path} has no tables", hint="maos-cli has not written to it; name another file")
        missing = [name for name in COLUMNS if name not in names or _is_virtual(names[name])]
        if missing:
            raise self._unknown(f"it has no table {', '.join(missing)}")
        for table, wanted in COLUMNS.items():
            missing = sorted(wanted - set(self._columns(table)))
            if missing:
                raise self._unknown(f"its table {table} has no column {', '.join(missing)}")

    def _unknown(self, why: str) -> MaosError:
        return UnknownFormat(
            f"{self._path} is not a known database of maos-cli: {why}",
            hint="maos-cli 0.8.9 to 0.9.4 can be read; open an older one with 0.9.4 once to upgrade it",
        )

    def _columns(self, table: str) -> list[str]:
        rows = self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
        return [str(name) for (name,) in rows]

    def _count(self, table: str) -> int:
        [(count,)] = self._connection.execute(f"SELECT count(*) FROM {_quoted(table)}").fetchall()  # noqa: S608
        return int(str(count))

    def _rows(self, table: str) -> list[Row]:
        if self._count(table) > ROWS_MAX:
            hint = "delete rows that you do not need with sqlite3"
            raise InvalidInput(f"{self._path}: table {table} has more than {ROWS_MAX} rows", hint=hint)
        columns = self._columns(table)
        expressions = ", ".join(
            f"CASE typeof({each}) WHEN 'text' THEN substr(CAST({each} AS BLOB), 1, {VALUE_BYTES_MAX + 1})"
            f" WHEN 'blob' THEN x'00' ELSE {each} END"
            for each in map(_quoted, columns)
        )
        found = []
        for values in self._connection.execute(f"SELECT {expressions} FROM {_quoted(table)} ORDER BY rowid"):  # noqa: S608
            found.append(dict(zip(columns, map(self._plain, values), strict=True)))
            if self._bytes > TOTAL_BYTES_MAX:
                hint = "delete rows of `sessions` and `messages` that you do not need with sqlite3"
                raise InvalidInput(f"{self._path} holds more than {TOTAL_BYTES_MAX} bytes of text", hint=hint)
        return found

    def _plain(self, value: Any) -> Any:
        """Return a value as text, number or None, as in JSON."""
        if isinstance(value, bytes):
            if value == b"\0":  # the query returns it for values that are not text
                self._cut += 1
                return None
            if len(value) > VALUE_BYTES_MAX:
                self._cut += 1
                value = value[:VALUE_BYTES_MAX]
            self._bytes += len(value)
            return value.decode("utf-8", "replace").replace("\0", "�")
        return None if isinstance(value, float) and not math.isfinite(value) else value


def _is_virtual(sql: str) -> bool:
    return not sql.upper().lstrip().startswith("CREATE TABLE")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _damaged(path: Path, why: str) -> Corrupt:
    return Corrupt(
        f"{path} is damaged: {why}",
        hint="nothing was imported; `sqlite3 FILE .recover` may recover a copy that can be imported",
    )
