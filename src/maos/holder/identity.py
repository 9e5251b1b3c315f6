"""Who holds an attempt: a file in its folder that names one process for ever.

A pid is used again, so it is named with its start time and the boot it belongs to.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from maos.holder import process_tree
from maos.holder.boot import IDENTITY
from maos.holder.machine import boot_id

_NOBODY = "nobody\n"


class HolderIdentity(NamedTuple):
    """The holder of a folder."""

    pid: int
    start_ticks: int
    boot: str
    since_us: int
    attempt: str

    def process(self) -> process_tree.Seen | None:
        """The holder itself, if it lives."""
        if self.boot != boot_id():
            return None
        seen = process_tree.look(self.pid)
        return seen if seen is not None and seen.start_ticks == self.start_ticks and seen.state not in "ZX" else None


def read(folder: Path) -> HolderIdentity | None:
    """Who holds, or held, this folder; None when nobody ever did."""
    try:
        lines = (folder / IDENTITY).read_text().splitlines()
    except FileNotFoundError:
        return None
    if len(lines) < 5:
        return None  # nobody, and nobody will
    return HolderIdentity(int(lines[0]), int(lines[1]), lines[2], int(lines[3]), lines[4])


def close_for_good(folder: Path) -> None:
    """See to it that no holder can ever begin in a folder in which none has begun.

    One may be on its way, asked for by an engine that is dead or has lost its lease: it will find the place taken.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder / f"{IDENTITY}.{os.getpid()}.none"
    draft.write_text(_NOBODY)
    with contextlib.suppress(FileExistsError):
        os.link(draft, folder / IDENTITY)
    draft.unlink()
