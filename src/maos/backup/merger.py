"""Merges small segments of a backup into larger ones, so that a day of segments of a second is not 86,400 objects.

Sixty neighbours of one level become one of the next: about a second, a minute, an hour, days. A merged segment that is
full is not merged again. The segment that takes the place of others is written first, and read back before they are
deleted; until then both are there, and readers take the larger one. Whatever is left behind by a process that was
killed is finished by the next one. Only what the head of the backup counts is merged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import groupby

from maos.backup import segments
from maos.backup.archive import LEVEL_MAX, Archive, Piece
from maos.backup.segments import damaged
from maos.faults import crash_point
from maos.store.contract import Recorded, UsedKey
from maos.tuples import NamedTuple

NEIGHBOURS = 60
"""How many neighbours become one."""
MERGED_BYTES = 16 << 20
"""The uncompressed content of a full segment."""


class _Layout(NamedTuple):
    """The segments of a backup: those that readers take, and those inside of larger ones."""

    chain: list[Piece]
    covered: dict[Piece, list[Piece]]
    """The segments inside of each merged one."""


async def merge(archive: Archive, *, until: int) -> int:
    """Merge what can be merged of the segments up to a position; return how many objects were deleted."""
    deleted = 0
    while True:
        layout = _arrange([piece for piece in await archive.pieces() if piece.first <= until])
        for large, small in layout.covered.items():
            await _check(archive, large)
            await asyncio.gather(*(_delete(archive, piece) for piece in small))
            deleted += len(small)
        group = _next_group(layout.chain)
        if group is None or not await _join(archive, *group):
            return deleted


def _arrange(pieces: Sequence[Piece]) -> _Layout:
    chain: list[Piece] = []
    covered: dict[Piece, list[Piece]] = {}
    for piece in pieces:
        large = chain[-1] if chain else None
        if large is not None and piece.first <= large.last and max(piece.first, piece.last) <= large.last:
            covered.setdefault(large, []).append(piece)
        else:
            chain.append(piece)
    return _Layout(chain, covered)


def _next_group(chain: Sequence[Piece]) -> tuple[list[Piece], int] | None:
    """Return neighbours to be merged, and the level of the result; None when there are none."""
    runs = [(level, list(run)) for level, run in groupby(chain, key=lambda piece: piece.level)]
    for number, (level, run) in enumerate(runs):
        if level == LEVEL_MAX:
            continue
        if len(run) >= NEIGHBOURS:
            return run[:NEIGHBOURS], level + 1
        is_closed = number + 1 < len(runs) and runs[number + 1][0] > level  # no neighbour will ever be added
        if is_closed and len(run) > 1:
            return run, LEVEL_MAX
    return None


async def _join(archive: Archive, group: Sequence[Piece], level: int) -> bool:
    """Write the segment that takes the place of neighbours, or of the first of them if it would be too large.

    Returns False when there is one, of another process.
    """
    events: list[Recorded] = []
    keys: dict[str, UsedKey] = {}
    first, follows, last, ends, size = group[0].first, b"", 0, "", 0
    for piece in group:
        segment = await archive.open(piece)
        if segment is None:
            raise damaged(f"{archive.location.name}/{piece.name}", "it is missing")
        header = segment.header
        if events and size + header.size > MERGED_BYTES:
            level = LEVEL_MAX
            break
        if events and (header.first, header.follows) != (last + 1, ends):
            raise damaged(f"{archive.location.name}/{piece.name}", "it does not follow the segment before it")
        follows = follows or bytes.fromhex(header.follows)
        events += segment.events
        keys |= {key.id: key for key in segment.keys}
        last, ends, size = header.last, header.ends, size + header.size
    content = await asyncio.to_thread(
        segments.seal, archive.store, follows, first, events, sorted(keys.values(), key=lambda key: key.position)
    )
    is_new = await archive.add_merged(first, last, level, content)
    crash_point("merge: written, nothing deleted")
    return is_new


async def _check(archive: Archive, large: Piece) -> None:
    """Raise Corrupt unless a merged segment can be read: only then may those inside of it be deleted."""
    if await archive.open(large) is None:
        raise damaged(f"{archive.location.name}/{large.name}", "it is missing")


async def _delete(archive: Archive, piece: Piece) -> None:
    await archive.location.delete(piece.name)
    crash_point("merge: small segment deleted")
