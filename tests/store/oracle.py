"""The oracle: the simplest implementation of the store contract, in dictionaries.

It shares no code with the SQL stores but the hash chain, so that a comparison with it means something.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Sequence
from pathlib import Path

from maos.clock import Clock, SystemClock
from maos.errors import Conflict, Corrupt, InvalidInput, KeyReused, LeaseLost, StoreUnavailable
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
    Store,
    StreamEnding,
    UsedKey,
    Write,
)
from maos.store.ledger import expects_twice
from maos.store.patience import Patience


class MemoryStore(Store):
    """The store contract in dictionaries; nothing is durable. The docstrings are those of `Store`."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.place = ":memory:"
        self._clock = clock or SystemClock()
        self.patience = Patience(self.place, self._clock)
        self._log: list[Recorded] = []
        self._position = 0
        self._time_us = 0
        self._keys: dict[str, tuple[bytes, Appended]] = {}
        self._leases: dict[str, Lease] = {}
        self._documents: dict[tuple[str, str], Document] = {}
        self._changed = asyncio.Condition()
        self._token_floor = 0
        self._closed = False

    async def append(
        self,
        *writes: Write,
        key: Key | None = None,
        under: Lease | None = None,
        documents: Sequence[Document] = (),
        replacing: Sequence[Replacement] = (),
    ) -> Appended:
        self._check_open()
        if key is not None and key.id in self._keys:
            fingerprint, reply = self._keys[key.id]
            if fingerprint != key.fingerprint:
                raise KeyReused(key.id)
            return reply._replace(repeated=True, time_us=0)
        if under is not None:
            self._check_lease(under)
        if expects_twice(writes):
            raise InvalidInput(
                "one append expects two versions of one stream", hint="give the version with the first write to it"
            )
        for write in writes:
            actual = self._version(write.stream)
            if write.expected is not None and write.expected != actual:
                raise Conflict(write.stream, expected=write.expected, actual=actual)
        before = self._log
        try:
            for replacement in replacing:
                self._replace(replacement)
        except InvalidInput:
            self._log = before
            raise
        self._time_us = max(self._time_us, self._clock.now_us())
        versions = tuple(self._write(write, under.token if under is not None else 0) for write in writes)
        reply = Appended(self._position, versions, False, self._time_us)
        for document in documents:
            self._save(document)
        if key is not None:
            self._keys[key.id] = (key.fingerprint, reply)
        async with self._changed:
            self._changed.notify_all()
        return reply

    async def read(self, stream: str, *, after: int = 0, limit: int = 256, backwards: bool = False) -> list[Recorded]:
        self._check_open()
        events = [event for event in self._log if event.stream == stream]
        if backwards:
            return [event for event in reversed(events) if event.version < after][:limit]
        return [event for event in events if event.version > after][:limit]

    async def read_log(self, *, after: int = 0, limit: int = 256) -> list[Recorded]:
        self._check_open()
        return [event for event in self._log if event.position > after][:limit]

    async def version(self, stream: str) -> int:
        self._check_open()
        return self._version(stream)

    async def head(self) -> int:
        self._check_open()
        return self._position

    async def streams(
        self,
        *,
        prefix: str = "",
        after: str = "",
        limit: int = 256,
        unless: StreamEnding | None = None,
        newest: bool = False,
    ) -> list[str]:
        self._check_open()
        ends = {event.stream: event for event in self._log}
        names = [name for name in (reversed(ends) if newest else sorted(ends)) if name.startswith(prefix)]
        if newest:
            return names[names.index(after) + 1 if after else 0 :][:limit]
        if unless is not None:
            names = [
                name for name in names if ends[name].type not in unless.types or ends[name].time_us >= unless.before_us
            ]
        return [name for name in names if name > after][:limit]

    async def wait(self, *, after: int, timeout_s: float, streams: Collection[str] = ()) -> int:
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: self._has_grown(after, streams) or self._closed)
        except TimeoutError:
            pass
        self._check_open()
        return self._position

    def _has_grown(self, after: int, streams: Collection[str]) -> bool:
        return any(each.position > after and (not streams or each.stream in streams) for each in self._log)

    async def acquire(self, name: str, *, owner: str, ttl_s: float) -> Lease | None:
        self._check_open()
        now_us = self._clock.now_us()
        held = self._leases.get(name)
        if held is not None and held.expires_us > now_us:
            return None
        token = 1 + (held.token if held is not None else self._token_floor)
        lease = self._leases[name] = Lease(name, owner, token, now_us + int(ttl_s * 1_000_000))
        return lease

    async def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
        self._check_open()
        now_us = self._clock.now_us()
        held = self._leases.get(lease.name)
        if held is None or held[:3] != lease[:3] or held.expires_us <= now_us:
            return None
        self._leases[lease.name] = held._replace(expires_us=now_us + int(ttl_s * 1_000_000))
        return self._leases[lease.name]

    async def release(self, lease: Lease) -> None:
        self._check_open()
        held = self._leases.get(lease.name)
        if held is not None and held[:3] == lease[:3]:
            self._leases[lease.name] = held._replace(expires_us=0)

    async def load(self, kind: str, key: str) -> Document | None:
        self._check_open()
        return self._documents.get((kind, key))

    async def scan(self, kind: str, *, prefix: str = "", after: str = "", limit: int = 256) -> list[Document]:
        self._check_open()
        found = sorted(doc for (of, key), doc in self._documents.items() if of == kind and key.startswith(prefix))
        return [document for document in found if document.key > after][:limit]

    async def check_own(self) -> None:
        """A store in memory is its process's own."""

    async def trust(self) -> None:
        """A store in memory is its process's own."""

    async def identity(self) -> str:
        return "0" * 32

    async def read_keys(self, *, first: int, last: int) -> list[UsedKey]:
        found = [
            UsedKey(id, fingerprint, reply.position, json.dumps(reply.versions))
            for id, (fingerprint, reply) in self._keys.items()
            if first <= reply.position <= last
        ]
        return sorted(found, key=lambda key: (key.position, key.id))

    async def restore(self, events: Sequence[Recorded], keys: Sequence[UsedKey]) -> None:
        self._check_open()
        log = list(self._log)
        for event in events:
            before = [each for each in log if each.stream == event.stream][-1:]
            version, hash_ = (before[0].version, before[0].hash) if before else (0, GENESIS)
            follows = event.version - event.spans == version and event.position > (log[-1].position if log else 0)
            if not follows or (event.spans == 1 and chain.hash_of(event, hash_) != event.hash):
                raise Corrupt(f"{event.stream}@{event.version} does not follow")
            log.append(event)
        self._log, self._position = log, log[-1].position if log else 0
        self._time_us = max([self._time_us, *(event.time_us for event in events)])
        self._token_floor = max([self._token_floor, *(event.token for event in events)])
        for key in keys:
            reply = Appended(key.position, tuple(json.loads(key.versions)))
            self._keys.setdefault(key.id, (key.fingerprint, reply))

    async def copy_to(self, path: Path) -> int:
        raise StoreUnavailable(
            f"a store in memory cannot be copied to {path}", written=False, hint="open a file instead"
        )

    async def check(self) -> Health:
        self._check_open()
        return Health(sum(event.spans for event in self._log), (), ())

    async def close(self) -> None:
        self._closed = True
        async with self._changed:
            self._changed.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"{self.place} is closed", written=False, hint="open another")

    def _version(self, stream: str) -> int:
        return max((event.version for event in self._log if event.stream == stream), default=0)

    def _check_lease(self, lease: Lease) -> None:
        held = self._leases.get(lease.name)
        token = held.token if held is not None else 0
        if token != lease.token:
            raise LeaseLost(lease.name, token=lease.token, why=f"the newest token is {token}")
        if held is None or held.expires_us <= self._clock.now_us():
            raise LeaseLost(lease.name, token=lease.token, why="it expired")

    def _write(self, write: Write, token: int) -> int:
        last = [event for event in self._log if event.stream == write.stream][-1:]
        version, hash_ = (last[0].version, last[0].hash) if last else (0, GENESIS)
        for type_, format_, body in write.events:
            version += 1
            self._position += 1
            hash_ = chain.link(
                hash_, write.stream.encode(), version, type_.encode(), format_, self._time_us, token, body
            )
            self._log.append(
                Recorded(self._position, write.stream, version, 1, type_, format_, self._time_us, token, body, hash_)
            )
        return version

    def _replace(self, replacement: Replacement) -> None:
        stream, first, last, event = replacement
        if not 0 < first <= last <= self._version(stream):
            raise InvalidInput(f"{stream} has no versions {first}..{last} to replace")
        inside = [each for each in self._log if each.stream == stream and first <= each.version <= last]
        if sum(each.spans for each in inside) != last - first + 1 or inside[-1].version != last:
            raise InvalidInput(f"versions {first}..{last} of {stream} are not whole events")
        kept = []
        for old in self._log:
            if old.stream != stream or not first <= old.version <= last:
                kept.append(old)
            elif old.version == last:
                kept.append(old._replace(spans=last - first + 1, type=event.type, format=event.format, body=event.body))
        self._log = kept

    def _save(self, document: Document) -> None:
        slot = (document.kind, document.key)
        held = self._documents.get(slot)
        if held is not None and held.version > document.version:
            return
        if document.body is None:
            self._documents.pop(slot, None)
        else:
            self._documents[slot] = document
