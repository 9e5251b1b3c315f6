"""A TCP proxy in front of a real object store, which cuts connections, answers 500, or holds requests back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from enum import Enum

ANSWER = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
REDIRECT = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Fault(Enum):
    """What the proxy does to a request."""

    NONE = "passes it on"
    FAIL = "answers 500, and passes nothing on"
    CUT = "passes the first half of an upload on, and cuts both connections"
    LOSE = "passes it on, and cuts the connection instead of the answer"
    HOLD = "accepts it, and never answers"
    REDIRECT = "sends the client elsewhere"


class Proxy:
    """Forwards to a port of loopback; `fault` applies to requests from then on."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.fault = Fault.NONE
        self.elsewhere = b""
        self.faults = 0
        """How many requests have met a fault."""
        self.heads: list[bytes] = []
        """The lines and headers of all requests, in small letters."""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Proxy"]:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=1 << 26)
        try:
            yield self
        finally:
            self._server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._forward(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._request(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # one of both sides has closed its connection
        finally:
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Forward one request; return whether the connection can have another."""
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(_length(head))
        self.heads.append(head.lower())
        fault = self.fault
        self.faults += fault is not Fault.NONE
        if fault is Fault.HOLD:
            await asyncio.Event().wait()
        if fault in (Fault.FAIL, Fault.REDIRECT):
            writer.write(ANSWER if fault is Fault.FAIL else REDIRECT % self.elsewhere)
            await writer.drain()
            return False
        there_reader, there = await asyncio.open_connection("127.0.0.1", self._to, limit=1 << 26)
        try:
            there.write(head + (body[: len(body) // 2] if fault is Fault.CUT else body))
            await there.drain()
            if fault is Fault.CUT:
                return False
            answer = await there_reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"HEAD") or answer.split(b" ", 2)[1] in (b"204", b"304"):
                rest = b""
            elif b"chunked" in answer.lower():
                rest = await _chunks(there_reader)
            else:
                rest = await there_reader.readexactly(_length(answer))
            if fault is Fault.LOSE:
                return False
            writer.write(answer + rest)
            await writer.drain()
            return True
        finally:
            there.close()


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    """A body in chunks, as it is."""
    found = b""
    while True:
        line = await reader.readline()
        chunk = await reader.readexactly(int(line.split(b";")[0], 16) + 2)
        found += line + chunk
        if len(chunk) == 2:
            return found
