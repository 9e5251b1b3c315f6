"""The program that crash tests kill: writes small segments, and merges them.

python -m tests.backup.merge_life DATABASE LOCATION
"""

import asyncio
import sys

import maos
from maos.backup import merger
from maos.backup.archive import Archive
from maos.backup.locations import open_location
from maos.journal.codec import Event
from tests.backup.records import TYPES

NOTES, NEIGHBOURS = 5, 2


async def main(database: str, location: str) -> None:
    async with maos.open(database, types=TYPES) as m:
        for number in range(NOTES):
            await m.journal.append("notes/1", Event("note", {"text": f"{number}"}))
            await m.backups.ship(location)
        merger.NEIGHBOURS = NEIGHBOURS
        archive = Archive(open_location(location), await m.journal.store.identity())
        await merger.merge(archive, until=NOTES)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
