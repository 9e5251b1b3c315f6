"""JSON-RPC 2.0 over two file descriptors, one message a line; every line that is read may be hostile."""

from __future__ import annotations

import json
import os
import select
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, NoReturn

UNREADABLE, INVALID, NO_METHOD, BAD_PARAMETERS, BROKEN = -32700, -32600, -32601, -32602, -32603

LINE_BYTES_MAX = 4 << 20
"""The largest value that may be saved, with every character escaped, and room to spare."""
READ_BYTES = 1 << 16

Id = str | int


class Refused(Exception):
    """A message that gets an error instead of a result."""

    def __init__(self, code: int, why: str, *, id: Id | None = None) -> None:
        super().__init__(why)
        self.code = code
        self.why = why
        self.id = id


class RpcMessage:
    """A request, or a notification when it has no id."""

    __slots__ = ("id", "method", "params", "seen")

    def __init__(self, method: str, params: dict[str, Any], id: Id | None = None) -> None:
        self.method = method
        self.params = params
        self.id = id
        self.seen = 0
        """How many messages had been sent to the client before this one was read."""


def parse(line: bytes) -> RpcMessage | None:
    """Parse a line; None for an empty line or a response, which need no answer."""
    if not line.strip():
        return None
    try:
        data = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and too long numbers are ValueErrors
        raise Refused(UNREADABLE, f"not JSON: {error}"[:200]) from None
    if not isinstance(data, dict):
        raise Refused(INVALID, "a message must be one JSON object; batches are not supported")
    id = data.get("id")
    if isinstance(id, bool) or not isinstance(id, str | int | None):
        raise Refused(INVALID, "an id must be a string or an integer")
    method, params = data.get("method"), data.get("params", {})
    if method is None and ("result" in data or "error" in data):
        return None
    if data.get("jsonrpc") != "2.0" or not isinstance(method, str):
        raise Refused(INVALID, 'a message must have jsonrpc "2.0" and a method', id=id)
    if not isinstance(params, dict):
        raise Refused(BAD_PARAMETERS, "params must be an object", id=id)
    return RpcMessage(method, params, id)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


class RpcChannel:
    """Messages from and to one client; one thread may read while another writes."""

    def __init__(self, input: int = 0, output: int = 1) -> None:
        self._input = input
        self._output = output
        self._rest = bytearray()
        self._seen = 0
        self._lock = threading.Lock()
        self._is_open = True
        self._sent = 0

    def messages(self) -> Iterator[RpcMessage]:
        """Messages as they come, until the input ends. An invalid line is answered here."""
        while True:
            try:
                line = self._line()
                if line is None:
                    return
                message = parse(line)
            except Refused as refused:
                self.send_error(refused)
                continue
            if message is not None:
                message.seen = self._seen
                yield message

    def _line(self) -> bytes | None:
        """The next line; None at the end of the input. A last line without a newline is ignored."""
        looked_at = 0
        skipping = False
        while True:
            end = self._rest.find(b"\n", looked_at)
            if end >= 0:
                line = bytes(self._rest[:end])
                del self._rest[: end + 1]
                if skipping or end > LINE_BYTES_MAX:
                    raise Refused(UNREADABLE, f"a line is longer than {LINE_BYTES_MAX} bytes")
                return line
            looked_at = len(self._rest)
            if looked_at > LINE_BYTES_MAX:
                skipping = True
                self._rest.clear()
                looked_at = 0
            data = os.read(self._input, READ_BYTES)
            if not data:
                return None
            self._rest += data
            self._seen = self._sent

    def send_result(self, id: Id, result: dict[str, Any]) -> int:
        """Answer a request; returns the number of the message, 0 when the client has exited."""
        return self._send({"id": id, "result": result})

    def send_error(self, refused: Refused) -> None:
        """Answer a request that has no result."""
        self._send({"id": refused.id, "error": {"code": refused.code, "message": refused.why}})

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification."""
        self._send({"method": method, "params": params})

    def _send(self, message: dict[str, Any]) -> int:
        data = memoryview(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n")
        with self._lock:
            self._sent += 1  # before it is written: the client's next message may be read before this returns
            while data and self._is_open:
                try:
                    data = data[os.write(self._output, data) :]
                except BlockingIOError:
                    select.select([], [self._output], [])
                except OSError:  # the client has exited, and the input will end
                    self._is_open = False
            return self._sent if self._is_open else 0
