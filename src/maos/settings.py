"""Where things are, unless said otherwise."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

DATABASE_DEFAULT = "maos.db"


def database(given: str | None, environment: Mapping[str, str] | None = None) -> str:
    """The database to open: as given, from MAOS_DB, or ./maos.db."""
    environment = os.environ if environment is None else environment
    return given or environment.get("MAOS_DB") or DATABASE_DEFAULT


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
