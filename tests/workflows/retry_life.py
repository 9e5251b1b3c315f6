"""A person who has a failed workflow retried and executes it: `retry_life.py DATABASE`, repeated until it is completed.

Each effect is a line in a file beside the database. The step `b` fails the first time.
"""

import asyncio
import sys
from pathlib import Path

import maos
from maos.engine import ownership
from maos.errors import InvalidInput
from maos.workflows import WorkflowFailed
from maos_testing.crash import ack


@maos.step(idempotent=True)
async def pay(what: str, seen: str) -> str:
    path = Path(seen)
    before = path.read_text().splitlines() if path.exists() else []
    with path.open("a", encoding="ascii") as file:
        file.write(f"{what}\n")
    if what == "b" and "b" not in before:
        raise ValueError("b is broken")
    return f"paid {what}"


@maos.workflow(name="retried")
async def order(seen: str) -> list[str]:
    return [await pay("a", seen), await pay("b", seen), await pay("c", seen)]


async def live(database: Path) -> list[str]:
    async with maos.open(database) as m:
        try:
            return await m.workflows.run(order, f"{database}.seen", id="w")
        except WorkflowFailed:
            ack("failed")
        try:
            await m.workflows.retry("w")
            ack("retried")
        except InvalidInput:
            ack("was retried")  # by a life that was killed
        return await m.workflows.run(order, f"{database}.seen", id="w")


if __name__ == "__main__":
    ownership.CLAIM_S = 1.0  # the next life does not wait long for the lease of one that was killed
    asyncio.run(live(Path(sys.argv[1])))
