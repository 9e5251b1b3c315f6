"""NATS JetStream with `sync_interval: always`: a subject and a durable pull consumer for each receiver.

A publish is acknowledged when it is on disk. Receivers fetch up to 64 messages at once and acknowledge each with
`ack_sync`, which waits until the server has taken note of it.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from benchmarks.peers.servers import free_port, running

FETCH = 64


@contextmanager
def serve(directory: Path) -> Iterator[str]:
    """A new server; its address."""
    port = free_port()
    program = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    if program is None:
        raise RuntimeError("nats-server is not installed")
    settings = directory / "nats.conf"
    store = directory / "store"
    settings.write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{store}", sync_interval: always }}\n', encoding="utf-8"
    )
    with running([program, "-c", str(settings)], port, directory / "log"):
        yield f"nats://127.0.0.1:{port}"


@asynccontextmanager
async def senders(where: str, pairs: int) -> AsyncIterator[list[Callable[[str], Awaitable[object]]]]:
    """One that publishes for each pair."""
    import nats

    connection = await nats.connect(where)
    stream = connection.jetstream()

    def sender(number: int) -> Callable[[str], Awaitable[object]]:
        subject = f"inbox.{number}"
        return lambda text: stream.publish(subject, text.encode())

    try:
        yield [sender(number) for number in range(pairs)]
    finally:
        await connection.close()


@asynccontextmanager
async def receivers(where: str, pairs: int) -> AsyncIterator[list[AsyncIterator[Callable[[], Awaitable[object]]]]]:
    """One that fetches for each pair; what it gives acknowledges a message."""
    import nats
    from nats.errors import TimeoutError as NothingYet

    connection = await nats.connect(where)
    stream = connection.jetstream()
    await stream.add_stream(name="bus", subjects=["inbox.*"])
    pulls = [await stream.pull_subscribe(f"inbox.{number}", durable=f"receiver-{number}") for number in range(pairs)]

    async def receive(number: int) -> AsyncIterator[Callable[[], Awaitable[object]]]:
        while True:
            try:
                messages = await pulls[number].fetch(FETCH, timeout=5)
            except NothingYet:
                continue
            for message in messages:
                yield message.ack_sync

    try:
        yield [receive(number) for number in range(pairs)]
    finally:
        await connection.close()
