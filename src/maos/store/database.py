"""What the SQL databases share: named statements, schema levels, the high-water mark, what store and writer need.

Schema levels are numbered files, applied upwards only, each in one transaction. The first level is 2: level 1 belonged
to pre-release versions, whose events have other names, and is refused. A database of a newer level is refused, because
guessing its meaning could lose data. Before an existing database is upgraded, a copy is kept; each database does that
in its own way.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from maos.errors import Corrupt, StoreUnavailable, UnknownFormat
from maos.files import private_folder
from maos.patterns import regex
from maos.store.ledger import AppendRequest, Ledger, WriteBatch
from maos.store.patience import Patience
from maos.store.registry import StoreRegistry
from maos.tuples import NamedTuple

_NAME = regex(r"^-- (\w+) --$", re.MULTILINE)
_FILE = regex(r"(\d{4})_(\w+)\.sql")
_LINE = regex(rb"maos-head 1 (\d{20}) ([0-9a-f]{64}) ([0-9a-f]{8})\n")
_LINE_BYTES = 12 + 20 + 1 + 64 + 1 + 8 + 1
Row = tuple[Any, ...]


class Mark(NamedTuple):
    """A position that was acknowledged, and the hash of its event."""

    position: int
    hash: bytes


class MarkFile:
    """The high-water mark: the newest acknowledged position and its hash, kept outside the database.

    A database that has lost its end looks undamaged from inside: a damaged write-ahead log reads as a shorter one, and
    a restored older copy is a valid database. The mark reveals it (I8). It is written after each commit, so it is never
    ahead of an undamaged database; it is not synced each time, because an old mark makes the check weaker but never
    wrong. The file has two lines, written alternately, so that a torn write leaves one intact. A journal in memory has
    no file, as it has no end that could be lost.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.trouble: str | None = None
        """Why the mark could not be read or written last time; the journal itself is not affected."""
        self._fd = -1
        self._slot = 0

    def read(self) -> Mark | None:
        """Return the newest readable mark; None, with `trouble` set, when the file is missing or damaged."""
        if self.path is None:
            return None
        try:
            descriptor = self._open_file(os.O_RDONLY)
            try:
                content = os.read(descriptor, 2 * _LINE_BYTES)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            self.trouble = f"{self.path} is missing"
            return None
        except OSError as error:
            self.trouble = f"{self.path} could not be read: {error.strerror}"
            return None
        lines = [_parse(content[start : start + _LINE_BYTES]) for start in (0, _LINE_BYTES)]
        marks = [mark for mark in lines if mark is not None]
        if not marks:
            self.trouble = f"{self.path} is damaged"
            return None
        newest = max(marks)
        self._slot = _LINE_BYTES if lines[0] == newest else 0  # the other line is written next
        return newest

    def write(self, mark: Mark) -> None:
        """Write a mark. Never raises: the event is on disk already."""
        if self.path is None:
            return
        body = b"maos-head 1 %020d %s" % (mark.position, mark.hash.hex().encode())
        line = body + b" %08x\n" % zlib.crc32(body)
        try:
            if self._fd < 0:
                self._fd = self._open_file(os.O_RDWR | os.O_CREAT)
            os.pwrite(self._fd, line, self._slot)
        except OSError as error:
            self.trouble = f"{self.path} could not be written: {error.strerror}"
            return
        self._slot = _LINE_BYTES - self._slot

    def _open_file(self, flags: int) -> int:
        """Open the file; a link, device or pipe, which could come with a cloned repository, is an OSError."""
        assert self.path is not None
        descriptor = os.open(self.path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "it is not a regular file")
        return descriptor

    def remove(self) -> None:
        """Remove the file, when the end of the journal is known to be lost."""
        if self.path is not None:
            self.path.unlink()

    def sync(self) -> None:
        """Sync the mark to disk."""
        if self._fd < 0:
            return
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            self.trouble = f"{self.path} could not be synced: {error.strerror}"

    def close(self) -> None:
        """Sync and close the file."""
        if self._fd >= 0:
            self.sync()
            os.close(self._fd)
            self._fd = -1


