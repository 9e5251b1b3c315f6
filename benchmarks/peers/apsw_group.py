"""Bare apsw group commit: one thread commits everything that has arrived meanwhile, in one transaction.

The limit of what SQLite can acknowledge durably to an asyncio program; no versions, no chain, no index.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

import apsw

from benchmarks.peers.apsw_each import INSERT, TABLE
from benchmarks.peers.bare_sqlite import connect
from benchmarks.workload import Note

Request = tuple["asyncio.Future[None]", tuple[str, bytes]]


@asynccontextmanager
async def group(directory: Path) -> AsyncIterator[Callable[[str], Callable[[Note], Awaitable[None]]]]:
    """Writers hand their event to the thread and wait for the answer of its batch."""
    db = connect(directory / "events.db", TABLE)
    loop = asyncio.get_running_loop()
    queue: SimpleQueue[Request | None] = SimpleQueue()
    thread = Thread(target=_commit_forever, args=(db, queue, loop))
    thread.start()

    def writer(stream: str) -> Callable[[Note], Awaitable[None]]:
        def append(note: Note) -> Awaitable[None]:
            answer: asyncio.Future[None] = loop.create_future()
            queue.put((answer, (stream, note.raw)))
            return answer

        return append

    try:
        yield writer
    finally:
        queue.put(None)
        thread.join()
        db.close()


def _commit_forever(db: apsw.Connection, queue: SimpleQueue[Request | None], loop: asyncio.AbstractEventLoop) -> None:
    more = True
    while more:
        batch = [queue.get()]
        try:
            while True:
                batch.append(queue.get_nowait())
        except Empty:
            pass
        requests = [request for request in batch if request is not None]
        more = len(requests) == len(batch)
        with db:
            db.executemany(INSERT, [row for _, row in requests])
        if more:
            loop.call_soon_threadsafe(_answer, requests)


def _answer(requests: list[Request]) -> None:
    for future, _ in requests:
        if not future.done():
            future.set_result(None)
