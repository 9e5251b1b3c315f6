"""One of the two processes of a round of `bus`: ``benchmarks.bus_half MODULE send|receive WHERE PAIRS COUNT``.

It says "ready", waits for a line on standard input, works, and prints when it began and ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import import_module
from typing import Any

from benchmarks.measure import steady
from benchmarks.workload import notes

WARM_UP = 2


async def go() -> None:
    """Wait until the other process is ready too."""
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


async def send(system: Any, where: str, pairs: int, each: int) -> tuple[float, float]:
    """Every sender waits for one message to be acknowledged before it sends the next."""
    texts = [note.data["text"] for note in notes(500)]

    async def talk(say: Callable[[str], Awaitable[object]], count: int) -> None:
        for number in range(count):
            await say(texts[number % len(texts)])

    async with system.senders(where, pairs) as senders:
        await go()
        await asyncio.gather(*(talk(say, WARM_UP) for say in senders))
        await go()
        with steady(collect=True):
            began = time.monotonic()
            await asyncio.gather(*(talk(say, each) for say in senders))
            return began, time.monotonic()


async def receive(system: Any, where: str, pairs: int, each: int) -> tuple[float, float]:
    """Every receiver acknowledges one message, durably, before it looks at the next."""

    async def hear(messages: AsyncIterator[Callable[[], Awaitable[object]]], count: int) -> None:
        for _ in range(count):
            acknowledge = await anext(messages)
            await acknowledge()

    async with system.receivers(where, pairs) as receivers:
        await go()
        await asyncio.gather(*(hear(messages, WARM_UP) for messages in receivers))
        await go()
        with steady(collect=True):
            began = time.monotonic()
            await asyncio.gather(*(hear(messages, each) for messages in receivers))
            ended = time.monotonic()
        for messages in receivers:
            await messages.aclose()  # type: ignore[attr-defined]
        return began, ended


def main() -> None:
    """Be one half."""
    module, role, where, pairs, count = sys.argv[1:]
    half = send if role == "send" else receive
    times = asyncio.run(half(import_module(module), where, int(pairs), int(count) // int(pairs)))
    print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
