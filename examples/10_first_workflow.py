"""A first durable workflow: two steps, interrupted between them; the first is not done again.

    python examples/10_first_workflow.py

The first engine is closed while the workflow waits for a signal. The second one resumes it: the result of the first
step is recorded, so only the second step is called. It prints

    charging 30
    sending receipt-30
    receipt-30 was sent
"""

import asyncio
import tempfile
from pathlib import Path

import maos


@maos.step
async def charge(amount: int) -> str:
    print(f"charging {amount}")
    return f"receipt-{amount}"


@maos.step(retries=3, idempotent=True)
async def send(receipt: str) -> str:
    print(f"sending {receipt}")
    return f"{receipt} was sent"


@maos.workflow
async def order(amount: int) -> str:
    receipt = await charge(amount)
    await maos.workflows.signal("packed")
    return await send(receipt)


async def main(folder: Path) -> None:
    async with maos.open(folder / "maos.db") as m:
        handle = await m.workflows.start(order, 30, id="order-7")
        while not handle.run.waiting:
            await asyncio.sleep(0.01)

    async with maos.open(folder / "maos.db") as m:
        await m.workflows.signal("order-7", "packed")
        print(await m.workflows.run(order, 30, id="order-7"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(Path(name)))
