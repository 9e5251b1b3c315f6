"""Receivers in the hands of a test."""

import asyncio

from maos.bus.receiver import Delivery, Receiver

WAIT_S_MAX = 60


async def take(receiver: Receiver, count: int = 1) -> list[Delivery]:
    """The next deliveries, not acknowledged."""
    async with asyncio.timeout(WAIT_S_MAX):
        return [await anext(receiver) for _ in range(count)]


async def finish(receiver: Receiver, count: int) -> list[str]:
    """The texts of the next messages, acknowledged one after the other."""
    texts = []
    for _ in range(count):
        [delivery] = await take(receiver)
        texts.append(delivery.message.text)
        await delivery.ack()
    return texts


async def nothing_comes(receiver: Receiver, within_s: float = 0.3) -> bool:
    """Whether nothing is delivered for a while."""
    try:
        async with asyncio.timeout(within_s):
            await anext(receiver)
    except TimeoutError:
        return True
    return False


async def die(receiver: Receiver) -> None:
    """What is left of a receiver whose process was killed: a lease that nobody renews."""
    if receiver._keeper is not None:
        receiver._keeper.cancel()
        await asyncio.gather(receiver._keeper, return_exceptions=True)
    if receiver._inbox is not None:
        receiver._inbox.close()
    receiver._keeper = receiver._lease = receiver._inbox = None
