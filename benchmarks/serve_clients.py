"""Many clients of one stream of server-sent events, in one process.

    python -m benchmarks.serve_clients PORT PATH CLIENTS SLOW < TOKENS

It prints `ready` once all of them are connected. After a line on its standard input with the number of events that each
should get, it waits for them and prints one JSON document: how many each got, and how long they took from the time in
their lines. Clients that are slow connect and read nothing.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from typing import Any

EVENT = b"event: recorded\n"
TEXT = b'"text":"'
ARRIVAL_S_MAX = 60.0
TIME_CHARS = 17
"""A time is a number of seconds, `0000002345.678901`."""


class Reader(asyncio.Protocol):
    """A client that reads as fast as it can."""

    def __init__(self, request: bytes, delays: list[float]) -> None:
        self._request = request
        self._delays = delays
        self._end = b""
        self.events = 0
        self.is_open = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        """Send the request."""
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Count events, also one that comes in two parts, and look at the time of the newest whole line."""
        if not self.is_open.done():
            if not data.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(data[:300])
            self.is_open.set_result(None)
        joined = self._end + data
        self.events += joined.count(EVENT)
        self._end = joined[-len(EVENT) + 1 :]
        at = data.rfind(TEXT, 0, len(data) - TIME_CHARS - len(TEXT))
        if at >= 0:
            self._delays.append(time.monotonic() - float(data[at + len(TEXT) : at + len(TEXT) + TIME_CHARS]))


def _request(port: int, path: str, token: str) -> bytes:
    credential = f"Authorization: Bearer {token}\r\n" if token else ""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{credential}\r\n".encode()


async def main(port: int, path: str, clients: int, slow: int) -> None:
    """Connect, wait, and say what came."""
    loop, delays = asyncio.get_running_loop(), list[float]()
    tokens = sys.stdin.readline().split() or [""]
    requests = [_request(port, path, tokens[number % len(tokens)]) for number in range(clients + slow)]
    readers = []
    for each in requests[:clients]:
        _transport, reader = await loop.create_connection(lambda each=each: Reader(each, delays), "127.0.0.1", port)
        await reader.is_open
        readers.append(reader)
    sleepers = []
    for each in requests[clients:]:
        sleeper = socket.socket()
        sleeper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        sleeper.connect(("127.0.0.1", port))
        sleeper.sendall(each)
        sleepers.append(sleeper)
    print("ready", flush=True)
    expected, until_s = int(await asyncio.to_thread(sys.stdin.readline)), time.monotonic() + ARRIVAL_S_MAX
    while min(each.events for each in readers) < expected and time.monotonic() < until_s:
        await asyncio.sleep(0.02)
    ordered = sorted(delays) or [0.0]
    p50, p99 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    print(json.dumps({"events": [each.events for each in readers], "p50_s": p50, "p99_s": p99}), flush=True)
    for each in sleepers:
        each.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
