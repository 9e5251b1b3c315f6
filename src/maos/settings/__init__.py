"""Where things are, unless said otherwise; and, in the modules beside this one, everything else that can be set.

This module is loaded by every command and loads nothing itself: `maos --help` reads no file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maos.settings.current import Current
DATABASE_DEFAULT = "maos.db"
LEASE_S = 30.0
"""These two are needed by programs that have no use for the other settings, which take a moment to load."""


def here(flags: Mapping[str, tuple[str, Any]] | None = None, environment: Mapping[str, str] | None = None) -> Current:
    """The settings for the current folder; BadSettings with the place of every mistake."""
    from maos.settings.current import Current
    from maos.settings.locations import find

    folder, config = Path.cwd(), config_folder(environment)
    return Current(lambda: find(folder, config).sources, environment, flags)


def are_there(environment: Mapping[str, str] | None = None) -> bool:
    """Whether there is any file of settings for the current folder."""
    from maos.settings.locations import find

    return any(each.path.exists() for each in find(Path.cwd(), config_folder(environment)).sources)


def folder_of(place: str, environment: Mapping[str, str] | None = None) -> Path:
    """Where this machine keeps what belongs to the running agents of one database: two may have agents of one name."""
    import hashlib  # loads OpenSSL, which most commands have no use for

    absolute = place if "://" in place else os.path.abspath(place)
    name = absolute.rpartition("/")[2].partition("?")[0].removesuffix(".db")
    readable = "".join(char for char in name if char.isalnum())[:20] or "database"
    return state_folder(environment) / f"{readable}-{hashlib.sha256(absolute.encode()).hexdigest()[:8]}"


def state_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Where this machine keeps what belongs to running agents: MAOS_HOME, or maos below the user's state folder."""
    environment = os.environ if environment is None else environment
    given = environment.get("MAOS_HOME")
    if given:
        return Path(given).absolute()
    state = environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state).absolute() / "maos"


def config_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Where the user keeps settings for maos: maos below the user's folder for them."""
    environment = os.environ if environment is None else environment
    return Path(environment.get("XDG_CONFIG_HOME") or Path.home() / ".config").absolute() / "maos"
