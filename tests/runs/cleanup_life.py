"""An engine that makes room: `cleanup_life.py DATABASE HOME`."""

import asyncio
import sys
from pathlib import Path

import maos
from maos.clock import SystemClock
from maos.engine import ownership
from maos.runs import cleanup
from maos.settings.schema import CleanupSettings
from maos_testing.crash import ack

POLICIES = CleanupSettings(older_than_days=1e-9)


async def main(database: str, home: str) -> None:
    async with maos.open(database, home=Path(home)) as m:
        cleaner = cleanup.Cleaner(SystemClock(), m.runs, m.agents)
        while (done := await cleaner.when_due(POLICIES)) is None:
            await asyncio.sleep(0.02)  # until the lease of the life that was killed has run out
        ack(len(done.removed))
        ack(await cleaner.when_due(POLICIES))  # it is not time again


if __name__ == "__main__":
    cleanup.LEASE_S = 0.5  # the next life does not wait long for that of one that was killed
    ownership.CLAIM_S = 0.5
    asyncio.run(main(*sys.argv[1:]))
