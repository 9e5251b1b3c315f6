"""The audit: who read or did what over HTTP, in streams of its own, one for each month, chained as all streams are.

An act is recorded before it is executed; its own event, with the same principal, says what came of it. The first read
of an agent's output by a caller is recorded before it is answered. Other reads, repetitions and refusals are counted in
memory and recorded every FLUSH_S: a server that is killed loses at most those.

Signed heads (Ed25519) beside the backup are the witness of what was recorded: a person who removes or rewrites the
newest entries in the database cannot change them there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from maos.backup.locations import open_location
from maos.clock import MICROSECONDS, Clock
from maos.errors import Corrupt, DiskFull, InvalidInput, NotFound, StoreUnavailable
from maos.files import private_folder, read_bounded, replace_file
from maos.journal.journal import Journal
from maos.model.access import ACCESS
from maos.model.events.audit import AccessAudited, AuditEntry
from maos.tuples import NamedTuple

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PREFIX = "audit/"
FLUSH_S = 2.0
REPEATED_US = 60 * MICROSECONDS
"""For how long a read of the same by the same caller is only counted."""
PENDING_MAX = 1_000
CLIENT_CHARS_MAX = 100
KEY_FILE = "witness-key"
KEY_BYTES = 32
WITNESS_S = 60.0

Seen = tuple[str, str, str, str, str, str]


class SignedHead(msgspec.Struct, frozen=True, kw_only=True):
    """How far a journal reached, signed."""

    store: str
    position: int
    """Of the newest event of the journal."""
    streams: dict[str, tuple[int, str]]
    """The newest version of each stream of the audit, and of the stream of access, and its hash."""
    at_us: int
    key: str
    """The public key."""
    signature: str = ""

    def text(self) -> bytes:
        """What is signed."""
        return msgspec.json.encode(msgspec.structs.replace(self, signature=""), order="sorted")


class AuditCheck(NamedTuple):
    """What the verification of the audit found."""

    entries: int
    heads: int
    """How many signed heads were compared."""
    problems: list[str]


class Audit:
    """Records, reads and verifies the audit of one database."""

    def __init__(self, journal: Journal, clock: Clock, folder: Path) -> None:
        self._journal = journal
        self._clock = clock
        self._folder = folder
        self._pending: dict[Seen, AuditEntry] = {}
        self._recorded: dict[Seen, int] = {}
        """When a read was recorded before it was answered."""

    # --- recording -------------------------------------------------------------------------------------------

    async def record(self, entry: AuditEntry) -> None:
        """Record an entry, with those that wait, before this returns."""
        self._add(entry)
        await self.flush()

    async def record_first(self, entry: AuditEntry) -> None:
        """Record an entry before this returns, unless the same was recorded within a minute: then count it."""
        seen, now_us = _same(entry), self._clock.steady_us()
        recorded_us = self._recorded.get(seen)
        if recorded_us is not None and now_us - recorded_us < REPEATED_US:
            await self.count(entry)
            return
        if len(self._recorded) >= PENDING_MAX:
            self._recorded.clear()
        await self.record(entry)
        self._recorded[seen] = now_us

    async def count(self, entry: AuditEntry) -> None:
        """Count an entry; it is recorded with the next ones."""
        self._add(entry)
        if len(self._pending) >= PENDING_MAX:
            await self.flush()

    async def flush(self) -> None:
        """Record everything that waits."""
        if not self._pending:
            return
        entries, self._pending = list(self._pending.values()), {}
        now_us = self._clock.now_us()
        month = datetime.fromtimestamp(now_us / MICROSECONDS, UTC).strftime("%Y-%m")
        try:
            await self._journal.append(PREFIX + month, AccessAudited(entries=entries, at_us=now_us))
        except BaseException:
            for each in entries:  # twice is better than not at all, when it is not known whether they were recorded
                self._add(each)
            raise

    async def flush_always(self) -> None:
        """Record what waits every FLUSH_S, until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_S)
            with suppress(StoreUnavailable, DiskFull):  # they are kept, and tried again
                await self.flush()

    def _add(self, entry: AuditEntry) -> None:
        seen = _same(entry)
        known = self._pending.get(seen)
        if known is not None:
            entry = msgspec.structs.replace(known, count=known.count + entry.count, last_us=entry.last_us)
        self._pending[seen] = entry

    # --- reading ---------------------------------------------------------------------------------------------

    async def entries(
        self, *, principal: str = "", on: str = "", outcome: str = "", since_us: int = 0, last: int = 0
    ) -> list[AuditEntry]:
        """Entries of the audit, the oldest first: of a principal, on something, with an outcome; the `last` ones.

        Example::

            print([(each.principal, each.verb, each.on) for each in await m.audit.entries(outcome="denied")])
        """
        found = [
            each
            async for each in self._all()
            if principal in ("", each.principal) and on in ("", each.on) and outcome in ("", each.outcome)
            if each.last_us >= since_us
        ]
        return found[-last:] if last else found

    async def _all(self) -> AsyncIterator[AuditEntry]:
        for name in sorted([each async for each in self._journal.streams(PREFIX)]):
            async for record in self._journal.read(name):
                if isinstance(record.event, AccessAudited):
                    for each in record.event.entries:
                        yield each

    # --- the witness -----------------------------------------------------------------------------------------

    async def witness(self, location: str) -> SignedHead | None:
        """Sign how far the audit reaches, and write that beside a backup; None when it was written already.

        Example::

            head = await m.audit.witness("backups")
            print(head.position)
        """
        self._journal.principal.check_may_decide("sign the audit")
        key = self._key()
        store, position = await self._journal.store.identity(), await self._journal.head()
        streams = {}
        for name in [ACCESS, *[each async for each in self._journal.streams(PREFIX)]]:
            if end := await self._journal.store.read(name, after=1 << 62, limit=1, backwards=True):
                streams[name] = (end[0].version, end[0].hash.hex())
        head = SignedHead(store=store, position=position, streams=streams, at_us=self._clock.now_us(), key=_public(key))
        head = msgspec.structs.replace(head, signature=key.sign(head.text()).hex())
        is_new = await open_location(location).create(f"{store}/witness/{position:020d}", msgspec.json.encode(head))
        return head if is_new else None

    async def witness_always(self, location: str) -> None:
        """Sign and write how far the audit reaches every WITNESS_S when it has grown, until cancelled."""
        while True:
            await asyncio.sleep(WITNESS_S)
            await self.witness(location)

    async def verify(self, location: str = "") -> AuditCheck:
        """Read the whole audit, compare each entry with its hash, and all with the signed heads beside a backup.

        Example::

            print((await m.audit.verify()).problems)
        """
        problems: list[str] = []
        entries = heads = 0
        try:
            async for _each in self._all():
                entries += 1
        except Corrupt as error:
            problems.append(error.what)
        if location:
            store = await self._journal.store.identity()
            place = open_location(location)
            async for name in place.names(f"{store}/witness/"):
                found = await place.read(name)
                if found is not None:
                    heads += 1
                    problems += [f"{name}: {each}" async for each in self._differences(found.content, store)]
            if not heads:
                problems.append(f"there is no signed head of this database at {place.name}")
        return AuditCheck(entries, heads, list(dict.fromkeys(problems)))

    async def _differences(self, content: bytes, store: str) -> AsyncIterator[str]:
        """What a signed head says, and the database does not have."""
        try:
            head = msgspec.json.decode(content, type=SignedHead)
        except msgspec.MsgspecError:
            yield "it is no signed head"
            return
        if head.key != _public(self._key(create=False)) or not _is_signed(head):
            yield "it was not signed with the key of this database"
            return
        if head.store != store:
            yield "it is of another database"
            return
        position = await self._journal.head()
        if position < head.position:
            yield f"the journal ended at position {head.position} when it was signed, and ends at {position} now"
        for name, (version, hash) in head.streams.items():
            events = await self._journal.store.read(name, after=version - 1, limit=1)
            if not events or events[0].version != version:
                yield f"version {version} of {name} is missing"
            elif events[0].hash.hex() != hash:
                yield f"version {version} of {name} is another one than was signed"

    def _key(self, *, create: bool = True) -> Ed25519PrivateKey:
        """The key of this database, which is a file for its owner alone; it is made when it is needed first."""
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        except ImportError as error:
            what = "signatures need the package cryptography"
            raise InvalidInput(what, hint="pip install 'maos[encrypt]'") from error
        path = self._folder / KEY_FILE
        if not path.exists():
            if not create:
                raise NotFound(f"there is no key at {path}", hint="give the folder of the server as MAOS_HOME")
            private_folder(self._folder)
            replace_file(path, Ed25519PrivateKey.generate().private_bytes_raw())
        return Ed25519PrivateKey.from_private_bytes(read_bounded(path, KEY_BYTES))


def _same(entry: AuditEntry) -> Seen:
    return (entry.principal, entry.what, entry.on, entry.outcome, entry.address, entry.client)


def _public(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes_raw().hex()


def _is_signed(head: SignedHead) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(head.key)).verify(bytes.fromhex(head.signature), head.text())
    except (InvalidSignature, ValueError):
        return False
    return True
