"""Files and folders: written so that they survive a power cut, private, and read without trust in what they are."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from maos.faults import crash_point


def sync_folder(folder: Path) -> None:
    """Sync a folder: a new or renamed file is on disk when its folder was synced, not when its content was."""
    _sync(folder, os.O_DIRECTORY)


def read_bounded(path: Path, bytes_max: int) -> bytes:
    """Return the content of a regular file; at most one byte more than the limit is read. Raise OSError for others.

    A file of a cloned repository can be a pipe, which would block, or a link to a device without an end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return file.read(bytes_max + 1)


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
    if folder.is_file():  # a linked worktree
        folder = file.parent / folder.read_text().removeprefix("gitdir:").strip()
        folder = folder / (folder / "commondir").read_text().strip()
    if not folder.is_dir():
        return
    (folder / "info").mkdir(exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(folder / "info" / "exclude", flags, 0o666), "r+", encoding="utf-8", errors="replace") as exclude:
        exclude.seek(0)
        text = exclude.read()
        if f"/{file.name}*" not in text.splitlines():
            exclude.write(("" if text.endswith("\n") or not text else "\n") + f"/{file.name}*\n")


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
