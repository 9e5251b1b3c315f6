"""The keys of an encrypted database: listed, rotated, exported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from maos.backup.service import Backups
from maos.backup.shipper import read_keys
from maos.clock import Clock
from maos.errors import InvalidInput
from maos.journal.journal import Journal
from maos.keys import rotation, sources
from maos.keys.vault import FINGERPRINTS, Vault
from maos.model.events.records import KeyRotated
from maos.store.sql_store import SqlStore
from maos.tuples import NamedTuple

STREAM = "keys"


class ScopeKeys(NamedTuple):
    """The keys of one run or agent."""

    scope: str
    """Empty for what belongs to no run and no agent."""
    keys: int
    made_us: int
    """When the newest was made."""
    erased_us: int
    """When they were destroyed; 0 when they were not."""


class KeyList(NamedTuple):
    """The keys of a database, without their content."""

    source: str
    """What unlocks it: file, passphrase, age, keyring, command."""
    made_us: int
    is_unlocked: bool
    is_rotating: bool
    """Whether a rotation was interrupted; the next one finishes it."""
    scopes: list[ScopeKeys]


class Rotation(NamedTuple):
    """What a rotation has done."""

    source: str
    keys: int
    """Data keys that were wrapped again."""
    finished: bool
    """Whether it has finished one that was interrupted, and began none."""


class Keys:
    """The keys of the open database."""

    def __init__(self, journal: Journal, clock: Clock, backups: Backups, backup_to: str) -> None:
        self._journal = journal
        self._clock = clock
        self._backups = backups
        self._backup_to = backup_to

    @property
    def vault(self) -> Vault:
        """The keys themselves; InvalidInput when the database is not encrypted."""
        if self._journal.vault is None:
            hint = "`maos key encrypt` encrypts it"
            raise InvalidInput(f"{self._journal.store.place} is not encrypted", hint=hint)
        return self._journal.vault

    async def list(self) -> KeyList:
        """Return which keys there are; works without the key that unlocks the database.

        Example::

            print([each.scope for each in (await m.keys.list()).scopes])
        """
        vault, found = self.vault, dict[str, ScopeKeys]()
        for key in await vault.keys():
            if key.scope != FINGERPRINTS:
                before = found.get(key.scope, ScopeKeys(key.scope, 0, 0, 0))
                newest, erased = max(before.made_us, key.made_us), max(before.erased_us, key.erased_us)
                found[key.scope] = ScopeKeys(key.scope, before.keys + 1, newest, erased)
        newest_root = vault.newest
        scopes = [found[scope] for scope in sorted(found)]
        return KeyList(newest_root.source, newest_root.made_us, vault.is_unlocked, bool(vault.superseded), scopes)

    async def rotate(self, source: str, report: Callable[[int, int], None] = lambda *_: None) -> Rotation:
        """Have a new key wrap all data keys, and new events be sealed with new data keys.

        `source` is where the key comes from afterwards, as in the setting encryption.source. Killed at any time, the
        next rotation finishes it.

        Example::

            await m.keys.rotate("file:maos.key")
        """
        self._journal.principal.check_may_decide("rotate the keys")
        store, vault, parsed = self._journal.store, self.vault, sources.parse_source(source)
        assert isinstance(store, SqlStore)
        await store.check_own()
        is_new = await rotation.rotate(store, vault, parsed, self._clock.now_us(), report)
        await store.forget_freed()
        keys = sum(not key.erased_us for key in await vault.keys())
        kind, at_us = vault.newest.source, self._clock.now_us()
        await self._journal.append(STREAM, KeyRotated(source=kind, keys=keys, by=self._journal.by, at_us=at_us))
        if self._backup_to:
            await self._backups.ship_keys(self._backup_to)
        return Rotation(kind, keys, not is_new)

    async def export(self, path: Path) -> int:
        """Write the wrapped keys to a new file, for safekeeping; return how many. Without the key from outside they are
        of no use, and with it and a copy of the database they open also what is erased later: delete them then.

        Example::

            print(await m.keys.export(Path("maos.keys")))
        """
        found = await read_keys(self.vault)
        sources.write_new(path, msgspec.json.encode(found))
        return len(found.data_keys)
