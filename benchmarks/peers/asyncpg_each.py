"""PostgreSQL through asyncpg, one connection per writer, one transaction per event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import cycle

import asyncpg

from benchmarks.workload import Note

TABLE = (
    "CREATE TABLE events (position BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
    "stream TEXT NOT NULL, data BYTEA NOT NULL)"
)

INSERT = "INSERT INTO events (stream, data) VALUES ($1, $2)"


@asynccontextmanager
async def each(url: str, connections: int) -> AsyncIterator[Callable[[str], Callable[[Note], Awaitable[None]]]]:
    """Writers with a connection each, as long as there are no more of them than `connections`."""
    opened = [await asyncpg.connect(url) for _ in range(connections)]
    await opened[0].execute(TABLE)
    turns = cycle(opened)

    def writer(stream: str) -> Callable[[Note], Awaitable[None]]:
        connection = next(turns)

        async def append(note: Note) -> None:
            await connection.execute(INSERT, stream, note.raw)

        return append

    try:
        yield writer
    finally:
        await asyncio.gather(*(connection.close() for connection in opened))