def default_mark(place: str) -> Path:
    """Return the file of the mark of a server's journal: each machine keeps its own."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    folder = private_folder(state / "maos" / "heads")
    return folder / hashlib.sha256(place.encode()).hexdigest()[:32]


def _parse(line: bytes) -> Mark | None:
    match = _LINE.fullmatch(line)
    if match is None or zlib.crc32(line[: -len(match[3]) - 2]) != int(match[3], 16):
        return None
    return Mark(int(match[1]), bytes.fromhex(match[2].decode()))


class RestoredRows(NamedTuple):
    """Rows as another database recorded them, to be written in one transaction."""

    streams: Sequence[tuple[int, str]]
    """New ones."""
    events: Sequence[Row]
    keys: Sequence[Row]
    token: int
    """The largest fencing token of the events."""

    def statements(self) -> Iterator[tuple[str, Sequence[Row]]]:
        """Return the statements that write them, by name, with the arguments of each execution."""
        yield "insert_stream", self.streams
        yield "restore_event", self.events
        yield "restore_key", self.keys
        yield "raise_token_floor", [(self.token,)]


class Database(ABC):
    """A SQL database: its connections, and the transactions of the writer."""

    place: str
    mark: MarkFile
    notes: list[str]
    patience: Patience
    registry: StoreRegistry | None = None
    """The databases of this user; None where every database is used, as one in memory is."""
    is_encrypted = False
    """Whether it has a keyring; what is deleted is then overwritten."""
    blocking = False
    """Whether its methods work on the calling thread and never suspend, even if they are `async`."""

    @abstractmethod
    async def open(self) -> None:
        """Connect, create or upgrade; raise when that is not possible."""

    @abstractmethod
    async def close(self, *, refused: bool = False) -> None:
        """Close all connections; a database that was `refused` is left as it is."""

    @abstractmethod
    async def fetch(self, query: str, *arguments: Any) -> list[Row]:
        """Return all rows of a named read."""

    async def fetch_row(self, query: str, *arguments: Any) -> Row | None:
        """Return the first row, or None."""
        rows = await self.fetch(query, *arguments)
        return rows[0] if rows else None

    async def execute(self, query: str, *arguments: Any) -> list[Row]:
        """Execute one small write of its own, such as acquiring a lease; needs the writer's turn."""
        return await self.fetch(query, *arguments)

    # --- whose it is -----------------------------------------------------------------------------------------

    def file_number(self) -> int:
        """Return the number of the file of the database; 0 for a server."""
        return 0

    def belongs_to_another(self) -> str:
        """Return which other user the file of the database belongs to; empty if to none."""
        return ""

    async def why_untrusted(self) -> str:
        """Return why nothing of the database may be executed here; empty when this user made it, or agreed to use it.

        A database without events is added to the registry: nothing in it could be executed.
        """
        if self.registry is None or await self._is_registered():
            return ""
        if other := self.belongs_to_another():
            return f"belongs to {other}"
        if await self.fetch_row("log_head") is None:
            await self.trust()
            return ""
        # Another process of this user may have added it and written to it in the meantime.
        return "" if await self._is_registered() else "was not made by you on this machine"

    async def trust(self) -> None:
        """Add the database to the registry: the user has agreed to use it."""
        if self.registry is None:
            return
        try:
            self.registry.add(await self.identity(), self.file_number())
        except ValueError as error:
            hint = "nothing was changed; read it, and copy what you need to another one"
            raise Corrupt(f"{self.place} has no identity: {error}", hint=hint) from error
        except OSError as error:
            raise StoreUnavailable(
                f"{self.place} cannot be noted as yours in {error.filename}: {error.strerror}",
                written=False,
                hint="make that folder writable, or name another one with MAOS_HOME",
            ) from error

    async def _is_registered(self) -> bool:
        assert self.registry is not None
        return self.registry.has(await self.identity(), self.file_number())

    async def identity(self) -> str:
        """Return what tells this database from every other; empty when it has lost that."""
        row = await self.fetch_row("identity")
        return str(row[0]) if row else ""

    def stamp(self) -> int | None:
        """Return a number that changes with every commit of any process; None where that costs as much as a read."""
        return None

    @abstractmethod
    async def listen(self, woken: Callable[[], None]) -> None:
        """Call `woken` after commits of other processes."""

    def want(self, streams: frozenset[str] | None) -> None:
        """Call what listens only after commits to these streams, if the database can tell; None: after any."""
        return

    def mute(self) -> None:
        """Call nothing until `unmute`, if that saves anything."""
        return

    def unmute(self) -> None:
        """Call what listens again, after commits from now on."""
        return

    @abstractmethod
    async def copy_to(self, target: Path) -> int:
        """Copy everything to a file, completely or not at all, while in use; return the newest position of the copy."""

    async def problems(self) -> list[str]:
        """Return what the database's own integrity check finds; PostgreSQL fails the read of a damaged page."""
        return []

    # --- for the writer --------------------------------------------------------------------------------------

    def commit_now(self, _ledger: Ledger, _batch: Sequence[AppendRequest]) -> bool:
        """Write a batch at once; return False when it would have to wait for another process or the network."""
        return False

    @abstractmethod
    async def commit(self, ledger: Ledger, batch: Sequence[AppendRequest]) -> None:
        """Write a batch, waiting for other processes."""

    @abstractmethod
    def outcome_unknown(self, error: Exception) -> bool:
        """Return whether a commit that failed with this error may have been written nevertheless."""

    @abstractmethod
    def explain(self, error: Exception) -> Exception:
        """Return the error to raise for a failure of the database."""

    @abstractmethod
    async def recover(self) -> None:
        """Reopen after a failure; raise MaosError while that is not possible."""

    async def was_written(self, plan: WriteBatch) -> bool | None:
        """Return whether a plan with an unknown outcome is in the database; None if it was compacted since."""
        if not plan.rows:
            return False  # documents only: they can be written again
        stream, version = plan.rows[-1][1:3]
        for found, hash_ in await self.execute("hash_at", stream, version):
            return bool(hash_ == plan.last_hash) if found == version else None
        return False

    @abstractmethod
    async def write_all(self, changes: Iterable[tuple[str, Sequence[Row]]], *, what: str) -> None:
        """Execute named statements, each once for every row of arguments, in one transaction; needs the writer's turn.

        `what` is the name of the work, for crash points.
        """

    async def forget_freed(self) -> bool:
        """Remove what was deleted from the files of the database; return False when that is not possible now."""
        return True

    def needs_maintenance(self) -> bool:
        """Return whether maintenance is due; a server maintains itself."""
        return False

    def maintain_concurrently(self) -> None:  # noqa: B027 - most databases need none
        """Do the part of the maintenance during which commits are possible; runs in a thread."""

    async def maintain(self) -> None:  # noqa: B027
        """Do the part of the maintenance that needs the writer's turn."""

    def closed(self) -> StoreUnavailable:
        """Return the error for a call after `close`."""
        return StoreUnavailable(f"{self.place} is closed", written=False, hint="open it again")


