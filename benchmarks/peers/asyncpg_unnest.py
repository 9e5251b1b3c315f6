"""PostgreSQL through asyncpg, group commit: everything that has arrived meanwhile is one `unnest` insert.

The limit of what one connection can acknowledge durably to an asyncio program; no versions, no chain.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import asyncpg

from benchmarks.peers.asyncpg_each import TABLE
from benchmarks.workload import Note

INSERT = "INSERT INTO events (stream, data) SELECT * FROM unnest($1::text[], $2::bytea[])"


@asynccontextmanager
async def group(url: str) -> AsyncIterator[Callable[[str], Callable[[Note], Awaitable[None]]]]:
    """Writers hand their event to one task that inserts in batches on one connection."""
    connection = await asyncpg.connect(url)
    await connection.execute(TABLE)
    insert = await connection.prepare(INSERT)
    loop = asyncio.get_running_loop()
    waiting: list[tuple[asyncio.Future[None], str, bytes]] = []
    arrived = asyncio.Event()

    async def commit_forever() -> None:
        while await arrived.wait():
            arrived.clear()
            batch = waiting.copy()
            waiting.clear()
            await insert.fetch([stream for _, stream, _ in batch], [data for _, _, data in batch])
            for answer, _, _ in batch:
                if not answer.done():
                    answer.set_result(None)

    def writer(stream: str) -> Callable[[Note], Awaitable[None]]:
        def append(note: Note) -> Awaitable[None]:
            answer: asyncio.Future[None] = loop.create_future()
            waiting.append((answer, stream, note.raw))
            arrived.set()
            return answer

        return append

    task = asyncio.create_task(commit_forever())
    try:
        yield writer
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await connection.close()
