"""A workflow of eight idempotent steps and a question after the fourth, to be killed at the end of the eighth.

python policy_life.py DATABASE EFFECTS FREQUENCY die
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import maos
from maos.workflows import gate

dying = False


@maos.step(idempotent=True)
async def effect(effects: str, n: int) -> int:
    with open(effects, "a", encoding="ascii") as file:
        file.write(f"{n}\n")
    if dying and n == 8:
        os.kill(os.getpid(), signal.SIGKILL)
    return n


@maos.workflow(name="policy-life")
async def eight(effects: str) -> int:
    total = 0
    for n in range(1, 9):
        total += await effect(effects, n)
        if n == 4:
            await gate("Go on?", default="yes", timeout_s=0.001)
    return total


async def live(database: str, effects: Path, checkpoints: dict[str, Any]) -> int:
    async with maos.open(database) as m:
        handle = await m.workflows.start(eight, str(effects), id="e", options={"checkpoints": checkpoints})
        return int(await handle.result())


if __name__ == "__main__":
    dying = sys.argv[4:] == ["die"]
    options = {"frequency": sys.argv[3], "every": 3, "interval_s": 3600}
    asyncio.run(live(sys.argv[1], Path(sys.argv[2]), options))
