"""A person who removes the only run: `removal_life.py DATABASE HOME`."""

import asyncio
import sys
from pathlib import Path

import maos
from maos.engine import ownership
from maos_testing.crash import ack


async def live(database: str, home: Path) -> None:
    async with maos.open(database, home=home) as m:
        async for run in m.runs.all():
            await m.runs.remove(run.id)
            ack("removed")


if __name__ == "__main__":
    ownership.CLAIM_S = 1.0  # the next life does not wait long for the lease of one that was killed
    asyncio.run(live(sys.argv[1], Path(sys.argv[2])))
