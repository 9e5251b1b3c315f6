"""maos, carrying out the workflows of `benchmarks/workflow.py`."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import maos
from benchmarks.workflow_driver import AT_ONCE, Order, result_of


@maos.step
async def one(number: int) -> dict[str, Any]:
    """One step, which is not idempotent, so its beginning too is on disk before it runs."""
    return result_of(number)


@maos.workflow(name="bench-sequential")
async def sequential(steps: int) -> int:
    """Steps one after the other."""
    return sum([(await one(number))["number"] for number in range(steps)])


@maos.workflow(name="bench-parallel")
async def parallel(rounds: int) -> int:
    """64 steps at once, and again."""
    total = 0
    for _ in range(rounds):
        found = await maos.workflows.parallel(one, range(AT_ONCE), limit=AT_ONCE)
        total += sum(each["number"] for each in found)
    return total


def execute(order: Order) -> dict[str, float]:
    """Seconds of each kind of workflow."""
    return asyncio.run(_carry_out(order))


async def _carry_out(order: Order) -> dict[str, float]:
    taken = {}
    async with maos.open(order["url"] or Path(order["directory"]) / "maos.db") as m:
        await m.workflows.run(sequential, 1)
        for name, flow, amount in (("sequential", sequential, order["steps"]), ("parallel", parallel, order["rounds"])):
            if amount:
                began_s = time.perf_counter()
                await m.workflows.run(flow, amount)
                taken[name] = time.perf_counter() - began_s
    return taken
