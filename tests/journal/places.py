"""Places for journals: in memory, a SQLite file, a schema of a PostgreSQL database; and how to damage what is there."""

import itertools
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import asyncpg
import pytest

import maos
from maos.app import Maos
from maos.clock import Clock
from maos.errors import MaosError
from maos.journal.journal import Record
from maos_testing.postgres import PostgresServer, why_unavailable

NOTE = maos.EventType("note")

schema_numbers = itertools.count(1)


class Place(NamedTuple):
    """Where a journal is."""

    kind: str
    folder: Path
    url: str = ""
    schema: str = ""

    @property
    def target(self) -> str:
        """What `maos.open` takes."""
        return {"memory": ":memory:", "sqlite": str(self.folder / "maos.db"), "postgres": self.url}[self.kind]

    def open(
        self,
        types: tuple[maos.EventType, ...] = (NOTE,),
        *,
        clock: Clock | None = None,
        accept_loss: bool = False,
    ) -> maos.open:
        """The journal there; each call is another process as far as maos can tell."""
        return maos.open(
            self.target,
            types=types,
            clock=clock,
            accept_loss=accept_loss,
            schema=self.schema,
            mark_path=self.folder / "head",
        )

    async def sql(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Go behind the journal's back, with parameters $1, $2 …; returns rows."""
        if self.kind == "postgres":
            connection = await asyncpg.connect(self.url, server_settings={"search_path": self.schema})
            try:
                return [tuple(row) for row in await connection.fetch(statement, *arguments)]
            finally:
                await connection.close()
        with apsw.Connection(self.target) as connection:
            connection.set_busy_timeout(10_000)
            rows = list(connection.execute(re.sub(r"\$(\d)", r"?\1", statement), arguments))
        connection.close()
        return rows


async def readable(m: Maos, stream: str) -> tuple[list[Record], MaosError | None]:
    """The events of a stream that can be read, and the error that ended it."""
    found = []
    try:
        async for record in m.journal.read(stream):
            found.append(record)
    except MaosError as error:
        return found, error
    return found, None


@pytest.fixture(scope="session")
def shared_url(postgres: PostgresServer) -> str:
    """A database in which each test has a schema of its own: quicker than a database for each."""
    return postgres.create_database(f"journals_{next(schema_numbers)}")


@pytest.fixture
def place_of(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Place]:
    """A new place of some kind."""

    def place(kind: str) -> Place:
        if kind != "postgres":
            return Place(kind, tmp_path)
        if reason := why_unavailable():
            pytest.skip(reason)
        server: PostgresServer = request.getfixturevalue("postgres")
        if not server.pid:
            server.start()  # an earlier test killed it and stopped there
        return Place(kind, tmp_path, request.getfixturevalue("shared_url"), f"place_{next(schema_numbers)}")

    return place


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, place_of: Callable[[str], Place]) -> Place:
    """An empty place of each kind."""
    return place_of(request.param)


@pytest.fixture(params=["sqlite", "postgres"])
def durable(request: pytest.FixtureRequest, place_of: Callable[[str], Place]) -> Place:
    """An empty place of each kind that several processes can open."""
    return place_of(request.param)


@pytest.fixture
def sqlite(place_of: Callable[[str], Place]) -> Place:
    """An empty SQLite file, for what does not depend on the store."""
    return place_of("sqlite")


@pytest.fixture
async def m(place: Place) -> AsyncIterator[Maos]:
    """An open journal of each kind."""
    async with place.open() as opened:
        yield opened
