"""Files and folders: written so that they survive a power cut, private, and read without trust in what they are."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from maos.faults import crash_point


def sync_folder(folder: Path) -> None:
    """Sync a folder: a new or renamed file is on disk when its folder was synced, not when its content was."""
    _sync(folder, os.O_DIRECTORY)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; raise OSError for others.

    A file of a cloned repository, or of an agent, can be a pipe, which would block, or a link to a device without an
    end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return open(descriptor, "rb")


def read_bounded(path: Path, bytes_max: int) -> bytes:
    """Return the content of a regular file; at most one byte more than the limit is read. Raise OSError for others."""
    with open_regular(path) as file:
        return file.read(bytes_max + 1)


def is_regular(path: Path) -> bool:
    """Return whether a path is that of a regular file, and not of a link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def private_folder(folder: Path) -> Path:
    """Create a folder, and the missing ones above it, for their owner alone, whatever the umask is; return it."""
    if not folder.is_dir():
        private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _sync(path: Path, flags: int = 0) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def exclude_from_git(file: Path) -> None:
    """Have git ignore a file at the root of a repository, and those whose names begin like its name.

    The entry is in the repository's own `info/exclude`, which is not committed. Outside of one nothing is done.
    """
    folder = file.parent / ".git"
    if folder.is_file():  # a linked worktree, or a submodule
        folder = file.parent / _line_of(folder).removeprefix("gitdir:").strip()
        if os.path.lexists(folder / "commondir"):
            folder = folder / _line_of(folder / "commondir")
    if not folder.is_dir():
        return
    (folder / "info").mkdir(exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(folder / "info" / "exclude", flags, 0o666), "r+", encoding="utf-8", errors="replace") as exclude:
        exclude.seek(0)
        text = exclude.read()
        if f"/{file.name}*" not in text.splitlines():
            exclude.write(("" if text.endswith("\n") or not text else "\n") + f"/{file.name}*\n")


def _line_of(path: Path) -> str:
    return os.fsdecode(read_bounded(path, 4096)).strip()


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """A file for its owner alone, to be written in the block; it gets its name once it is complete and synced."""
    partial = target.with_name(target.name + ".partial")
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    crash_point("copy: begun")
    try:
        yield partial
        _sync(partial)
        crash_point("copy: not yet named")
        partial.rename(target)
    except BaseException:  # an incomplete copy is useless, and may be what filled the disk
        for left in (partial, partial.with_name(partial.name + "-journal")):
            left.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def write_private(path: Path, text: str) -> None:
    """Write a text for its owner alone, whatever the umask is, into a file that is created if there is none."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def replace_file(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Write a file for its owner alone, so that after a crash it has its old or its new content."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    new.replace(path)
