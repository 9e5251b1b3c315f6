"""A disk that can lose its power or fail, as a VFS for SQLite.

Beside the real files it keeps what a real disk is guaranteed to have: bytes that were synced, and names whose folder
was synced. At any time `cut_power` writes into another folder what a power cut would leave: the synced bytes and, on
request, any part of the rest, because a disk may write unsynced data in any order, torn between sectors. Memory shared
between processes (`-shm`) never survives.

Two simplifications: the name of the database itself counts as synced with its first bytes, because SQLite leaves that
to the creator of the file; and nothing is really synced, the real files only serve reads.

    disk = Disk()
    store = await SqlStore.open(SqliteDatabase(path, clock=clock, vfs=disk.name))
    ...
    disk.cut_power(folder, torn, random.Random(7))      # a second database, as if after a power cut
    disk.fault = Fault(apsw.SQLITE_FULL, at=3)          # the third operation from now on finds no space
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import apsw

SECTOR_BYTES = 512
_BASE = "unix"
_LOGS = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL
_numbers = itertools.count(1)


class DiskWrite(NamedTuple):
    """Bytes that were written at an offset."""

    offset: int
    data: bytes


class Truncate(NamedTuple):
    """A file that was cut to a size."""

    size: int


Change = DiskWrite | Truncate
Survivors = Callable[[Sequence[Change], Random], Iterable[Change]]
"""Which of a file's unsynced changes a power cut leaves on the disk."""


def nothing(_changes: Sequence[Change], _chance: Random) -> Iterable[Change]:
    """Keep only what was synced."""
    return ()


def beginning(changes: Sequence[Change], chance: Random) -> Iterable[Change]:
    """Keep changes in order up to a random one."""
    return changes[: chance.randint(0, len(changes))]


def some(changes: Sequence[Change], chance: Random) -> Iterable[Change]:
    """Keep random whole changes."""
    return [change for change in changes if chance.random() < 0.5]


def torn(changes: Sequence[Change], chance: Random) -> Iterable[Change]:
    """Keep random whole sectors."""
    pieces = [
        piece for change in changes for piece in (_sectors(change) if isinstance(change, DiskWrite) else (change,))
    ]
    return some(pieces, chance)


def _sectors(write: DiskWrite) -> Iterable[DiskWrite]:
    start = write.offset
    end = write.offset + len(write.data)
    while start < end:
        stop = min(end, start - start % SECTOR_BYTES + SECTOR_BYTES)
        yield DiskWrite(start, write.data[start - write.offset : stop - write.offset])
        start = stop


@dataclass
class DiskFault:
    """An injected fault: the n-th of some operations fails, once or from then on.

    A write that fails for lack of space has written its first half. A sync that fails loses what it should have
    synced, although it stays readable: that is what Linux does. When several operations within one call of SQLite fail,
    apsw raises the last error and hands the others to `sys.unraisablehook`.
    """

    error: int
    at: int = 1
    on: tuple[str, ...] = ("write", "sync")
    """Any of write, sync, truncate, delete; `committed` fails a commit that has succeeded."""
    file: str = ""
    """The end of the file's name; empty for any file."""
    forever: bool = False
    hits: int = 0
    _seen: int = 0

    def strikes(self, what: str, name: str) -> bool:
        """Return whether this operation fails."""
        if what not in self.on or not name.endswith(self.file):
            return False
        self._seen += 1
        if self._seen == self.at or (self.forever and self._seen > self.at):
            self.hits += 1
            return True
        return False


class _Inode:
    """The content of a file, independent of its name: what is synced, and what is not."""

    def __init__(self, content: bytes) -> None:
        self.synced = bytearray(content)
        self.unsynced: list[Change] = []


