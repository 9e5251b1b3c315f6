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


def state_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Where this machine keeps what belongs to running agents: MAOS_HOME, or maos below the user's state folder."""
    environment = os.environ if environment is None else environment
    given = environment.get("MAOS_HOME")
    if given:
        return Path(given).absolute()
    state = environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state).absolute() / "maos"
