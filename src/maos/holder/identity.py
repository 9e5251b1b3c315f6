"""The file in an attempt's folder that identifies its holder.

The kernel reuses pids, so the file also has the start time of the process and the id of the boot.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from maos.files import private_folder, read_bounded
from maos.holder import process_tree
from maos.holder.wire import IDENTITY

_NONE = "nobody\n"
BYTES_MAX = 4096


class HolderIdentity(NamedTuple):
    """The process that is, or was, the holder of a folder."""

    pid: int
    start_ticks: int
    boot: str
    since_us: int
    attempt: str

    def process(self) -> process_tree.Seen | None:
        """Return the holder's process if it is alive."""
        return process_tree.living(self.pid, self.start_ticks) if self.boot == process_tree.boot_id() else None


def read(folder: Path) -> HolderIdentity | None:
    """Return the identity of the holder of a folder, alive or dead; None when there never was one."""
    try:
        lines = read_bounded(folder / IDENTITY, BYTES_MAX).decode().splitlines()
    except FileNotFoundError:
        return None
    if len(lines) < 5:
        return None  # closed for good: no holder ever started
    return HolderIdentity(int(lines[0]), int(lines[1]), lines[2], int(lines[3]), lines[4])


def above(pid: int) -> list[tuple[Path, HolderIdentity]]:
    """Return the holders that a process descends from, the nearest first, each with its folder.

    Daemons are found too: the guard of an agent adopts them.
    """
    found = []
    for process in process_tree.ancestors(pid):
        named = process_tree.environment(process.pid).get(b"MAOS_ATTEMPT_FOLDER")
        if not named:
            continue
        folder, holder = Path(os.fsdecode(named)), None
        with contextlib.suppress(OSError, ValueError):  # of a process that only says that it is a holder
            holder = read(folder)
        if holder is not None and (holder.pid, holder.start_ticks) == (process.pid, process.start_ticks):
            found.append((folder, holder))
    return found


def close_for_good(folder: Path) -> None:
    """Prevent that a holder ever starts in a folder in which none has started.

    One may be starting, spawned by an engine that is dead or has lost its lease: its claim will be refused.
    """
    private_folder(folder)
    draft = folder / f"{IDENTITY}.{os.getpid()}.none"
    draft.write_text(_NONE)
    with contextlib.suppress(FileExistsError):
        os.link(draft, folder / IDENTITY)
    draft.unlink()
