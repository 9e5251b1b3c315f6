"""Files and folders that survive a power cut."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from maos.faults import crash_point


def sync_folder(folder: Path) -> None:
    """Sync a folder: a new or renamed file is on disk when its folder was synced, not when its content was."""
    _sync(folder, os.O_DIRECTORY)


def _sync(path: Path, flags: int = 0) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
