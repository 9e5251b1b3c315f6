"""Loads the named statements of queries.sql."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- (\w+) --$", re.MULTILINE)


@cache
def load() -> dict[str, str]:
    """Return each statement by its name, with $1-style parameters and without comments."""
    text = files("maos.store").joinpath("queries.sql").read_text(encoding="utf-8")
    parts = _NAME.split(text)[1:]
    return {
        name: " ".join(line.strip() for line in body.splitlines() if not line.startswith("--")).strip().rstrip(";")
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }


@cache
def for_sqlite() -> dict[str, str]:
    """Return each statement by its name, with SQLite's numbered parameters."""
    return {name: re.sub(r"\$(\d)", r"?\1", statement) for name, statement in load().items()}
