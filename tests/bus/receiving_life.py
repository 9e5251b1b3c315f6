"""Receives for ever: `python -m tests.bus.receiving_life PATH NAME`. It tells what it has acknowledged."""

import asyncio
import sys

import maos
from maos_testing.crash import ack
from tests.bus.bus_life import VISIBILITY_S


async def main(path: str, name: str) -> None:
    async with maos.open(path) as m:
        async for delivery in m.bus.receive(name, visibility_s=VISIBILITY_S, tries_max=50):
            await delivery.ack()
            ack(delivery.message.text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
