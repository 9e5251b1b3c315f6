"""Encryption of a database that exists: a new one beside it, with every body sealed, takes its place.

Positions, versions, times and tokens stay as they are. Hashes are of sealed bodies, so the new journal has a chain, and
an identity, of its own: a backup of the old one is not continued. Bodies that were compressed with a dictionary are
compressed without it, because a dictionary has parts of many events, which no erasure could reach.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from maos.faults import crash_point
from maos.keys.vault import Vault
from maos.store import chain
from maos.store.contract import GENESIS, Document, RawEvent, Recorded
from maos.store.sql_store import SqlStore

PAGE_EVENTS = 1000
PAGE_DOCUMENTS = 200

Unpack = Callable[[Recorded], Awaitable[bytes]]
"""Returns the body of an event in a form that needs no other event."""


class Conversion:
    """Copies a journal to an encrypted store."""

    def __init__(self, old: SqlStore, new: SqlStore, vault: Vault, unpack: Unpack) -> None:
        self._old = old
        self._new = new
        self._vault = vault
        self._unpack = unpack
        self._ends: dict[str, tuple[chain.End, chain.End]] = {}
        """Where each stream ends, in the old store and in the new one."""

    async def copy(self, report: Callable[[int, int], None]) -> int:
        """Copy everything, and check every event of the old store on the way; return the newest position."""
        head, position = await self._old.head(), 0
        while page := await self._old.read_log(after=position, limit=PAGE_EVENTS):
            await self._make_keys({self._vault.scope_of(event.stream) for event in page}, page[0].time_us)
            sealed = [await self._seal(event) for event in page]
            used = await self._old.read_keys(first=position + 1, last=page[-1].position)
            keys = [key._replace(fingerprint=self._vault.fingerprint(key.fingerprint)) for key in used]
            await self._new.restore(sealed, keys)
            crash_point("convert: events written")
            position = page[-1].position
            report(position, head)
        await self._copy_documents()
        [(token,)] = await self._old.database.fetch("newest_token")
        await self._new.change_keys([("raise_token_floor", [(token,)])], what="convert")
        return position

    async def _make_keys(self, scopes: set[str], now_us: int) -> None:
        made = [self._vault.new_key(scope, now_us) for scope in sorted(scopes) if self._vault.current(scope) is None]
        if made:
            await self._new.change_keys([("insert_data_key", [key[:5] for key in made])], what="convert keys")
        for key in made:
            self._vault.learn(key.scope, [key])

    async def _seal(self, event: Recorded) -> Recorded:
        before, after = self._ends.get(event.stream, (chain.End(0, GENESIS), chain.End(0, GENESIS)))
        chain.check([event], before)
        key = self._vault.current(self._vault.scope_of(event.stream))
        assert key is not None
        raw = RawEvent(event.type, event.format, await self._unpack(event))
        [made] = self._vault.seal_events(key, event.stream, event.version - 1, [raw])
        sealed = event._replace(body=made.body)
        if event.spans == 1:  # one that compaction wrote has no hash of its own
            sealed = sealed._replace(hash=chain.hash_of(sealed, after.hash))
        self._ends[event.stream] = chain.End(event.version, event.hash), chain.End(event.version, sealed.hash)
        return sealed

    async def _copy_documents(self) -> None:
        kind = key = ""
        while rows := await self._old.database.fetch("all_documents", kind, key, PAGE_DOCUMENTS):
            found: list[Document] = []
            for kind, key, _version in rows:
                document = await self._old.load(kind, key)
                found += [document] if document is not None else []
            await self._new.append(documents=found)
