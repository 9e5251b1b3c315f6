"""maos as a message bus: `m.bus`, with the history of a run, on SQLite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from benchmarks import ours


@contextmanager
def serve(directory: Path) -> Iterator[str]:
    """There is no server: both processes open the file."""
    yield ours.in_directory(directory)


@asynccontextmanager
async def senders(where: str, pairs: int) -> AsyncIterator[list[Callable[[str], Awaitable[object]]]]:
    """One that sends for each pair."""
    import maos

    async with maos.open(where) as m:

        def sender(number: int) -> Callable[[str], Awaitable[object]]:
            return lambda text: m.bus.send(f"sender-{number}", f"receiver-{number}", text, run="bench")

        yield [sender(number) for number in range(pairs)]


@asynccontextmanager
async def receivers(where: str, pairs: int) -> AsyncIterator[list[AsyncIterator[Callable[[], Awaitable[object]]]]]:
    """One that receives for each pair; what it gives acknowledges a message."""
    import maos

    async with maos.open(where) as m:

        async def receive(number: int) -> AsyncIterator[Callable[[], Awaitable[object]]]:
            async for delivery in m.bus.receive(f"receiver-{number}"):
                yield delivery.ack

        yield [receive(number) for number in range(pairs)]