# --- statements -----------------------------------------------------------------------------------------------


@cache
def statements() -> dict[str, str]:
    """Return each statement by its name, with $1-style parameters and without comments."""
    text = Path(__file__).with_name("queries.sql").read_text(encoding="utf-8")
    parts = _NAME.split(text)[1:]
    return {
        name: " ".join(line.strip() for line in body.splitlines() if not line.startswith("--")).strip().rstrip(";")
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }


# --- schema levels --------------------------------------------------------------------------------------------


class UpgradeStep(NamedTuple):
    """One schema level: its number, its name and the statements that lead to it from the level below."""

    level: int
    name: str
    sql: str


@cache
def steps(dialect: str, folder: Path | None = None) -> list[UpgradeStep]:
    """Return all levels of a dialect, lowest first; those shipped with maos unless a folder is given.

    They are read once per process: reading them takes longer than the rest of opening.
    """
    levels = (folder or Path(__file__).with_name("schema")).joinpath(dialect)
    found = [(_FILE.fullmatch(file.name), file) for file in levels.iterdir()]
    return sorted(UpgradeStep(int(name[1]), name[2], file.read_text("utf-8")) for name, file in found if name)


def pending(known: list[UpgradeStep], level: int, place: str) -> list[UpgradeStep]:
    """Return the steps from a level to the newest; refuse a level above the newest or below the first."""
    first, newest = known[0].level, known[-1].level
    if 0 < level < first:
        raise UnknownFormat(
            f"{place} has schema level {level}, which only pre-release versions of maos wrote; "
            f"this maos reads levels {first} to {newest}",
            hint="finish its runs with the maos that wrote it, and give this one a new database; nothing was changed",
        )
    if level > newest:
        raise UnknownFormat(
            f"{place} has schema level {level}, this maos knows levels up to {newest}",
            hint="upgrade maos; nothing was changed",
        )
    return [step for step in known if step.level > level]
