"""The store contract in SQL, for both databases.

Reads and leases are named statements; writes go through the group-commit writer. What differs between SQLite and
PostgreSQL is behind `Database`. The docstrings of its methods are those of `Store`.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from maos.errors import Corrupt, DiskFull, HistoryLost, StoreUnavailable, UntrustedStore
from maos.store import chain
from maos.store.contract import (
    GENESIS,
    Appended,
    Document,
    Health,
    Key,
    Lease,
    Recorded,
    Replacement,
    Sealer,
    Store,
    StreamEnding,
    UsedKey,
    Write,
)
from maos.store.database import Database, Mark, RestoredRows, Row
from maos.store.ledger import AppendRequest
from maos.store.writer import GroupCommitWriter

POLL_S = 1.0
"""A waiter checks the journal this often, in case a wake-up was lost."""

_LAST = "\U0010ffff"


class SqlStore(Store):
    """A store in a SQL database."""

    def __init__(self, database: Database, sealer: Sealer | None = None) -> None:
        self.sealer = sealer
        """What seals events and opens documents; None when the store is not encrypted."""
        self.place = database.place
        self.patience = database.patience
        self.database = database
        self._writer = GroupCommitWriter(database, self._on_commit, sealer)
        self._head = 0
        self._waiters: dict[asyncio.Future[None], frozenset[str] | None] = {}
        """What waits for the journal to grow, and for which streams; None: for any."""
        self._listening = False
        # Versions read since any process last changed the database.
        self._stamp: int | None = None
        self._is_own = database.registry is None
        """Whether this user is known to have made the database here, or to have agreed to use it."""
        self._versions: dict[str, int] = {}

    @classmethod
    async def open(
        cls,
        database: Database,
        *,
        accept_loss: bool = False,
        find_sealer: Callable[[Database], Awaitable[Sealer | None]] | None = None,
    ) -> SqlStore:
        """Open, create or upgrade; refuse a journal that lost acknowledged events, unless `accept_loss`.

        `find_sealer` returns what seals, if the database is encrypted.
        """
        await database.open()
        try:
            store = cls(database, await find_sealer(database) if find_sealer is not None else None)
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
        if key is not None and self.sealer is not None:
            key = Key(key.id, self.sealer.fingerprint(key.fingerprint))
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

    async def streams(
        self,
        *,
        prefix: str = "",
        after: str = "",
        limit: int = 256,
        unless: StreamEnding | None = None,
        newest: bool = False,
    ) -> list[str]:
        if newest:
            rows = await self.database.fetch("newest_streams", after, prefix, prefix + _LAST, limit)
        elif unless is None:
            rows = await self.database.fetch("stream_names", after, max(after, prefix), prefix + _LAST, limit)
        else:
            types, bounds = f",{','.join(unless.types)},", (after, max(after, prefix), prefix + _LAST)
            rows = await self.database.fetch("open_streams", *bounds, limit, types, unless.before_us)
        return [row[0] for row in rows]

    async def wait(self, *, after: int, timeout_s: float, streams: Collection[str] = ()) -> int:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        if not self._listening:
            self._listening = True
            try:
                await self.database.listen(self._wake)
            except BaseException:
                self._listening = False  # the next waiter tries again
                raise
        wanted = frozenset(streams) or None
        while True:
            waiter = loop.create_future()
            if not self._waiters:
                self.database.unmute()
            self._waiters[waiter] = wanted
            self.database.want(self._wanted())
            try:
                # Check after registering: any later commit wakes the waiter.
                self._head = max(self._head, await self.head())
                remaining = deadline - loop.time()
                if remaining <= 0 or (self._head > after and await self._has_grown(wanted, after)):
                    return self._head
                await asyncio.wait((waiter,), timeout=min(remaining, POLL_S))
            finally:
                self._waiters.pop(waiter, None)
                if not self._waiters:
                    self.database.mute()

    async def acquire(self, name: str, *, owner: str, ttl_s: float) -> Lease | None:
        return await self._lease("acquire_lease", name, owner, int(ttl_s * 1_000_000))

    async def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
        return await self._lease("renew_lease", lease.name, lease.owner, lease.token, int(ttl_s * 1_000_000))

    async def release(self, lease: Lease) -> None:
        await self._lease("release_lease", lease.name, lease.owner, lease.token)

    async def load(self, kind: str, key: str) -> Document | None:
        row = await self.database.fetch_row("load_document", kind, key)
        return await self._opened(Document._make(row)) if row else None

    async def _opened(self, document: Document) -> Document | None:
        return document if self.sealer is None else await self.sealer.open_document(document)

    async def scan(self, kind: str, *, prefix: str = "", after: str = "", limit: int = 256) -> list[Document]:
        while rows := await self.database.fetch(
            "scan_documents", kind, after, max(after, prefix), prefix + _LAST, limit
        ):
            if self.sealer is None:
                return [Document._make(row) for row in rows]
            opened = [await self.sealer.open_document(Document._make(row)) for row in rows]
            if found := [document for document in opened if document is not None]:
                return found
            after = rows[-1][1]  # all of them were erased
        return []

    async def change_keys(self, changes: Iterable[tuple[str, Sequence[Row]]], *, what: str) -> None:
        """Change the keys of an encrypted store in one transaction, between two appends."""
        await self._writer.exclusively(partial(self.database.write_all, changes, what=what))

    async def forget_freed(self) -> bool:
        """Remove what was deleted from the files of the database; return False when that is not possible now."""
        return await self._writer.exclusively(self.database.forget_freed)

    async def identity(self) -> str:
        return await self.database.identity()

    async def read_keys(self, *, first: int, last: int) -> list[UsedKey]:
        return [UsedKey._make(row) for row in await self.database.fetch("read_keys", first, last)]

    async def restore(self, events: Sequence[Recorded], keys: Sequence[UsedKey]) -> None:
        streams: list[tuple[int, str]] = []
        rows: list[Row] = []
        [(next_stream,)] = await self.database.fetch("next_stream")
        head = await self.head()
        by_stream: dict[str, list[Recorded]] = {}
        for event in events:
            if event.position <= head:
                raise Corrupt(f"position {event.position} follows {head}", hint="nothing was written")
            head = event.position
            by_stream.setdefault(event.stream, []).append(event)
        for name, found in by_stream.items():
            id_, version, hash_ = await self.database.fetch_row("stream_head", name) or (0, 0, GENESIS)
            chain.check(found, chain.End(version, hash_))
            if not id_:
                id_ = next_stream + len(streams)
                streams.append((id_, name))
            rows += [(event.position, id_, *event[2:]) for event in found]
        restored = RestoredRows(streams, sorted(rows), keys, max((event.token for event in events), default=0))
        await self._writer.exclusively(partial(self.database.write_all, restored.statements(), what="restore"))
        if events:
            self.database.mark.write(Mark(events[-1].position, events[-1].hash))
            self._on_commit(events[-1].position)

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
            if trouble and not any(note.startswith(trouble) for note in notes):
                notes.append(trouble)
        rows = await self.database.fetch("count_versions")
        return Health(int(rows[0][0]), tuple(await self.database.problems()), tuple(notes))

    async def close(self) -> None:
        self.patience.close()
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
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _has_grown(self, streams: frozenset[str] | None, after: int) -> bool:
        """Whether one of some streams has an event above a position; always when any stream counts."""
        for name in streams or ():
            row = await self.database.fetch_row("stream_position", name)
            if row is not None and row[0] > after:
                return True
        return streams is None

    def _wanted(self) -> frozenset[str] | None:
        """The streams that are waited for; None: any."""
        found: frozenset[str] = frozenset()
        for wanted in self._waiters.values():
            if wanted is None:
                return None
            found |= wanted
        return found
