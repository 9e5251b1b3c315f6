"""A step that was interrupted: its outcome is unknown, and a probe or a person resolves it.

    python examples/11_unknown_outcomes.py

The first engine is closed during a transfer. A transfer must not be made twice, so the step is not idempotent. This one
has a probe, which reads the bank's statement. The second transfer has none: a person resolves it with `again`. It
prints

    transfer 1: 10 euros
    the bank has a transfer under order-7/1
    transfer 2: 20 euros
    the outcome of step 2, transfer_without_probe(20), is unknown
    transfer 2: 20 euros
    [10, 20]
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import maos
from maos.workflows import Found, key

STATEMENT: dict[str, int] = {}
bank_answers = asyncio.Event()


def look(amount: int) -> Any:
    """Found(...) when the bank knows of it, else NOT_DONE."""
    print(f"the bank has a transfer under {key()}")
    return Found(STATEMENT[key()])


@maos.step(probe=look)
async def transfer(amount: int) -> int:
    print(f"transfer 1: {amount} euros")
    STATEMENT[key()] = amount
    await bank_answers.wait()
    return amount


@maos.step
async def transfer_without_probe(amount: int) -> int:
    print(f"transfer 2: {amount} euros")
    await bank_answers.wait()
    return amount


@maos.workflow
async def transfers() -> list[int]:
    return [await transfer(10), await transfer_without_probe(20)]


async def run_until_a_step_waits(folder: Path, step_id: str) -> None:
    async with maos.open(folder / "maos.db") as m:
        handle = await m.workflows.start(transfers, id="order-7")
        while step_id not in handle.run.steps:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)


async def main(folder: Path) -> None:
    await run_until_a_step_waits(folder, "1")
    await run_until_a_step_waits(folder, "2")
    bank_answers.set()
    async with maos.open(folder / "maos.db") as m:
        handle = await m.workflows.start(transfers, id="order-7")
        while not handle.run.unknown:
            await asyncio.sleep(0.01)
        for step_id, step in handle.run.unknown.items():
            print(f"the outcome of step {step_id}, {step.name}({step.about['given']}), is unknown")
            await m.workflows.resolve("order-7", step_id, "again")
        print(await handle.result())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(Path(name)))
