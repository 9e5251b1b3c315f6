"""Group commit: many callers, one transaction, one fsync.

Whatever is asked for while a transaction is under way goes into the next one; there is no timer. Durable first, told
second. A full queue makes callers wait. A database that blocks (SQLite) is served by one thread, one that does not
(PostgreSQL) by one coroutine; both run the same `_commit`. On a database with short commits, an append that finds
nobody else about is committed at once on the caller's thread, because the way to a thread and back costs more than
the commit.

After a failure nothing is acknowledged until the database has been reopened and what it holds has been compared with
what was being written (I9): an error does not mean that nothing was written.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from maos.errors import MaosError, StoreUnavailable
from maos.store.contract import Appended
from maos.store.ledger import AppendRequest, Ledger, WriteBatch

T = TypeVar("T")

QUEUE_REQUESTS_MAX = 10_000
QUEUE_BYTES_MAX = 64 << 20
BATCH_REQUESTS_MAX = 4_096
BATCH_BYTES_MAX = 16 << 20
REPEAT = "the outcome is unknown; repeating the append under the same key is safe"


class Transactor(Protocol):
    """What the writer needs of a database."""

    place: str
    blocking: bool
    """Whether its methods do their work on the calling thread and never suspend, `async` or not."""

    def commit_now(self, ledger: Ledger, batch: Sequence[AppendRequest]) -> bool:
        """Write a batch at once; False when that would mean waiting for another process. Only if `blocking`."""
        ...

    async def commit(self, ledger: Ledger, batch: Sequence[AppendRequest]) -> None:
        """Write a batch, waiting as long as it takes."""
        ...

    def outcome_unknown(self, error: Exception) -> bool:
        """Whether a commit that failed with this error may have been written all the same."""
        ...

    def explain(self, error: Exception) -> Exception:
        """The error to show for a failure of the database."""
        ...

    async def recover(self) -> None:
        """Reopen after a failure; raises MaosError while that is not possible."""
        ...

    async def was_written(self, plan: WriteBatch) -> bool | None:
        """Whether a plan with an unknown outcome is in the database, and on disk; None when nobody can tell."""
        ...

    def wants_care(self) -> bool:
        """Whether house-keeping is due."""
        ...

    def care_meanwhile(self) -> None:
        """The part of the house-keeping during which commits may go on; runs in a thread."""
        ...

    async def care(self) -> None:
        """The part that needs the writer's turn."""
        ...


class _Job:
    """Something else that needs the writer's turn."""

    __slots__ = ("error", "result", "waiter", "work")

    def __init__(self, work: Callable[[], Coroutine[Any, Any, Any]], waiter: asyncio.Future[None]) -> None:
        self.work = work
        self.waiter = waiter
        self.result: Any = None
        self.error: Exception | None = None


