"""What a database holds, for comparisons."""

from pathlib import Path

import maos
from maos.store.contract import Recorded

TYPES = [maos.EventType("note")]


async def rows(database: Path | str) -> list[Recorded]:
    """Return every event as it is stored."""
    async with maos.open(database, types=TYPES) as m:
        found: list[Recorded] = []
        while page := await m.journal.store.read_log(after=found[-1].position if found else 0):
            found += page
        return found
