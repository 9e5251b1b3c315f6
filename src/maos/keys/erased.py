"""The keys that were erased on this machine: an older copy of a database, or of its keys, does not bring them back.

An empty file for each, named by the id of the key, in a folder outside of every project. A restoration looks there
before the restored database is opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from maos.files import private_folder, sync_folder


class ErasedKeys:
    """The folder with the ids of erased keys."""

    def __init__(self, state_folder: Path) -> None:
        self._folder = state_folder / "erased-keys"

    def add(self, ids: Iterable[bytes]) -> None:
        """Note keys as erased; on disk when this returns."""
        private_folder(self._folder)
        for id in ids:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(self._folder / id.hex(), flags, 0o600))
        sync_folder(self._folder)

    def of(self, ids: Iterable[bytes]) -> list[bytes]:
        """Return which of these keys were erased here."""
        return [id for id in ids if os.path.lexists(self._folder / id.hex())]
