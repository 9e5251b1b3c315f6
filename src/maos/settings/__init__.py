"""Where maos keeps its files, and which files settings come from. The other modules read and write the settings.

Every command imports this module, so it imports nothing that takes time and reads no file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

FILE_NAME = "maos.toml"
DATABASE_DEFAULT = "maos.db"
LEASE_S = 30.0
"""These two are here for programs that need no other setting: the schema takes time to load."""
_SECRET_OPTIONS = ("password", "sslpassword")
"""Options in the URL of a database that are never shown."""


def names_program(kind: str) -> bool:
    """Return whether a kind of agent names a program to run, as `acp:PROGRAM` does: no file of a project may."""
    return ":" in kind


class SettingsSource(NamedTuple):
    """A settings file."""

    path: Path
    is_project: bool
    """Whether it was found in or above the current folder, not in the user's configuration folder."""


class SettingsFiles(NamedTuple):
    """The settings files of a folder; the user's need not exist."""

    user: Path
    project: Path | None
    passed_over: Path | None = None
    """A file above the current folder that is ignored because it belongs to another user."""

    @property
    def sources(self) -> list[SettingsSource]:
        """The files to read; the last one takes precedence."""
        found = [SettingsSource(self.user, is_project=False)]
        return [*found, SettingsSource(self.project, is_project=True)] if self.project is not None else found


def find_files(folder: Path, config_folder: Path) -> SettingsFiles:
    """Find the user's file, and the project's: the nearest `maos.toml` in or above a folder.

    A project's file must belong to the user, to root or to the owner of the folder: any user can put a file into /tmp.
    """
    user = config_folder / FILE_NAME
    trusted = {os.getuid(), 0, os.stat(folder).st_uid}
    for each in (folder, *folder.parents):
        path = each / FILE_NAME
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


def find_database(folder: Path) -> str:
    """Return the path of the database of a folder: the nearest one in or above it, up to the root of its repository.

    If there is none, it is the one to be created: at the root of the repository, or in the folder outside of one. A
    file of another user, and a folder that others can write to, are passed over.
    """
    home = os.path.expanduser("~")
    for each in (folder, *folder.parents):
        path = each / DATABASE_DEFAULT
        if each == folder or str(each) != home:
            found = _status(path)
            is_shared = each != folder and os.stat(each).st_mode & 0o002
            if found is not None and (each == folder or (found.st_uid == os.geteuid() and not is_shared)):
                return os.path.relpath(path, folder)
        if _status(each / ".git") is not None:
            return os.path.relpath(path, folder)
        if str(each) == home:
            break
    return DATABASE_DEFAULT


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def are_there(environment: Mapping[str, str] | None = None) -> bool:
    """Return whether there is a settings file for the current folder."""
    return any(each.path.exists() for each in find_files(Path.cwd(), config_folder(environment)).sources)


def without_password(database: str) -> str:
    """Return the URL of a database without its password, also if that has characters which a URL cannot have.

    The path of a database stays as it is.
    """
    scheme, mark, rest = database.partition("://")
    if not mark:
        return database
    user_info, at, place = rest.rpartition("@")
    shown = f"{scheme}://{user_info.partition(':')[0]}{at}{place}"
    address, question, query = shown.partition("?")
    options = [each for each in query.split("&") if unquote(each.partition("=")[0]).lower() not in _SECRET_OPTIONS]
    return f"{address}{question if any(options) else ''}{'&'.join(options)}"


def folder_of(place: str, environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder for running agents of one database: two databases may have agents of the same name."""
    import hashlib  # loads OpenSSL, which most commands do not need

    absolute = place if "://" in place else os.path.abspath(place)
    name = absolute.rpartition("/")[2].partition("?")[0].removesuffix(".db")
    readable = "".join(char for char in name if char.isalnum())[:20] or "database"
    return state_folder(environment) / f"{readable}-{hashlib.sha256(absolute.encode()).hexdigest()[:8]}"


def state_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder for running agents on this machine: MAOS_HOME, or maos below the user's state folder."""
    environment = os.environ if environment is None else environment
    given = environment.get("MAOS_HOME")
    if given:
        return Path(given).absolute()
    state = environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state).absolute() / "maos"


def config_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder of the user's settings: maos below the user's configuration folder."""
    environment = os.environ if environment is None else environment
    return Path(environment.get("XDG_CONFIG_HOME") or Path.home() / ".config").absolute() / "maos"
