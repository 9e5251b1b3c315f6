"""Stores for crash tests: a place that fits into a command line, opened the same way by the test and its programs."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import asyncpg

from maos.clock import SystemClock
from maos.errors import MaosError
from maos.store.contract import Recorded
from maos.store.postgres import PostgresDatabase
from maos.store.sql_store import SqlStore
from maos.store.sqlite import SqliteDatabase

ROOT = Path(__file__).parents[2]


class Place(NamedTuple):
    """Where a store is: a file, or a schema of a PostgreSQL database with its mark beside the test."""

    folder: str
    url: str = ""
    schema_name: str = "maos"
    levels: str = ""
    """A folder of schema levels, instead of those that maos ships."""

    @property
    def path(self) -> Path:
        """The database file, or where the copy of a database goes."""
        return Path(self.folder) / "maos.db"

    @property
    def mark(self) -> Path:
        """The high-water mark."""
        return Path(self.folder) / "maos.db-head"

    def database(self, *, vfs: str | None = None, wait_s: float | None = 15.0) -> SqliteDatabase | PostgresDatabase:
        """The database, not yet open."""
        schema = Path(self.levels) if self.levels else None
        if not self.url:
            return SqliteDatabase(self.path, clock=SystemClock(), schema=schema, vfs=vfs)
        return PostgresDatabase(
            self.url,
            clock=SystemClock(),
            schema_name=self.schema_name,
            mark_path=self.mark,
            schema=schema,
            wait_s=wait_s,
        )

    @asynccontextmanager
    async def open(
        self, *, accept_loss: bool = False, vfs: str | None = None, wait_s: float | None = 15.0
    ) -> AsyncIterator[SqlStore]:
        """The store, closed afterwards."""
        database = self.database(vfs=vfs, wait_s=wait_s)
        store = await SqlStore.open(database, accept_loss=accept_loss)
        try:
            yield store
        finally:
            await store.close()

    async def refusal(self, *, vfs: str | None = None) -> MaosError | None:
        """The error that opening the store ends with, if it does."""
        try:
            async with self.open(vfs=vfs):
                return None
        except MaosError as error:
            return error

    async def settled(self) -> None:
        """Wait until a killed program's last wish has been done or dropped: its server process may outlive it."""
        if not self.url:
            return
        connection = await asyncpg.connect(self.url)
        try:
            others = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            others += " AND backend_type = 'client backend'"
            while await connection.fetchval(others):
                await asyncio.sleep(0.005)
        finally:
            await connection.close()

    def said(self) -> str:
        """The place as one word of a command line."""
        return json.dumps(self)


def place_from(said: str) -> Place:
    """The place that a command line names."""
    return Place(*json.loads(said))


def copy_files(source: Path, target: Path, *names: str) -> Place:
    """A place with the files of another one, as they are: only for one that nobody has open."""
    target.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.is_file() and (not names or file.name in names):
            shutil.copyfile(file, target / file.name)
    return Place(str(target))


class Abandoned(NamedTuple):
    """A journal whose only process was killed: the database, the log with everything in it, and the mark."""

    folder: Path
    log: list[Recorded]
    ends: list[int]
    """The position of each acknowledgement."""
    used: int
    """How much of the log is in use; zeros may follow."""

    def copy(self, folder: Path) -> Place:
        """The same files somewhere else; what was there before goes."""
        if folder.exists():
            shutil.rmtree(folder)
        return copy_files(self.folder, folder, "maos.db", "maos.db-wal", "maos.db-head")

    async def read(self, folder: Path) -> list[Recorded]:
        """All its events, from a copy."""
        async with self.copy(folder).open() as store:
            return await store.read_log(limit=1_000)


async def house_keeping(store: SqlStore) -> None:
    """Wait until the store is done with house-keeping, if it has begun any."""
    if store._writer._maintenance is not None:
        await asyncio.wait([store._writer._maintenance])
