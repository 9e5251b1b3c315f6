"""The backup of one database at a location: its segments, and the head that says how far it reaches.

    STORE/head                          how far the backup reaches, replaced by compare-and-swap
    STORE/segments/FIRST                the segment that begins at a position, as 20 digits
    STORE/segments/LEVEL/FIRSTtoLAST    a segment that took the place of the smaller ones in its range: level 1, 2 or 3
    STORE/keys                          the wrapped keys of an encrypted database, as they are now

`STORE` is the identity of the database. A segment is written before the head that counts it. One that is not counted,
because its writer was killed in between, is counted by the next writer if it fits, so no position is ever written
twice with different events. Readers go from position to position, and take the largest segment that has the next one:
small segments can be merged at any time, also while they are read.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec

from maos.backup import segments
from maos.backup.locations import Location
from maos.backup.segments import Hash, Segment, damaged
from maos.errors import Conflict, NotFound
from maos.faults import crash_point
from maos.keys.vault import KeyringRow
from maos.patterns import regex
from maos.store.contract import GENESIS, DataKey
from maos.tuples import NamedTuple

FORMAT = 2
"""2: segments may be merged."""
LEVEL_MAX = 3
_PIECE = regex(r"(?:([1-9])/)?([0-9]{20})(?:to([0-9]{20}))?")


class BackupHead(msgspec.Struct, frozen=True, kw_only=True):
    """How far the backup of a database reaches."""

    format: Annotated[int, msgspec.Meta(ge=1)]
    store: str
    place: str
    """The path or URL of the database, without a password, and the machine that wrote the backup."""
    host: str
    position: Annotated[int, msgspec.Meta(ge=0)]
    hash: Hash
    """Of the event at that position."""
    recorded_us: int
    """When that event was recorded."""
    written_us: int
    """When it was in the backup."""
    events: int
    bytes: int
    """Of all segments, as they were first written."""
    left_out: list[str] = []
    """Repositories whose commits could not be backed up, and why."""
    removed_us: int = 0
    """When a person began to remove the backup, which is no longer complete since; 0 for one that is kept."""


class Piece(NamedTuple):
    """A segment at a location, as its name tells."""

    first: int
    last: int
    """0 for one that was not merged: its name does not tell."""
    level: int
    name: str


class BackupKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The wrapped keys of an encrypted database. An erased one has no content here either, and nothing before it."""

    format: Annotated[int, msgspec.Meta(ge=1, le=FORMAT)] = FORMAT
    keyring: list[KeyringRow]
    data_keys: list[DataKey]


