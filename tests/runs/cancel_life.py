"""A person who cancels the only run: `cancel_life.py DATABASE HOME`."""

import asyncio
import sys
from pathlib import Path

import maos
from maos.engine import ownership


async def live(database: str, home: Path) -> None:
    async with maos.open(database, home=home) as m:
        for run in [each async for each in m.runs.all()]:
            await m.runs.cancel(run.id)


if __name__ == "__main__":
    ownership.CLAIM_S = 1.0  # the next life does not wait long for the lease of one that was killed
    asyncio.run(live(sys.argv[1], Path(sys.argv[2])))
