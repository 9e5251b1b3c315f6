"""The part of HTTP/1.1 that the stub needs: requests with bodies, whole or chunked replies, persistent connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

BODY_BYTES_MAX = 64 * 1024 * 1024
HEADER_BYTES_MAX = 64 * 1024
REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 429: "Too Many Requests"}


class HttpRequest(NamedTuple):
    """One request; names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class BadRequest(Exception):
    """The bytes are not a request, or too many."""


async def read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """Read the next request of a connection; None when the client has closed it."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        raise BadRequest("the header is too long") from None
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3:
        raise BadRequest("not a request line")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    try:
        if "chunked" in headers.get("transfer-encoding", ""):
            body = await _read_chunks(reader)
        else:
            body = await reader.readexactly(_size(headers.get("content-length", "0"), 10))
    except asyncio.IncompleteReadError:
        return None
    return HttpRequest(words[0], words[1].partition("?")[0], headers, body)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        size = _size(line.split(b";")[0].decode("latin-1").strip(), 16)
        part = await reader.readexactly(size + 2)
        if not size:
            return body
        body += part[:-2]
        if len(body) > BODY_BYTES_MAX:
            raise BadRequest("the body is too long")


def _size(text: str, base: int) -> int:
    try:
        size = int(text, base)
    except ValueError:
        raise BadRequest("not a length") from None
    if not 0 <= size <= BODY_BYTES_MAX:
        raise BadRequest("the body is too long")
    return size


async def send_json(
    writer: asyncio.StreamWriter, status: int, body: Any, headers: Mapping[str, str] | None = None
) -> None:
    """Return a whole reply."""
    data = json.dumps(body).encode()
    writer.write(
        _head(status, {"content-type": "application/json", "content-length": str(len(data)), **(headers or {})})
    )
    writer.write(data)
    await writer.drain()


async def begin_stream(writer: asyncio.StreamWriter, headers: Mapping[str, str]) -> None:
    """Return the head of a reply that is streamed as events."""
    fixed = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
    writer.write(_head(200, {**fixed, "transfer-encoding": "chunked", **headers}))
    await writer.drain()


async def send_event(writer: asyncio.StreamWriter, name: str, data: Any) -> None:
    """Return one event of a stream; not every API names them."""
    named = f"event: {name}\n" if name else ""
    frame = f"{named}data: {json.dumps(data)}\n\n".encode()
    writer.write(f"{len(frame):x}\r\n".encode() + frame + b"\r\n")
    await writer.drain()


async def end_stream(writer: asyncio.StreamWriter) -> None:
    """Return the end of a stream, after which the connection can be used again."""
    writer.write(b"0\r\n\r\n")
    await writer.drain()


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
