"""Which files settings come from; a few looks at the disk, and nothing is read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

NAME = "maos.toml"


class SettingsSource(NamedTuple):
    """A file that settings come from."""

    path: Path
    is_project: bool
    """Found in or above the current folder, and not in the user's folder for settings."""


class SettingsFiles(NamedTuple):
    """The files there are, or would be."""

    user: Path
    project: Path | None
    passed_over: Path | None = None
    """A file above the current folder that belongs to a stranger."""

    @property
    def sources(self) -> list[SettingsSource]:
        """Those that are read, the one that outweighs the other last."""
        found = [SettingsSource(self.user, is_project=False)]
        return [*found, SettingsSource(self.project, is_project=True)] if self.project is not None else found


def find(folder: Path, config_folder: Path) -> SettingsFiles:
    """The user's file, and the project's: the nearest `maos.toml` in or above a folder.

    One that belongs neither to us, nor to root, nor to whoever the folder belongs to, is passed over: anybody can put
    a file into /tmp.
    """
    user = config_folder / NAME
    trusted = {os.getuid(), 0, os.stat(folder).st_uid}
    for each in (folder, *folder.parents):
        path = each / NAME
        try:
            owner = os.stat(path).st_uid
        except OSError:
            continue
        if path == user:
            continue
        if owner not in trusted:
            return SettingsFiles(user, None, path)
        return SettingsFiles(user, path)
    return SettingsFiles(user, None)