class GroupCommitWriter:
    """The only way into the journal within one process."""

    def __init__(self, database: Transactor, committed: Callable[[int], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._database = database
        self._committed = committed
        self._ledger = Ledger()
        self._inside = 0
        self._closed = False
        # Accepted and not yet answered; counted on the loop's thread only.
        self._pending = 0
        self._pending_bytes = 0
        self._space: deque[asyncio.Future[None]] = deque()
        # The writer's turn: whoever has it may touch the ledger, the connection and the two fields below.
        self._turn = threading.Lock()
        self._broken = False
        self._attempted: WriteBatch | None = None
        # How requests reach whoever serves them.
        self._inbox: queue.SimpleQueue[AppendRequest | _Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._server: asyncio.Task[None] | None = None
        self._carer: asyncio.Task[None] | None = None
        self.care_trouble: str | None = None
        """Why the last house-keeping failed; the journal itself is not affected by that."""

    async def append(self, request: AppendRequest) -> Appended:
        """The reply to a request, once it is on disk."""
        self._inside += 1
        try:
            if self._inside == 1 and self._database.blocking:
                # Everybody who is ready to run comes in first: with company this joins a group.
                await asyncio.sleep(0)
                if self._inside == 1 and self._commit_at_once(request):
                    return _answer(request)
            while self._full() and not self._closed:
                await self._room()
            self._check_open()  # after all waiting: once it is closed nobody serves the queue
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
            return _answer(request)
        finally:
            self._inside -= 1

    async def exclusively(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run something that needs the writing connection, between two batches."""
        self._check_open()
        job = _Job(work, self._loop.create_future())
        self._send(job)
        await job.waiter
        if job.error is not None:
            raise job.error
        return job.result  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Finish what was accepted; accept nothing more."""
        self._closed = True
        self._let_in(len(self._space))  # to be told that it is closed
        if self._carer is not None:
            await asyncio.wait([self._carer])
        if self._thread is not None:
            self._inbox.put(None)
            await asyncio.to_thread(self._thread.join)
        if self._server is not None:
            await asyncio.wait([self._server])

    # --- on the loop's thread --------------------------------------------------------------------------------

    def _commit_at_once(self, request: AppendRequest) -> bool:
        """Whether the request is answered; if not, it goes the ordinary way, which also finds out what went wrong."""
        if self._pending or self._closed or self._broken or not self._turn.acquire(blocking=False):
            return False
        try:
            if not self._database.commit_now(self._ledger, (request,)):
                return False
        except Exception as error:  # noqa: BLE001 - the ordinary way meets it again and explains it
            self._failed(error)
            return False
        finally:
            self._turn.release()
        self._grown(self._ledger.position)
        return True

    def _full(self) -> bool:
        return self._pending >= QUEUE_REQUESTS_MAX or self._pending_bytes >= QUEUE_BYTES_MAX

    async def _room(self) -> None:
        """Back-pressure: wait until something has been answered."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._space.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._let_in(1)  # it was let in at the moment it gave up: the next one takes its place
            raise

    def _let_in(self, count: int) -> None:
        while count and self._space:
            turn = self._space.popleft()
            if not turn.done():
                turn.set_result(None)
                count -= 1

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"{self._database.place} is closed", written=False, hint="open it again")

    def _send(self, item: AppendRequest | _Job) -> None:
        self._inbox.put(item)
        if self._database.blocking:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve_in_thread, name="maos-writer", daemon=True)
                self._thread.start()
        elif self._server is None:
            self._server = self._loop.create_task(self._serve())

    def _tell(self, batch: Sequence[AppendRequest], position: int) -> None:
        """Answer a batch that was dealt with."""
        self._grown(position)
        for request in batch:
            self._pending_bytes -= request.size
            if request.waiter is not None:
                _wake(request.waiter)
        self._pending -= len(batch)
        self._let_in(len(batch))

    def _grown(self, position: int) -> None:
        if position > 0:
            self._committed(position)
        if self._carer is None and self._database.wants_care() and not self._closed:
            self._carer = self._loop.create_task(self._care())

    async def _care(self) -> None:
        try:
            await asyncio.to_thread(self._database.care_meanwhile)
            await self.exclusively(self._database.care)
            self.care_trouble = None
        except MaosError as error:
            self.care_trouble = str(error)  # tried again when there is more to do
        finally:
            self._carer = None

    # --- serving ---------------------------------------------------------------------------------------------

    def _serve_in_thread(self) -> None:
        while (first := self._inbox.get()) is not None:
            batch, job = self._take(first)
            if batch:
                with self._turn:
                    _run(self._commit(batch))
                    position = self._ledger.position
                self._loop.call_soon_threadsafe(self._tell, batch, position)
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
                    self._tell(batch, self._ledger.position)
                if job is not None:
                    await self._do(job)
                    _wake(job.waiter)
                await asyncio.sleep(0)  # those just answered send their next appends: a fuller batch
        finally:
            self._server = None

    def _take(self, first: AppendRequest | _Job) -> tuple[list[AppendRequest], _Job | None]:
        """Everything that is waiting, up to the next job."""
        batch: list[AppendRequest] = []
        size = 0
        item: AppendRequest | _Job | None = first
        try:
            while True:
                if not isinstance(item, AppendRequest):
                    if item is None:
                        self._inbox.put(None)  # closing: seen again by the loop that serves
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
        try:
            job.result = await job.work()
        except Exception as error:  # noqa: BLE001 - handed to whoever asked for the job
            job.error = error

    # --- with the writer's turn ------------------------------------------------------------------------------

    async def _commit(self, batch: Sequence[AppendRequest]) -> None:
        """Line 5/8: give every request of the batch a reply that is on disk, or an error."""
        for last_try in (False, True):
            try:
                if self._broken:
                    await self._mend()
                    batch = [request for request in batch if not request.settled]
                if batch:
                    await self._database.commit(self._ledger, batch)
            except Exception as error:  # noqa: BLE001 - explained to the callers, or tried again
                self._failed(error)
                for request in batch:
                    request.error = None
                if last_try or not self._broken:
                    explained = self._database.explain(error)
                    if len(batch) > 1 and not self._broken and not isinstance(explained, StoreUnavailable):
                        for request in batch:  # one of them cannot be written: that is not the others' fault
                            await self._commit((request,))
                    else:
                        self._refuse(batch, explained)
                    return
            else:
                return

    async def _mend(self) -> None:
        """Reopen the database and find out what became of the batch that failed."""
        await self._database.recover()
        if self._attempted is not None:
            written = await self._database.was_written(self._attempted)
            for request in self._attempted.requests:
                if written:
                    request.settled = True
                elif written is None and request.key is None:  # under a key it can be tried again
                    request.settled = True
                    what = f"{self._database.place} failed, and others compacted the stream before it was looked up"
                    request.error = StoreUnavailable(what, written=None, hint=REPEAT)
        self._attempted = None  # not before it was looked up: else the next try would write it once more
        self._broken = False

    def _failed(self, error: Exception) -> None:
        if self._database.outcome_unknown(error):
            self._broken = True
            self._attempted = self._ledger.attempt or self._attempted
        self._ledger.forget()

    def _refuse(self, batch: Sequence[AppendRequest], error: Exception) -> None:
        """Tell what is known: a request that never reached the disk was not written, whatever became of others.

        One that did, and could not be looked up, stays unknown, whatever stopped the looking.
        """
        attempted = set(self._attempted.requests) if self._attempted is not None else set()
        for request in batch:
            written = None if request in attempted else False
            if isinstance(error, StoreUnavailable) and error.written is not written:
                request.error = StoreUnavailable(
                    error.what, written=written, hint=error.hint if written is False else REPEAT
                )
            else:
                request.error = error


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never suspends, as those over a blocking database."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("a blocking database suspended")


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():  # its caller may have been cancelled
        waiter.set_result(None)


def _answer(request: AppendRequest) -> Appended:
    if request.reply is not None and request.error is None:
        return request.reply
    assert request.error is not None
    raise request.error
