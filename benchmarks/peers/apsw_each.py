"""Bare apsw, one transaction and one fsync per event: no versions, no chain, no index."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.peers.bare_sqlite import connect
from benchmarks.workload import Note

TABLE = "CREATE TABLE IF NOT EXISTS events (position INTEGER PRIMARY KEY, stream TEXT NOT NULL, data BLOB NOT NULL)"
INSERT = "INSERT INTO events (stream, data) VALUES (?, ?)"


@asynccontextmanager
async def inline(directory: Path) -> AsyncIterator[Callable[[str], Callable[[Note], Awaitable[None]]]]:
    """For one writer: the statement runs on the spot, which is the fastest a program can do it."""
    db = connect(directory / "events.db", TABLE)

    def writer(stream: str) -> Callable[[Note], Awaitable[None]]:
        async def append(note: Note) -> None:
            db.execute(INSERT, (stream, note.raw))

        return append

    try:
        yield writer
    finally:
        db.close()


@asynccontextmanager
async def threaded(directory: Path) -> AsyncIterator[Callable[[str], Callable[[Note], Awaitable[None]]]]:
    """For many writers: one thread does the blocking commits, as an asyncio program must."""
    db = connect(directory / "events.db", TABLE)
    thread = ThreadPoolExecutor(1)
    loop = asyncio.get_running_loop()

    def writer(stream: str) -> Callable[[Note], Awaitable[None]]:
        async def append(note: Note) -> None:
            await loop.run_in_executor(thread, db.execute, INSERT, (stream, note.raw))

        return append

    try:
        yield writer
    finally:
        thread.shutdown()
        db.close()