class Archive:
    """The backup of one database at a location."""

    def __init__(self, location: Location, store: str) -> None:
        self.location = location
        self.store = store
        self._tag = ""
        self._keys: bytes | None = None

    async def head(self) -> BackupHead | None:
        """Return how far the backup reaches; None when there is none yet."""
        name = f"{self.store}/head"
        found = await self.location.read(name)
        if found is None:
            self._tag = ""
            return None
        self._tag = found.tag
        try:
            head = msgspec.json.decode(found.content, type=BackupHead)
        except msgspec.MsgspecError as error:
            raise damaged(f"{self.location.name}/{name}", str(error)) from error
        if head.format > FORMAT or head.store != self.store:
            raise damaged(f"{self.location.name}/{name}", "it is of another database, or of a newer maos")
        return head

    async def advance(self, head: BackupHead) -> None:
        """Replace the head that was read last; raise Conflict when another process has replaced it since."""
        tag = await self.location.replace(f"{self.store}/head", msgspec.json.encode(head), tag=self._tag)
        if tag is None:
            raise Conflict(
                f"{self.store}/head",
                what=f"another process writes the backup of this database at {self.location.name}",
                hint="end it, or wait until it ends: `maos backup status`",
            )
        self._tag = tag

    async def add(self, first: int, content: bytes) -> tuple[Segment, int] | None:
        """Write a segment; return the one that a killed writer has left there instead, if any, and its bytes."""
        name = self._name(first)
        if await self.location.create(name, content):
            crash_point("backup: segment written, not counted")
            return None
        found = await self.location.read(name)
        if found is None:
            raise damaged(f"{self.location.name}/{name}", "it vanished while it was read")
        return segments.read(f"{self.location.name}/{name}", found.content), len(found.content)

    async def keys(self) -> BackupKeys | None:
        """Return the wrapped keys; None when the database is not encrypted."""
        name = f"{self.store}/keys"
        found = await self.location.read(name)
        if found is None:
            return None
        try:
            return msgspec.json.decode(found.content, type=BackupKeys)
        except msgspec.MsgspecError as error:
            raise damaged(f"{self.location.name}/{name}", str(error)) from error

    async def write_keys(self, keys: BackupKeys) -> int:
        """Replace the wrapped keys if they have changed; return how many bytes were written."""
        name, content = f"{self.store}/keys", msgspec.json.encode(keys)
        while content != self._keys:
            found = await self.location.read(name)
            if found is not None and found.content == content:
                self._keys = content
            elif await self.location.replace(name, content, tag=found.tag if found is not None else "") is not None:
                self._keys = content
                crash_point("backup: keys written")
                return len(content)
        return 0

    async def read(self, *, until: int) -> AsyncIterator[Segment]:
        """Yield the segments from the first position to one, each checked to follow the one before it.

        A segment that is merged and removed meanwhile is read as a part of the larger one.
        """
        first, follows = 1, GENESIS.hex()
        pieces = await self.pieces()
        while first <= until:
            piece = _covering(pieces, first)
            segment = await self.open(piece) if piece is not None else None
            if piece is None or segment is None:
                again = await self.pieces()
                if again == pieces:
                    raise damaged(f"{self.location.name}/{self._name(first)}", "it is missing")
                pieces = again
                continue
            part = segments.part_from(segment, first)
            if part is None or part.header.follows != follows:
                raise damaged(f"{self.location.name}/{piece.name}", "it does not follow the segment before it")
            yield part
            first, follows = part.header.last + 1, part.header.ends

    async def pieces(self) -> list[Piece]:
        """Return the segments that are there, by their first positions; of the same one the largest first."""
        folder, found = f"{self.store}/segments/", []
        async for name in self.location.names(folder):
            match = _PIECE.fullmatch(name.removeprefix(folder))
            if match is not None and bool(match[1]) == bool(match[3]):
                found.append(Piece(int(match[2]), int(match[3] or 0), int(match[1] or 0), name))
        return sorted(found, key=lambda piece: (piece.first, -piece.last, -piece.level))

    async def open(self, piece: Piece) -> Segment | None:
        """Return a segment, checked to be what its name tells; None when it is no longer there."""
        found = await self.location.read(piece.name)
        if found is None:
            return None
        name = f"{self.location.name}/{piece.name}"
        segment = await asyncio.to_thread(segments.read, name, found.content)
        header = segment.header
        if (header.store, header.first) != (self.store, piece.first) or piece.last not in (0, header.last):
            raise damaged(name, "it does not follow the segment before it")
        return segment

    async def add_merged(self, first: int, last: int, level: int, content: bytes) -> bool:
        """Write a segment that takes the place of smaller ones; return False when there is one of this range."""
        name = f"{self.store}/segments/{level}/{first:020d}to{last:020d}"
        return await self.location.create(name, content)

    async def remove(self, *, now_us: int) -> int:
        """Remove the whole backup; return how many objects were deleted.

        Its head says so first, which refuses a process that writes it, and goes last: interrupted, it is begun again.
        """
        head = await self.head()
        if head is None:
            raise NotFound(f"there is no backup of {self.store} at {self.location.name}")
        await self.advance(msgspec.structs.replace(head, removed_us=now_us))
        crash_point("remove: head says so")
        deleted = 1
        async for name in self.location.names(f"{self.store}/"):
            if name != f"{self.store}/head":
                await self.location.delete(name)
                crash_point("remove: object deleted")
                deleted += 1
        await self.location.delete(f"{self.store}/head")
        return deleted

    def _name(self, first: int) -> str:
        return f"{self.store}/segments/{first:020d}"


def _covering(pieces: list[Piece], position: int) -> Piece | None:
    """Return the largest segment that begins at a position, or else one that has it."""
    index = bisect_left(pieces, position, key=lambda piece: piece.first)
    if index < len(pieces) and pieces[index].first == position:
        return pieces[index]
    return next((piece for piece in reversed(pieces[:index]) if piece.last >= position), None)


async def find(location: Location) -> list[BackupHead]:
    """Return the backups at a location, the newest first."""
    names = [name async for name in location.names("")]
    stores = sorted({name.partition("/")[0] for name in names if name.endswith("/head")})
    found = [await Archive(location, store).head() for store in stores]
    return sorted((head for head in found if head is not None), key=lambda head: -head.written_us)


async def choose(location: Location, store: str = "") -> Archive:
    """Return the backup of a database by the beginning of its identity, or the only one there."""
    heads = [head for head in await find(location) if head.store.startswith(store)]
    fitting = [head for head in heads if not head.removed_us]
    if heads and not fitting:
        hint = f"remove the rest of it: maos backup rm {location.name} {heads[0].store}"
        raise NotFound(f"the backup of {heads[0].store} at {location.name} was removed in part", hint=hint)
    if len(fitting) == 1:
        return Archive(location, fitting[0].store)
    if not fitting:
        what = f"there is no backup {f'of {store} ' if store else ''}at {location.name}"
        raise NotFound(what, hint="`maos backup list LOCATION` lists what is there")
    listed = ", ".join(f"{head.store[:8]} ({head.place} of {head.host})" for head in fitting[:5])
    raise NotFound(f"{location.name} has several backups: {listed}", hint="choose one with --store")
