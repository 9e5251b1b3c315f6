"""The store contract in SQL, for both databases.

Reads and leases are named statements; writes go through the group-commit writer. What differs between SQLite and
PostgreSQL is behind `Database`. The docstrings of its methods are those of `Store`.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from maos.errors import Corrupt, DiskFull, HistoryLost, StoreUnavailable, UntrustedStore
from maos.store.contract import Appended, Document, Health, Key, Lease, Recorded, Replacement, Store, Write
from maos.store.database import Database, Mark, Row
from maos.store.ledger import AppendRequest
from maos.store.writer import GroupCommitWriter

POLL_S = 1.0
"""A waiter checks the journal this often, in case a wake-up was lost."""

_LAST = "\U0010ffff"


class SqlStore(Store):
    """A store in a SQL database."""

    def __init__(self, database: Database) -> None:
        self.place = database.place
        self.database = database
        self._writer = GroupCommitWriter(database, self._on_commit)
        self._head = 0
        self._waiters: set[asyncio.Future[None]] = set()
        self._listening = False
        # Versions read since any process last changed the database.
        self._stamp: int | None = None
        self._is_own = database.registry is None
        """Whether this user is known to have made the database here, or to have agreed to use it."""
        self._versions: dict[str, int] = {}

    @classmethod
    async def open(cls, database: Database, *, accept_loss: bool = False) -> SqlStore:
        """Open, create or upgrade; refuse a journal that lost acknowledged events, unless `accept_loss`."""
        await database.open()
        store = cls(database)
        try:
            await store._compare_with_mark(accept_loss=accept_loss)
        except BaseException:
            await database.close(refused=True)
            raise
        return store

    def append(
        self,
        *writes: Write,
        key: Key | None = None,
        under: Lease | None = None,
        documents: Sequence[Document] = (),
        replacing: Sequence[Replacement] = (),
    ) -> Coroutine[Any, Any, Appended]:
        # Not `async`, which saves a coroutine for every event.
        request = AppendRequest(writes, key, under, documents, replacing)
        return self._writer.append(request) if self._is_own else self._append_first(request)

    async def _append_first(self, request: AppendRequest) -> Appended:
        await self.check_own()
        return await self._writer.append(request)

    async def check_own(self) -> None:
        if not self._is_own:
            if why := await self.database.why_untrusted():
                raise UntrustedStore(self.place, why)
            self._is_own = True

    async def trust(self) -> None:
        await self.database.trust()
        self._is_own = True

    async def read(self, stream: str, *, after: int = 0, limit: int = 256, backwards: bool = False) -> list[Recorded]:
        query = "read_stream_backwards" if backwards else "read_stream"
        return [Recorded._make(row) for row in await self.database.fetch(query, stream, after, limit)]

    async def read_log(self, *, after: int = 0, limit: int = 256) -> list[Recorded]:
        rows = await self.database.fetch("read_log", after, limit)
        if rows and rows[-1][0] <= after:
            raise Corrupt(f"position {rows[-1][0]} follows {after}")  # a follower would loop for ever
        return [Recorded._make(row) for row in rows]

    async def version(self, stream: str) -> int:
        stamp = self.database.stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            self._versions.clear()
        elif (known := self._versions.get(stream)) is not None:
            return known
        row = await self.database.fetch_row("stream_version", stream)
        version: int = row[0] if row else 0
        if stamp is not None:
            self._versions[stream] = version
        return version

    async def head(self) -> int:
        row = await self.database.fetch_row("log_head")
        return row[0] if row else 0

    async def streams(self, *, prefix: str = "", after: str = "", limit: int = 256) -> list[str]:
        rows = await self.database.fetch("stream_names", after, prefix, prefix + _LAST, limit)
        return [row[0] for row in rows]

    async def wait(self, *, after: int, timeout_s: float) -> int:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        if not self._listening:
            self._listening = True
            try:
                await self.database.listen(self._wake)
            except BaseException:
                self._listening = False  # the next waiter tries again
                raise
        while True:
            waiter = loop.create_future()
            self._waiters.add(waiter)
            try:
                # Check after registering: any later commit wakes the waiter.
                self._head = max(self._head, await self.head())
                remaining = deadline - loop.time()
                if self._head > after or remaining <= 0:
                    return self._head
                await asyncio.wait((waiter,), timeout=min(remaining, POLL_S))
            finally:
                self._waiters.discard(waiter)

    async def acquire(self, name: str, *, owner: str, ttl_s: float) -> Lease | None:
        return await self._lease("acquire_lease", name, owner, int(ttl_s * 1_000_000))

    async def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
        return await self._lease("renew_lease", lease.name, lease.owner, lease.token, int(ttl_s * 1_000_000))

    async def release(self, lease: Lease) -> None:
        await self._lease("release_lease", lease.name, lease.owner, lease.token)

    async def load(self, kind: str, key: str) -> Document | None:
        row = await self.database.fetch_row("load_document", kind, key)
        return Document._make(row) if row else None

    async def scan(self, kind: str, *, prefix: str = "", after: str = "", limit: int = 256) -> list[Document]:
        rows = await self.database.fetch("scan_documents", kind, after, prefix, prefix + _LAST, limit)
        return [Document._make(row) for row in rows]

    async def copy_to(self, path: Path) -> int:
        try:
            return await self.database.copy_to(path)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise DiskFull(str(path)) from error
            raise StoreUnavailable(
                f"{path} cannot be written: {error.strerror}",
                written=False,
                hint="check that the folder exists and is writable",
            ) from error

    async def check(self) -> Health:
        notes = list(self.database.notes)
        for trouble in (self.database.mark.trouble, self._writer.maintenance_error):
            if trouble:
                notes.append(trouble)
        rows = await self.database.fetch("count_versions")
        return Health(int(rows[0][0]), tuple(await self.database.problems()), tuple(notes))

    async def close(self) -> None:
        await self._writer.close()
        self._wake()
        await self.database.close()

    async def _lease(self, query: str, name: str, owner: str, *arguments: int) -> Lease | None:
        rows = await self._writer.exclusively(partial(self.database.execute, query, name, owner, *arguments))
        return Lease(name, owner, rows[0][0], rows[0][1]) if rows else None

    async def _compare_with_mark(self, *, accept_loss: bool) -> None:
        """Compare the journal with the mark, to detect a missing end (I8)."""
        file = self.database.mark
        mark = file.read()  # before the head: another process may append between the two
        self._head, _time_us, head_hash = await self.database.fetch_row("log_head") or (0, 0, b"")
        if mark is None:
            if self._head == 0:
                file.trouble = None  # a new journal has no mark yet
                return
            self.database.notes.append(f"{file.trouble}: a lost end of the journal cannot be detected")
        elif why := await self._difference(mark, head_hash):
            if not accept_loss:
                raise HistoryLost(self.place, acknowledged=mark.position, found=self._head, why=why)
            self.database.notes.append(f"opened although position {mark.position} was acknowledged and {why}")
            file.remove()
        if self._head and (mark is None or mark.position != self._head or accept_loss):
            file.write(Mark(self._head, head_hash))

    async def _difference(self, mark: Mark, head_hash: bytes) -> str | None:
        if mark.position > self._head:
            return f"the journal ends at {self._head}"
        if mark.position == self._head:
            found: Row | None = (head_hash,)
        else:
            found = await self.database.fetch_row("hash_at_position", mark.position)
        # No row: compaction merged it, and was killed before it could mark its own, later event.
        if found is not None and found[0] != mark.hash:
            return "a different event is stored there"
        return None

    def _on_commit(self, position: int) -> None:
        """Wake the waiters of this process after a commit."""
        self._head = max(self._head, position)
        if self._waiters:
            self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
