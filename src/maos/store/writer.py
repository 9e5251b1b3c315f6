"""Group commit: many callers, one transaction, one fsync.

Requests that arrive during a transaction go into the next one; there is no timer. Replies are sent after the commit. A
full queue makes callers wait. A database that blocks (SQLite) is served by one thread, one that does not (PostgreSQL)
by one coroutine; both run the same `_commit`. With a blocking database, an append that is alone is committed at once on
the caller's thread, because switching threads costs more than the commit.

After a failure nothing is acknowledged until the database has been reopened and compared with what was being written
(I9): an error does not mean that nothing was written.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from maos.errors import DiskFull, MaosError, StoreUnavailable
from maos.store.contract import Appended, Sealer
from maos.store.database import Database
from maos.store.ledger import AppendRequest, Ledger, WriteBatch
from maos.store.patience import RetryPauses

T = TypeVar("T")

QUEUE_REQUESTS_MAX = 10_000
QUEUE_BYTES_MAX = 64 << 20
BATCH_REQUESTS_MAX = 4_096
BATCH_BYTES_MAX = 16 << 20


class _Job(msgspec.Struct, eq=False):
    """Work other than an append that needs the writer's turn."""

    work: Callable[[], Coroutine[Any, Any, Any]]
    waiter: asyncio.Future[None]
    result: Any = None
    error: Exception | None = None


