"""The program that crash tests kill: `python -m tests.bus.bus_life PLACE SCHEMA MARK`. It tells what it was told."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import maos
from maos_testing.crash import ack
from tests.bus.receivers import take

VISIBILITY_S = 0.5


async def main(place: str, schema: str, mark: str) -> None:
    more: dict[str, Any] = {"schema": schema, "mark_path": Path(mark)} if schema else {}
    async with maos.open(place, **more) as m:
        await m.bus.subscribe("b", "news")
        ack(["joined", "b"])
        await m.bus.send("a", "b", "one", key="one")
        ack(["sent", "one"])
        await m.bus.publish("a", "news", "bad", key="bad")
        ack(["sent", "bad"])
        receiver = m.bus.receive("b", visibility_s=VISIBILITY_S, window=1)
        for _ in range(2):
            [delivery] = await take(receiver)
            if delivery.message.text == "bad":
                await delivery.reject("it is bad")
                ack(["rejected", "bad"])
            else:
                await delivery.ack()
                ack(["acknowledged", delivery.message.text])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
