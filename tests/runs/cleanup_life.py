"""An engine that makes room: `cleanup_life.py DATABASE HOME`."""

import asyncio
import sys
from pathlib import Path

import maos
from maos.clock import SystemClock
from maos.runs import cleanup
from maos.settings.schema import CleanupSettings
from maos_testing.crash import ack

POLICIES = CleanupSettings(older_than_days=1e-9)
cleanup.LEASE_S = 0.01  # the next life does not wait for that of one that was killed


async def main(database: str, home: str) -> None:
    async with maos.open(database, home=Path(home)) as m:
        for policies in (POLICIES, POLICIES):  # the second finds that it is not time again
            done = await cleanup.Cleaner(SystemClock(), m.runs, m.agents).when_due(policies)
            ack(None if done is None else len(done.removed))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
