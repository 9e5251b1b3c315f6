"""DBOS on SQLite or PostgreSQL: steps one after the other, and 64 at once, of an async workflow."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from benchmarks.workflow_driver import AT_ONCE, Order, result_of


def execute(order: Order) -> dict[str, float]:
    """Seconds of each kind of workflow; 0 steps for a start-up."""
    from dbos import DBOS, DBOSConfig

    where = order["url"] or f"sqlite:///{Path(order['directory']) / 'dbos.sqlite'}"
    config: DBOSConfig = {"name": "bench", "system_database_url": where, "log_level": "ERROR"}
    DBOS(config=config)

    @DBOS.step()
    async def one(number: int) -> dict[str, Any]:
        return result_of(number)

    @DBOS.workflow()
    async def sequential(steps: int) -> int:
        return sum([(await one(number))["number"] for number in range(steps)])

    @DBOS.workflow()
    async def parallel(rounds: int) -> int:
        total = 0
        for _ in range(rounds):
            found = await asyncio.gather(*(one(number) for number in range(AT_ONCE)))
            total += sum(each["number"] for each in found)
        return total

    async def run() -> dict[str, float]:
        await sequential(1)
        taken = {}
        for name, flow, amount in (("sequential", sequential, order["steps"]), ("parallel", parallel, order["rounds"])):
            if amount:
                began_s = time.perf_counter()
                await flow(amount)
                taken[name] = time.perf_counter() - began_s
        return taken

    DBOS.launch()
    try:
        return asyncio.run(run())
    finally:
        DBOS.destroy()
