"""A schema with one more level, for tests of upgrades."""

import shutil
from pathlib import Path

import apsw
import asyncpg

from maos.store import database
from tests.crash.stores import Place

SHIPPED = database.steps("sqlite")[-1].level
NEXT = SHIPPED + 1
SECOND = {
    "sqlite": "CREATE TABLE types (name TEXT PRIMARY KEY) STRICT; INSERT INTO types SELECT DISTINCT type FROM events;",
    "postgres": "CREATE TABLE types (name text PRIMARY KEY); INSERT INTO types SELECT DISTINCT type FROM events;",
}


def two_levels(folder: Path) -> Path:
    """A folder with the schema that maos ships and one level above it."""
    levels = folder / "levels"
    shipped = Path(database.__file__).parent / "schema"
    for dialect, statements in SECOND.items():
        shutil.copytree(shipped / dialect, levels / dialect)
        (levels / dialect / f"{NEXT:04d}_types.sql").write_text(statements)
    return levels


def older_levels(folder: Path) -> Path:
    """A folder with the schema that maos ships, without its newest level."""
    levels = folder / "older"
    shutil.copytree(Path(database.__file__).parent / "schema", levels)
    for dialect in SECOND:
        next((levels / dialect).glob(f"{SHIPPED:04d}_*.sql")).unlink()
    return levels


async def level_of(place: Place) -> int:
    """The schema level of a store that nobody else has open."""
    if place.url:
        connection = await asyncpg.connect(place.url)
        try:
            return int(await connection.fetchval(f"SELECT max(level) FROM {place.schema_name}.schema_level"))
        finally:
            await connection.close()
    with apsw.Connection(str(place.path)) as connection:
        level = connection.execute("PRAGMA user_version").get
    connection.close()
    return int(level)