class GroupCommitWriter:
    """Commits all appends of one process, in groups."""

    def __init__(self, database: Database, committed: Callable[[int], None], sealer: Sealer | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._database = database
        self._committed = committed
        self._ledger = Ledger(sealer)
        self._inside = 0
        self._closed = False
        # Requests that are accepted and not replied to; counted on the loop's thread only.
        self._pending = 0
        self._pending_bytes = 0
        self._space: deque[asyncio.Future[None]] = deque()
        # The writer's turn: its owner may use the ledger, the connection and the two fields below.
        self._turn = threading.Lock()
        self._broken = False
        self._attempted: WriteBatch | None = None
        # The queue of requests, and the thread or task that serves it.
        self._inbox: queue.SimpleQueue[AppendRequest | _Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._server: asyncio.Task[None] | None = None
        self._maintenance: asyncio.Task[None] | None = None
        self.maintenance_error: str | None = None
        """Why the last maintenance failed; the journal itself is not affected."""

    async def append(self, request: AppendRequest) -> Appended:
        """Commit a request; return its reply once it is on disk."""
        self._inside += 1
        try:
            if self._inside == 1 and self._database.blocking:
                # Let every ready task run first: if another appends too, they form a group.
                await asyncio.sleep(0)
                if self._inside == 1 and self._commit_at_once(request):
                    return _result(request)
            while self._full() and not self._closed:
                await self._wait_for_space()
            self._check_open()  # after all waiting: a closed queue is not served
            for write in request.writes:
                for event in write[1]:
                    request.size += len(event[2])
            for document in request.documents:
                request.size += len(document.body or b"")
            self._pending += 1
            self._pending_bytes += request.size
            waiter = request.waiter = self._loop.create_future()
            self._send(request)
            await waiter
            return _result(request)
        finally:
            self._inside -= 1

    async def exclusively(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run work that needs the writing connection, between two batches."""
        self._check_open()
        job = _Job(work, self._loop.create_future())
        self._send(job)
        await job.waiter
        if job.error is not None:
            raise job.error
        return job.result  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Complete accepted requests; accept no more."""
        self._closed = True
        self._admit(len(self._space))  # they raise that it is closed
        if self._maintenance is not None:
            await asyncio.wait([self._maintenance])
        if self._thread is not None:
            self._inbox.put(None)
            await asyncio.to_thread(self._thread.join)
        if self._server is not None:
            await asyncio.wait([self._server])

    # --- on the loop's thread --------------------------------------------------------------------------------

    def _commit_at_once(self, request: AppendRequest) -> bool:
        """Try to commit a request at once; return False to queue it, which also explains a failure."""
        if self._pending or self._closed or self._broken or not self._turn.acquire(blocking=False):
            return False
        try:
            if not self._database.commit_now(self._ledger, (request,)):
                return False
        except Exception as error:  # noqa: BLE001 - raised again and explained when it is queued
            self._failed(error)
            return False
        finally:
            self._turn.release()
        self._on_commit(self._ledger.position)
        return True

    def _full(self) -> bool:
        return self._pending >= QUEUE_REQUESTS_MAX or self._pending_bytes >= QUEUE_BYTES_MAX

    async def _wait_for_space(self) -> None:
        """Back-pressure: wait until a request has been replied to."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._space.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._admit(1)  # it was admitted just as it was cancelled: admit the next one instead
            raise

    def _admit(self, count: int) -> None:
        while count and self._space:
            turn = self._space.popleft()
            if not turn.done():
                turn.set_result(None)
                count -= 1

    def _check_open(self) -> None:
        if self._closed:
            raise self._database.closed()

    def _send(self, item: AppendRequest | _Job) -> None:
        self._inbox.put(item)
        if self._database.blocking:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve_in_thread, name="maos-writer", daemon=True)
                self._thread.start()
        elif self._server is None:
            self._server = self._loop.create_task(self._serve())

    def _reply(self, batch: Sequence[AppendRequest], position: int) -> None:
        """Wake the callers of a batch that was committed or refused."""
        self._on_commit(position)
        for request in batch:
            self._pending_bytes -= request.size
            if request.waiter is not None:
                _wake(request.waiter)
        self._pending -= len(batch)
        self._admit(len(batch))

    def _on_commit(self, position: int) -> None:
        if position > 0:
            self._committed(position)
        if self._maintenance is None and self._database.needs_maintenance() and not self._closed:
            self._maintenance = self._loop.create_task(self._maintain())

    async def _maintain(self) -> None:
        try:
            await asyncio.to_thread(self._database.maintain_concurrently)
            await self.exclusively(self._database.maintain)
            self.maintenance_error = None
        except MaosError as error:
            self.maintenance_error = str(error)  # retried when it is due again
        finally:
            self._maintenance = None

    # --- serving ---------------------------------------------------------------------------------------------

    def _serve_in_thread(self) -> None:
        while (first := self._inbox.get()) is not None:
            batch, job = self._take(first)
            if batch:
                with self._turn:
                    _run(self._commit(batch))
                    position = self._ledger.position
                self._loop.call_soon_threadsafe(self._reply, batch, position)
            if job is not None:
                with self._turn:
                    _run(self._do(job))
                self._loop.call_soon_threadsafe(_wake, job.waiter)

    async def _serve(self) -> None:
        try:
            while not self._inbox.empty():
                first = self._inbox.get_nowait()
                assert first is not None
                batch, job = self._take(first)
                if batch:
                    await self._commit(batch)
                    self._reply(batch, self._ledger.position)
                if job is not None:
                    await self._do(job)
                    _wake(job.waiter)
                await asyncio.sleep(0)  # callers that just got their reply append again: a fuller batch
        finally:
            self._server = None

    def _take(self, first: AppendRequest | _Job) -> tuple[list[AppendRequest], _Job | None]:
        """Take all waiting requests, up to the next job."""
        batch: list[AppendRequest] = []
        size = 0
        item: AppendRequest | _Job | None = first
        try:
            while True:
                if not isinstance(item, AppendRequest):
                    if item is None:
                        self._inbox.put(None)  # closing: the serving loop reads it again
                    return batch, item
                batch.append(item)
                size += item.size
                if len(batch) >= BATCH_REQUESTS_MAX or size >= BATCH_BYTES_MAX:
                    break
                item = self._inbox.get_nowait()
        except queue.Empty:
            pass
        return batch, None

    async def _do(self, job: _Job) -> None:
        attempts = self._database.patience.begin()
        while True:
            try:
                job.result = await job.work()
            except Exception as error:  # noqa: BLE001 - raised to the caller of the job
                if isinstance(error, DiskFull) and await self._wait(attempts, error):
                    continue
                job.error = error
            return

    # --- with the writer's turn ------------------------------------------------------------------------------

    async def _commit(self, batch: Sequence[AppendRequest]) -> None:
        """Line 5/8: commit a batch; each request gets a reply that is on disk, or an error.

        A lost connection is replaced once, and a full disk is an error at once; an engine waits out both.
        """
        attempts, last_try = self._database.patience.begin(), False
        while True:
            try:
                if self._broken:
                    await self._recover()
                    batch = [request for request in batch if not request.done]
                if batch:
                    await self._database.commit(self._ledger, batch)
            except Exception as error:  # noqa: BLE001 - explained to the callers, or retried
                self._failed(error)
                for request in batch:
                    request.error = None
                if last_try or not self._broken:
                    explained = self._database.explain(error)
                    if self._may_pass(explained) and await self._wait(attempts, explained):
                        continue
                    if len(batch) > 1 and not self._broken and not isinstance(explained, StoreUnavailable):
                        for request in batch:  # one of them cannot be written: commit the others
                            await self._commit((request,))
                    else:
                        self._refuse(batch, explained)
                    return
                last_try = True
            else:
                self._database.patience.worked()
                return

    def _may_pass(self, error: Exception) -> bool:
        """Return whether a failure is waited out by an engine: a full disk, or a server that is away."""
        is_away = isinstance(error, StoreUnavailable) and self._broken and not self._database.blocking
        return isinstance(error, DiskFull) or is_away

    async def _wait(self, attempts: RetryPauses, error: Exception) -> bool:
        """Wait before the next attempt, if calls wait without limit; return False when there is none."""
        patience = self._database.patience
        if patience.limit_s is not None or (isinstance(error, DiskFull) and not patience.has_engine):
            return False
        why = getattr(error, "what", "") or str(error)
        return attempts.pause_thread(why) if self._database.blocking else await attempts.pause(why)

    async def _recover(self) -> None:
        """Reopen the database and find out whether the failed batch was written."""
        await self._database.recover()
        if self._attempted is not None:
            written = await self._database.was_written(self._attempted)
            for request in self._attempted.requests:
                if written:
                    request.done = True
                elif written is None and request.key is None:  # under a key it can be repeated
                    request.done = True
                    what = f"{self._database.place} failed, and the stream was compacted before the append was found"
                    request.error = StoreUnavailable(what, written=None)
        self._attempted = None  # only now: or the next try would write it a second time
        self._broken = False

    def _failed(self, error: Exception) -> None:
        if self._database.outcome_unknown(error):
            self._broken = True
            self._attempted = self._ledger.attempt or self._attempted
        self._ledger.forget()

    def _refuse(self, batch: Sequence[AppendRequest], error: Exception) -> None:
        """Set the error of each request: one that never reached the database was not written.

        One that did, and could not be found out about, stays unknown.
        """
        attempted = set(self._attempted.requests) if self._attempted is not None else set()
        for request in batch:
            written = None if request in attempted else False
            if isinstance(error, StoreUnavailable) and error.written is not written:
                hint = error.hint if written is False else None
                request.error = StoreUnavailable(error.what, written=written, hint=hint)
            else:
                request.error = error


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine of a blocking database, which never suspends."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("a blocking database suspended")


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():  # its caller may have been cancelled
        waiter.set_result(None)


def _result(request: AppendRequest) -> Appended:
    if request.reply is not None and request.error is None:
        return request.reply
    assert request.error is not None
    raise request.error
