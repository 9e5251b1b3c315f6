"""Schema levels: numbered files, applied upwards only, each in one transaction.

The first level is 2: level 1 belonged to pre-release versions, whose events have other names, and is refused.
A database of a newer level is refused, because guessing its meaning could lose data. Before an existing database is
upgraded, a copy is kept; each database does that in its own way.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from maos.errors import UnknownFormat

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")


class UpgradeStep(NamedTuple):
    """One schema level: its number, its name and the statements that lead to it from the level below."""

    level: int
    name: str
    sql: str


def steps(dialect: str, folder: Traversable | None = None) -> list[UpgradeStep]:
    """Return all levels of a dialect, lowest first; those shipped with maos unless a folder is given."""
    return _shipped(dialect) if folder is None else _read(folder.joinpath(dialect))


@cache
def _shipped(dialect: str) -> list[UpgradeStep]:
    """Return the shipped levels, read once per process: reading them takes longer than the rest of opening."""
    return _read(files("maos.store").joinpath("schema", dialect))


def _read(folder: Traversable) -> list[UpgradeStep]:
    found = []
    for file in folder.iterdir():
        match = _FILE.fullmatch(file.name)
        if match:
            found.append(UpgradeStep(int(match[1]), match[2], file.read_text(encoding="utf-8")))
    found.sort()
    return found


def pending(known: list[UpgradeStep], level: int, place: str) -> list[UpgradeStep]:
    """Return the steps from a level to the newest; refuse a level above the newest or below the first."""
    first, newest = known[0].level, known[-1].level
    if 0 < level < first:
        raise UnknownFormat(
            f"{place} has schema level {level}, which only pre-release versions of maos wrote; "
            f"this maos reads levels {first} to {newest}",
            hint="finish its runs with the maos that wrote it, and give this one a new database; nothing was changed",
        )
    if level > newest:
        raise UnknownFormat(
            f"{place} has schema level {level}, this maos knows levels up to {newest}",
            hint="upgrade maos; nothing was changed",
        )
    return [step for step in known if step.level > level]