class Disk:
    """A simulated disk, used through a VFS with its name."""

    def __init__(self) -> None:
        self.name = f"power-cut-{next(_numbers)}"
        self.fault: DiskFault | None = None
        self.syncs = 0
        self._lock = threading.RLock()
        self._names: dict[str, _Inode] = {}
        self._synced_names: dict[str, _Inode] = {}
        self._vfs = _Vfs(self)

    def cut_power(self, folder: Path, survivors: Survivors = nothing, chance: Random | None = None) -> None:
        """Write into a folder what a power cut would leave now."""
        chance = chance or Random(0)  # noqa: S311 - repeatable on purpose
        with self._lock:
            for name in sorted({*self._names, *self._synced_names}):
                now, then = self._names.get(name), self._synced_names.get(name)
                # A name that was added or removed without syncing the folder may survive or not.
                inode = then if survivors is nothing else chance.choice((now, then))
                if inode is None:
                    continue
                content = bytearray(inode.synced)
                for change in survivors(inode.unsynced, chance):
                    _apply(content, change)
                (folder / Path(name).name).write_bytes(content)

    # --- called by the VFS -----------------------------------------------------------------------------------

    def opened(self, name: str, read: Callable[[], bytes]) -> _Inode:
        """Return the inode of a file that was opened; create it when it is new to this disk."""
        with self._lock:
            inode = self._names.get(name)
            if inode is None:
                content = read()
                inode = self._names[name] = _Inode(content)
                if content:
                    self._synced_names[name] = inode
            return inode

    def inject(self, what: str, name: str) -> None:
        """Raise the fault if it strikes this operation."""
        with self._lock:
            if self.fault is not None and self.fault.strikes(what, name):
                error = apsw.exception_for(self.fault.error)
                error.args = (f"injected fault: {what} of {Path(name).name}",)
                raise error

    def changed(self, inode: _Inode, change: Change) -> None:
        """Record that a file was written or truncated."""
        with self._lock:
            inode.unsynced.append(change)

    def synced(self, name: str, inode: _Inode, *, with_folder: bool) -> None:
        """Record that a file was synced."""
        with self._lock:
            self.syncs += 1
            for change in inode.unsynced:
                _apply(inode.synced, change)
            inode.unsynced.clear()
            if with_folder:
                self._synced_names = dict(self._names)
            else:
                self._synced_names.setdefault(name, inode)

    def not_synced(self, inode: _Inode) -> None:
        """Record a failed sync: the changes stay readable, but no later sync will write them."""
        with self._lock:
            inode.unsynced.clear()

    def deleted(self, name: str, *, with_folder: bool) -> None:
        """Record that a file was deleted."""
        with self._lock:
            self._names.pop(name, None)
            if with_folder:
                self._synced_names = dict(self._names)


def _apply(content: bytearray, change: Change) -> None:
    end = change.size if isinstance(change, Truncate) else change.offset + len(change.data)
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if isinstance(change, Truncate):
        del content[end:]
    else:
        content[change.offset : end] = change.data


class _Vfs(apsw.VFS):
    """The VFS through which SQLite uses the disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        super().__init__(disk.name, _BASE)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        if name is None:  # a temporary file, which is irrelevant after a power cut
            return apsw.VFSFile(_BASE, name, flags)
        return _File(self._disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self._disk.inject("delete", filename)
        super().xDelete(filename, syncdir)
        self._disk.deleted(filename, with_folder=syncdir)


class _File(apsw.VFSFile):
    """One open file."""

    def __init__(self, disk: Disk, name: str | apsw.URIFilename, flags: list[int]) -> None:
        super().__init__(_BASE, name, flags)
        self._disk = disk
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._syncs_folder = bool(flags[0] & _LOGS)  # as the real VFS does for a log that it has created
        self._inode = disk.opened(self._name, lambda: bytes(self.xRead(self.xFileSize(), 0)))

    def xWrite(self, data: Any, offset: int) -> None:
        try:
            self._disk.inject("write", self._name)
        except apsw.FullError:
            self._write(bytes(data[: len(data) // 2]), offset)
            raise
        self._write(bytes(data), offset)

    def _write(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._disk.changed(self._inode, DiskWrite(offset, data))

    def xTruncate(self, newsize: int) -> None:
        self._disk.inject("truncate", self._name)
        super().xTruncate(newsize)
        self._disk.changed(self._inode, Truncate(newsize))

    def xSync(self, flags: int) -> None:
        try:
            self._disk.inject("sync", self._name)
        except apsw.Error:
            self._disk.not_synced(self._inode)
            raise
        self._disk.synced(self._name, self._inode, with_folder=self._syncs_folder)

    def xFileControl(self, op: int, ptr: int) -> bool:
        handled = super().xFileControl(op, ptr)
        if op == apsw.SQLITE_FCNTL_COMMIT_PHASETWO:
            self._disk.inject("committed", self._name)
        return handled
