"""The vault: the keys of one encrypted database, and what they seal and open.

    key from outside ──wraps──▶ root key (table keyring) ──wraps──▶ data keys (table data_keys) ──seal──▶ bodies

Each run and each agent is a scope with data keys of its own, made with the first body that they seal and written in the
same transaction. Erasing a scope destroys its data keys. The tables are no part of the journal and its hashes.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from maos.errors import Corrupt, Erased, Locked, StoreUnavailable
from maos.keys import envelope
from maos.store.contract import DataKey, Document, RawEvent, Recorded
from maos.tuples import NamedTuple

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from maos.keys.sources import KeySource
    from maos.store.database import Database

FINGERPRINTS = "\x1ffingerprints"
"""The scope of the key of idempotency fingerprints; no run or agent can have this name."""
ROTATED = "rotated"
STORE_BYTES = 16
SCOPES_MAX = 50_000
CIPHERS_MAX = 20_000
PAGE_KEYS = 500
_NO_SOURCE = "name where the key comes from with encryption.source in your settings, or MAOS_ENCRYPTION_SOURCE"
_RESTART = "start this process again"


class UnknownKey(Exception):
    """A body was sealed with a key that was not read from the database yet."""


class KeyringRow(NamedTuple):
    """A root key, as the database keeps it."""

    id: bytes
    store: bytes
    source: str
    wrapped: bytes
    made_us: int


class Scopes(NamedTuple):
    """Whose keys seal streams and documents."""

    of_stream: Callable[[str], str]
    of_document: Callable[[str, str], str]


class Vault:
    """The keys of one encrypted database; a `Sealer` for its store."""

    def __init__(self, database: Database, keyring: Sequence[KeyringRow], scopes: Scopes) -> None:
        self._database = database
        self._keyring = list(keyring)
        self._source: KeySource | None = None
        self._roots: dict[bytes, bytes] = {}
        self._ciphers: dict[bytes, AESGCM] = {}
        self._current: dict[str, DataKey | None] = {}
        self._erased_keys: dict[bytes, str] = {}
        self._fingerprints = b""
        self.erased: set[str] = set()
        """Scopes whose keys were destroyed."""
        self.store = keyring[0].store
        """What sealed bodies are bound to."""
        self.scope_of = lru_cache(SCOPES_MAX)(scopes.of_stream)
        self.scope_of_document = scopes.of_document

    @property
    def newest(self) -> KeyringRow:
        """The root key that wraps new data keys."""
        return next(row for row in self._keyring if row.source != ROTATED)

    @property
    def superseded(self) -> list[KeyringRow]:
        """Root keys that a rotation which was interrupted has left."""
        return [row for row in self._keyring if row.source == ROTATED]

    @property
    def is_unlocked(self) -> bool:
        """Whether the root key is known."""
        return self.newest.id in self._roots

    # --- unlocking -------------------------------------------------------------------------------------------

    async def unlock(self, source: KeySource) -> None:
        """Unwrap the root key; raise Locked when the source is not that of this database."""
        newest = self.newest
        if source.kind != newest.source:
            raise Locked(f"{self._database.place} is locked with a key of the kind {newest.source}", hint=_NO_SOURCE)
        root = source.unwrap(newest.wrapped)
        roots = {newest.id: root}
        for row in self.superseded:
            roots[row.id] = envelope.unseal(envelope.cipher_of(root), row.wrapped, root_place(self.store, row.id))
        self._source, self._roots = source, roots
        rows = await self._database.fetch("scope_keys", FINGERPRINTS)
        if not rows:
            raise Locked(f"{self._database.place} has lost a key that it needs to write", hint="restore a copy of it")
        self._fingerprints = self._unwrap(DataKey(*rows[0]))
        self.learn("", await self._database.fetch("scope_keys", ""))
        await self.refresh()

    async def reload(self, source: KeySource | None = None) -> None:
        """Read the keyring again: it may have been rotated, here to another `source`, or by another process."""
        self._keyring = await self.keyring()
        self._current.clear()
        if (source := source or self._source) is not None:
            await self.unlock(source)

    async def refresh(self) -> None:
        """Take note of scopes that were erased since, also by other processes."""
        erased = {row[0] for row in await self._database.fetch("erased_scopes")}
        self.forget(erased - self.erased)

    def forget(self, scopes: Iterable[str]) -> None:
        """Drop the keys of erased scopes from memory."""
        for scope in scopes:
            self.erased.add(scope)
            if (key := self._current.pop(scope, None)) is not None:
                self._ciphers.pop(key.id, None)
        if scopes:
            self._ciphers.clear()  # it is not known which of them belong to the scopes

    def _root(self, id: bytes) -> bytes:
        try:
            return self._roots[id]
        except KeyError:
            if self._source is None:
                raise Locked(f"{self._database.place} is encrypted", hint=_NO_SOURCE) from None
            raise Locked(f"the key of {self._database.place} was rotated meanwhile", hint=_RESTART) from None

    def _unwrap(self, key: DataKey) -> bytes:
        if key.wrapped is None:
            raise Erased(key.scope)
        root = envelope.cipher_of(self._root(key.wrapped_by))
        try:
            return envelope.unseal(root, key.wrapped, data_key_place(self.store, key.id, key.scope))
        except Corrupt as error:
            raise Corrupt(f"the key {key.id.hex()} of {key.scope or 'the database'} is damaged") from error

    def _cipher(self, key: DataKey) -> AESGCM:
        found = self._ciphers.get(key.id)
        if found is None:
            found = envelope.cipher_of(self._unwrap(key))
            if len(self._ciphers) >= CIPHERS_MAX:
                self._ciphers.clear()
            self._ciphers[key.id] = found
        return found

    # --- sealing, for the store --------------------------------------------------------------------------------

    def knows(self, scope: str) -> bool:
        return scope in self._current or scope in self.erased

    def learn(self, scope: str, rows: Sequence[Sequence[Any]]) -> None:
        keys = [DataKey(*row) for row in rows]
        if any(key.erased_us for key in keys):
            self.erased.add(scope)
        if len(self._current) >= SCOPES_MAX:
            self._current.clear()
        self._current[scope] = next((key for key in keys if not key.retired and not key.erased_us), None)

    def current(self, scope: str) -> DataKey | None:
        if scope in self.erased:
            raise Erased(scope)
        self._root(self.newest.id)
        return self._current.get(scope)

    def new_key(self, scope: str, now_us: int) -> DataKey:
        id, key, root = os.urandom(envelope.ID_BYTES), os.urandom(envelope.KEY_BYTES), self.newest.id
        return wrapped_key(id, scope, key, root, self._root(root), self.store, now_us)

    def check_newest(self, keyring: Sequence[Sequence[Any]]) -> None:
        if not keyring or bytes(keyring[0][0]) != self.newest.id:
            raise Locked(f"the key of {self._database.place} was rotated meanwhile", hint=_RESTART)

    def seal_events(self, key: DataKey, stream: str, version: int, events: Sequence[RawEvent]) -> list[RawEvent]:
        cipher, name, sealed = self._cipher(key), stream.encode(), []
        for type_, format_, body in events:
            version += 1
            place = envelope.place_of(self.store, type_.encode(), name, version, format_)
            sealed.append(RawEvent(type_, format_, envelope.seal(cipher, key.id, body, place)))
        return sealed

    def seal_document(self, key: DataKey, document: Document) -> Document:
        assert document.body is not None
        place = _document_place(self.store, document)
        return document._replace(body=envelope.seal(self._cipher(key), key.id, document.body, place))

    def fingerprint(self, fingerprint: bytes) -> bytes:
        self._root(self.newest.id)
        return hmac.digest(self._fingerprints, fingerprint, "sha256")

    # --- opening -------------------------------------------------------------------------------------------------

    def open_event(self, event: Recorded) -> bytes:
        """Return the body of a sealed event; raise UnknownKey when its key must be fetched, Erased, or Corrupt."""
        place = envelope.place_of(self.store, event.type.encode(), event.stream.encode(), event.version, event.format)
        return self._open(event.body, place)

    async def open_document(self, document: Document) -> Document | None:
        assert document.body is not None
        if not envelope.is_sealed(document.body):
            return document
        place = _document_place(self.store, document)
        try:
            try:
                body = self._open(document.body, place)
            except UnknownKey:
                await self.fetch(envelope.key_id_of(document.body))
                body = self._open(document.body, place)
        except Erased:
            return None
        except Corrupt:
            return document  # damaged: its reader notices, and computes it again
        return document._replace(body=body)

    def _open(self, sealed: bytes, place: bytes) -> bytes:
        id = envelope.key_id_of(sealed)
        cipher = self._ciphers.get(id)
        if cipher is None:
            if id in self._erased_keys:
                raise Erased(self._erased_keys[id])
            raise UnknownKey(id.hex())
        return envelope.unseal(cipher, sealed, place)

    async def fetch(self, id: bytes) -> None:
        """Read a key from the database; raise Locked when it is not there, or the database is locked."""
        row = await self._database.fetch_row("data_key", id)
        if row is None:
            what = f"{self._database.place} does not have the key {id.hex()}"
            raise Locked(what, hint="restore the database with the keys of its backup")
        key = DataKey(*row)
        if key.erased_us or key.wrapped is None:
            self._erased_keys[id] = key.scope
            self.erased.add(key.scope)
        else:
            if self._source is not None and key.wrapped_by not in self._roots:
                await self.reload()
            self._cipher(key)

    async def keys(self) -> list[DataKey]:
        """Return all data keys as the database has them."""
        found: list[DataKey] = []
        after = b""
        while page := await self._database.fetch("data_keys", after, PAGE_KEYS):
            found += [DataKey(*row) for row in page]
            after = found[-1].id
        return found

    async def keyring(self) -> list[KeyringRow]:
        """Return the root keys as the database has them, the newest first."""
        return [KeyringRow(*row) for row in await self._database.fetch("keyring")]

    # --- rotation, for `maos.keys.rotation` -------------------------------------------------------------------------

    def root_of(self, row: KeyringRow) -> bytes:
        """Return a root key itself; raise Locked when it is not known."""
        return self._root(row.id)

    def key_of(self, key: DataKey) -> bytes:
        """Return a data key itself; raise Locked or Erased."""
        return self._unwrap(key)


def wrapped_key(id: bytes, scope: str, key: bytes, root_id: bytes, root: bytes, store: bytes, now_us: int) -> DataKey:
    """Return a data key, wrapped by a root key."""
    wrapped = envelope.seal(envelope.cipher_of(root), root_id, key, data_key_place(store, id, scope))
    return DataKey(id, scope, wrapped, root_id, now_us)


def data_key_place(store: bytes, id: bytes, scope: str) -> bytes:
    """Return what a wrapped data key is bound to."""
    return envelope.place_of(store, b"data key", id + scope.encode(), 0)


def root_place(store: bytes, id: bytes) -> bytes:
    """Return what a superseded root key is bound to."""
    return envelope.place_of(store, b"root key", id, 0)


def _document_place(store: bytes, document: Document) -> bytes:
    return envelope.place_of(store, b"document/" + document.kind.encode(), document.key.encode(), document.version)


async def open_vault(database: Database, scopes: Scopes) -> Vault | None:
    """Return the vault of a database, locked; None when it is not encrypted."""
    rows = [KeyringRow(*row) for row in await database.fetch("keyring")]
    if not rows:
        return None
    database.is_encrypted = True
    return Vault(database, rows, scopes)


async def create_vault(database: Database, scopes: Scopes, source: KeySource, now_us: int) -> Vault:
    """Encrypt a database that has no events yet: from now on everything that is written to it is sealed."""
    root, root_id, store = (os.urandom(size) for size in (envelope.KEY_BYTES, envelope.ID_BYTES, STORE_BYTES))
    envelope.cipher_of(root)  # raises when the package is not installed
    row = KeyringRow(root_id, store, source.kind, source.wrap(root), now_us)
    id, key = os.urandom(envelope.ID_BYTES), os.urandom(envelope.KEY_BYTES)
    first = wrapped_key(id, FINGERPRINTS, key, root_id, root, store, now_us)
    database.is_encrypted = True
    changes: list[tuple[str, list[Any]]] = [("insert_keyring", [row]), ("insert_data_key", [first[:5]])]
    try:
        await database.write_all(changes, what="encrypt")
    except StoreUnavailable:
        vault = await open_vault(database, scopes)
        if vault is None:  # or another process was first, whose key is used
            raise
    else:
        vault = await open_vault(database, scopes)
        assert vault is not None
    await vault.unlock(source)
    return vault
