"""The databases that this user made on this machine, or has agreed to use here.

A database can come with a cloned repository, or belong to another user, and its events name programs and paths. So
nothing of a database that is not in the registry is executed. The registry is outside of every project: an empty file
for each database, named by the identity in the database and the number of its file. A copy of a database, also of one
that is in the registry, has another number.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from maos.files import private_folder, sync_folder
from maos.patterns import regex

_IDENTITY = regex(r"[0-9a-f]{32}")


class StoreRegistry:
    """The folder of the registry; `state_folder` returns the one that it is in."""

    def __init__(self, state_folder: Callable[[], Path]) -> None:
        self._state_folder = state_folder

    def has(self, identity: str, number: int) -> bool:
        """Return whether a database is in the registry."""
        return bool(_IDENTITY.fullmatch(identity)) and os.path.lexists(self._folder() / f"{identity}-{number}")

    def add(self, identity: str, number: int) -> None:
        """Add a database; on disk when this returns."""
        if not _IDENTITY.fullmatch(identity):
            raise ValueError(f"{identity!r} is not the identity of a database")
        folder = private_folder(self._folder())
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(folder / f"{identity}-{number}", flags, 0o600))
        sync_folder(folder)

    def _folder(self) -> Path:
        return self._state_folder() / "stores"
