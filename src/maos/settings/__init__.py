"""Where maos keeps its files, and which files settings come from. The other modules read and write the settings.

Every command imports this module, so it imports nothing that takes time and reads no file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, unquote

from maos.redact import is_secret_value
from maos.tuples import NamedTuple

FILE_NAME = "maos.toml"
DATABASE_DEFAULT = "maos.db"
FILE_BYTES_MAX = 50 * 1024 * 1024
"""The largest file that a checkpoint keeps, unless the settings say otherwise."""
LEASE_S = 30.0
"""These two are here for programs that need no other setting: the schema takes time to load."""
_SECRET_OPTIONS = ("password", "sslpassword")
_HIDDEN_OPTIONS = (*_SECRET_OPTIONS, "passfile")
"""Options in the URL of a database that are never shown."""


class DatabaseName:
    """A database as it was named: a path, `:memory:`, or a URL.

    A URL can have a password, also one with characters that a URL cannot have. Whatever prints this prints the URL
    without it: only `reveal` returns the password.
    """

    __slots__ = ("_given",)

    def __init__(self, given: str | os.PathLike[str] | DatabaseName) -> None:
        self._given: str = given._given if isinstance(given, DatabaseName) else os.fspath(given)

    def reveal(self) -> str:
        """Return the name with its password, for the program that connects."""
        return self._given

    @property
    def is_url(self) -> bool:
        """Whether it is a URL."""
        return "://" in self._given

    @property
    def secrets(self) -> dict[str, str]:
        """Return the password by a name for `Redactor`: what is in the URL, or in the file that it names.

        One that occurs in ordinary text is left out, since it would be removed there too: a single word, a number, and
        the user, host or database of the same URL.
        """
        found = {name: value for name, value in self._options() if name in _SECRET_OPTIONS}
        user_info, at, place = self._given.partition("://")[2].rpartition("@")
        address, _, path = place.partition("?")[0].partition("/")
        others = {unquote(each) for each in (user_info.partition(":")[0], address, address.rpartition(":")[0], path)}
        others |= {value for name, value in self._options() if name in ("user", "host", "dbname")}
        if at and ":" in user_info:
            found["database-password"] = unquote(user_info.partition(":")[2])
        for file in [value for name, value in self._options() if name == "passfile"]:
            try:
                lines = Path(file).read_text(errors="replace").splitlines()
            except OSError:
                continue  # the connection fails, and says so
            found |= {f"database-password-{number}": _last_field(line) for number, line in enumerate(lines)}
        return {name: value for name, value in found.items() if is_secret_value(value) and value not in others}

    def with_password_in(self, file: Path) -> DatabaseName:
        """Return the URL with its password left out, and read from a file instead: see `password_line`."""
        shown = str(self)
        return DatabaseName(f"{shown}{'&' if '?' in shown else '?'}passfile={quote(str(file))}")

    @property
    def password_line(self) -> str:
        """The line that a password file of PostgreSQL has for it; empty if the URL has no password."""
        options = dict(self._options())
        user_info, _at, _place = self._given.partition("://")[2].rpartition("@")
        password = unquote(user_info.partition(":")[2]) or options.get("password", "")
        escaped = password.replace("\\", "\\\\").replace(":", "\\:")
        return f"*:*:*:*:{escaped}\n" if self.is_url and password else ""

    def _options(self) -> list[tuple[str, str]]:
        pairs = [each.partition("=") for each in self._given.partition("?")[2].split("&")] if self.is_url else []
        return [(unquote(name).lower(), unquote(value)) for name, _, value in pairs]

    def __str__(self) -> str:
        scheme, mark, rest = self._given.partition("://")
        if not mark:
            return self._given
        user_info, at, place = rest.rpartition("@")
        shown = f"{scheme}://{user_info.partition(':')[0]}{at}{place}"
        address, question, query = shown.partition("?")
        options = [each for each in query.split("&") if unquote(each.partition("=")[0]).lower() not in _HIDDEN_OPTIONS]
        return f"{address}{question if any(options) else ''}{'&'.join(options)}"

    def __repr__(self) -> str:
        return repr(str(self))

    def __format__(self, how: str) -> str:
        return format(str(self), how)

    def __fspath__(self) -> str:
        return str(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DatabaseName) and self._given == other._given

    def __hash__(self) -> int:
        return hash(self._given)


def _last_field(line: str) -> str:
    """Return the password in a line of a password file, where a backslash comes before each colon in it."""
    fields = line.replace("\\\\", "\0").replace("\\:", "\1").split(":")
    return fields[-1].replace("\1", ":").replace("\0", "\\")


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


def folder_of(place: str, environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder for running agents of one database: two databases may have agents of the same name."""
    import hashlib  # loads OpenSSL, which most commands do not need

    absolute = place if "://" in place else os.path.abspath(place)
    name = absolute.rpartition("/")[2].partition("?")[0].removesuffix(".db")
    readable = "".join(char for char in name if char.isalnum())[:20] or "database"
    return state_folder(environment) / f"{readable}-{hashlib.sha256(absolute.encode()).hexdigest()[:8]}"


def is_own_folder(path: Path, kind: str, home: Path) -> bool:
    """Return whether a folder is directly below the folder `kind` of `home`, where the files of agents of a database
    are, or of the same for another database of this user: a database can be moved. Events can name any folder."""
    if not path.is_absolute() or ".." in path.parts:
        return False
    root = Path(os.path.realpath(path.parent))
    is_beside = root.name == kind and root.parent.parent == Path(os.path.realpath(state_folder()))
    return root == Path(os.path.realpath(home / kind)) or is_beside


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
