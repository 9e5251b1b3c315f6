"""An engine with a short lease that runs the agent `a` until it has ended or was taken; reports which.

python stopped_engine.py DATABASE HOME FOLDER SCRIPT
"""

import asyncio
import sys
from pathlib import Path

import maos
from maos.agents import kinds
from maos.clock import SystemClock
from maos.engine.attempts import Attempts
from maos_testing.crash import ack


async def live(database: str, home: Path, folder: Path, script: str) -> None:
    async with maos.open(database) as m:
        engine = Attempts(m.journal, SystemClock(), dialect=kinds.dialect, folder=home, lease_s=1.0)
        try:
            running = await engine.start(argv=["sh", "-c", script], cwd=folder, name="a", in_place=True)
            ack("running")
            await running.wait()
            ack("ended")
        except maos.LeaseLost as error:
            ack(f"fenced: {error.what}")
        finally:
            await engine.close()


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]))
