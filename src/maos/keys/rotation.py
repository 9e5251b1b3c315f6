"""Rotation of keys: a new root key wraps all data keys, and new events get new data keys.

The first step makes the new root key that of the database, and keeps the old one wrapped by it: from then on only the
new source unlocks the database. Then data keys are wrapped again, some at a time, and at last the old root key is
deleted. Killed at any time, everything stays readable, and the next rotation finishes this one. Old events are not
written again: a person with a copy of the old keys can still read copies of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from maos.faults import crash_point
from maos.keys import envelope
from maos.keys.sources import KeySource
from maos.keys.vault import FINGERPRINTS, PAGE_KEYS, KeyringRow, Vault, root_place, wrapped_key
from maos.store.contract import DataKey
from maos.store.sql_store import SqlStore


async def rotate(
    store: SqlStore, vault: Vault, source: KeySource, now_us: int, report: Callable[[int, int], None]
) -> bool:
    """Rotate the keys of an unlocked database; return False when it has finished an interrupted rotation instead."""
    await vault.reload()
    is_new = not vault.superseded
    if is_new:
        await _supersede(store, vault, source, now_us)
        crash_point("rotate: new key in use")
    await _finish(store, vault, report)
    return is_new


async def _supersede(store: SqlStore, vault: Vault, source: KeySource, now_us: int) -> None:
    old, root, id = vault.newest, os.urandom(envelope.KEY_BYTES), os.urandom(envelope.ID_BYTES)
    new = KeyringRow(id, vault.store, source.kind, source.wrap(root), max(now_us, old.made_us + 1))
    source.unwrap(new.wrapped)  # raises now, if it ever would
    kept = envelope.seal(envelope.cipher_of(root), id, vault.root_of(old), root_place(vault.store, old.id))
    await store.change_keys([("supersede_keyring", [(old.id, kept)]), ("insert_keyring", [new])], what="rotate")
    await vault.reload(source)


async def _finish(store: SqlStore, vault: Vault, report: Callable[[int, int], None]) -> None:
    newest = vault.newest
    done, total = 0, sum(key.wrapped_by != newest.id and not key.erased_us for key in await vault.keys())
    for old in vault.superseded:
        while rows := await store.database.fetch("keys_wrapped_by", old.id, PAGE_KEYS):
            again = []
            for key in (DataKey(*row) for row in rows):
                retired = int(key.scope != FINGERPRINTS)
                new = wrapped_key(
                    key.id, key.scope, vault.key_of(key), newest.id, vault.root_of(newest), vault.store, key.made_us
                )
                again.append((key.id, new.wrapped, newest.id, retired))
            await store.change_keys([("rewrap_data_key", again)], what="rewrap")
            done += len(again)
            report(done, total)
        await store.change_keys([("remove_keyring", [(old.id,)])], what="remove old key")
    await vault.reload()
