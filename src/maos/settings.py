"""Where things are, unless said otherwise."""

from __future__ import annotations

import os
from collections.abc import Mapping

DATABASE_DEFAULT = "maos.db"


def database(given: str | None, environment: Mapping[str, str] | None = None) -> str:
    """The database to open: as given, from MAOS_DB, or ./maos.db."""
    environment = os.environ if environment is None else environment
    return given or environment.get("MAOS_DB") or DATABASE_DEFAULT
