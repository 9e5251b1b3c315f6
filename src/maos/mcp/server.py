"""The MCP server of one agent, up to the first call of a tool: it greets the client and lists the tools.

JSON-RPC 2.0 over standard input and output, one message a line. Whatever comes in may be hostile. Nothing heavy is
loaded before a tool is called: every agent pays for the start of its server, whether it calls a tool or not.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading

from maos import __version__
from maos.mcp import tools
from maos.model import tool_calls as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Revisions of the protocol that begin with `initialize`, the newest first; for our tools they are all the same."""

UNREADABLE, INVALID, NO_METHOD, BAD_PARAMETERS, BROKEN = -32700, -32600, -32601, -32602, -32603

Id = str | int


class Refused(Exception):
    """A message that gets an error in the place of a result."""

    def __init__(self, code: int, why: str, *, id: Id | None = None) -> None:
        super().__init__(why)
        self.code = code
        self.why = why
        self.id = id


class Message:
    """A request, or a notification when it has no id."""

    __slots__ = ("id", "method", "params", "seen")

    def __init__(self, method: str, params: dict[str, Any], id: Id | None = None) -> None:
        self.method = method
        self.params = params
        self.id = id
        self.seen = 0
        """How many messages of ours had been sent before it came."""


def parse(line: bytes) -> Message | None:
    """The message in a line; None for what needs no answer: an empty line, or an answer to nothing we asked."""
    if not line.strip():
        return None
    try:
        data = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and numbers without end are ValueErrors
        raise Refused(UNREADABLE, f"not JSON: {error}"[:200]) from None
    if not isinstance(data, dict):
        raise Refused(INVALID, "a message is one JSON object; batches are not taken")
    id = data.get("id")
    if isinstance(id, bool) or not isinstance(id, str | int | None):
        raise Refused(INVALID, "an id is a string or an integer")
    method, params = data.get("method"), data.get("params", {})
    if method is None and ("result" in data or "error" in data):
        return None
    if data.get("jsonrpc") != "2.0" or not isinstance(method, str):
        raise Refused(INVALID, 'a message has jsonrpc "2.0" and a method', id=id)
    if not isinstance(params, dict):
        raise Refused(BAD_PARAMETERS, "params is an object", id=id)
    return Message(method, params, id)


def result(id: Id, value: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request."""
    return {"jsonrpc": "2.0", "id": id, "result": value}


def error(refused: Refused) -> dict[str, Any]:
    """The answer to a request that cannot have one."""
    return {"jsonrpc": "2.0", "id": refused.id, "error": {"code": refused.code, "message": refused.why}}


def notification(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Something the client is told without being asked."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def text(said: str, *, failed: bool = False) -> dict[str, Any]:
    """The result of a tool; one that failed is told to the model, which can do better the next time."""
    return {"content": [{"type": "text", "text": said}], "isError": failed}


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# --- lines over file descriptors: blocking, bounded, and usable from two threads --------------------------------------


LINE_BYTES_MAX = 4 << 20
"""The largest value that may be saved, with every character escaped, and room to spare."""
READ_BYTES = 1 << 16


class LineTooLong(Exception):
    """A line beyond the limit; it was skipped."""


class Input:
    """Lines from a file descriptor."""

    def __init__(self, descriptor: int, output: Output, *, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        self._descriptor = descriptor
        self._output = output
        self._line_bytes_max = line_bytes_max
        self._rest = bytearray()
        self.seen = 0
        """How much had been sent when the last line came: what the client may have known when it wrote it."""

    def line(self) -> bytes | None:
        """The next line, waited for; None at the end. A last line without an end counts for nothing."""
        looked_at = 0
        skipping = False
        while True:
            end = self._rest.find(b"\n", looked_at)
            if end >= 0:
                line = bytes(self._rest[:end])
                del self._rest[: end + 1]
                if skipping or end > self._line_bytes_max:
                    raise LineTooLong
                return line
            looked_at = len(self._rest)
            if looked_at > self._line_bytes_max:
                skipping = True
                self._rest.clear()
                looked_at = 0
            data = os.read(self._descriptor, READ_BYTES)
            if not data:
                return None
            self._rest += data
            self.seen = self._output.sent


class Output:
    """Messages to a file descriptor, each as one line."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._is_open = True
        self.sent = 0
        """How many messages."""

    def send(self, message: dict[str, Any]) -> int:
        """Write a message; its number, 0 when nobody is there. Whoever does not read lets only its own agent wait."""
        data = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        with self._lock:
            self.sent += 1  # before it is: an answer to it could be read before we get to count
            while data and self._is_open:
                try:
                    data = data[os.write(self._descriptor, data) :]
                except BlockingIOError:
                    select.select([], [self._descriptor], [])
                except OSError:  # the client is gone, and the end of our input will say so
                    self._is_open = False
            return self.sent if self._is_open else 0


# --- whose server it is -----------------------------------------------------------------------------------------------


_SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH")


class Identity:
    """An agent, in an attempt, in a run or in none."""

    __slots__ = ("agent", "attempt", "database", "run", "schema", "secrets")

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.database = environment.get(names.DATABASE, "")
        self.schema = environment.get(names.SCHEMA, "")
        self.run = environment.get(names.RUN, "")
        self.agent = environment.get(names.AGENT, "")
        self.attempt = environment.get(names.ATTEMPT, "")
        # Agents' programs hand their own variables on to us, their keys too: by value they never get into the journal.
        self.secrets = {name: value for name, value in environment.items() if _may_be_secret(name)}

    def missing(self) -> list[str]:
        """Variables without which it is nobody's names."""
        told = {names.DATABASE: self.database, names.AGENT: self.agent, names.ATTEMPT: self.attempt}
        return [name for name, value in told.items() if not value]


def _may_be_secret(name: str) -> bool:
    return any(word in name.upper() for word in _SECRET_WORDS)


class Connection:
    """One client on standard input and output."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.output = Output(1)
        self._input = Input(0, self.output)

    def serve(self) -> int:
        """Until the end of the input."""
        while True:
            message, is_over = self.next()
            if is_over:
                return 0
            if message is None:
                continue
            if message.method == "tools/call" and message.id is not None:
                from maos.mcp.dispatch import Dispatcher

                return Dispatcher(self).serve(message)
            self.respond(message)

    def next(self) -> tuple[Message | None, bool]:
        """The next message, and whether the input is over; what is no message is answered here."""
        try:
            line = self._input.line()
            if line is None:
                return None, True
            message = parse(line)
            if message is not None:
                message.seen = self._input.seen
            return message, False
        except LineTooLong:
            self.output.send(error(Refused(UNREADABLE, "a line is longer than is taken")))
        except Refused as refused:
            self.output.send(error(refused))
        return None, False

    def respond(self, message: Message) -> None:
        """Answer anything but the call of a tool."""
        if message.id is None:
            return  # a notification; none of them changes what we would answer
        try:
            answer = result(message.id, self._answer(message))
        except Refused as refused:
            refused.id = message.id
            answer = error(refused)
        self.output.send(answer)

    def _answer(self, message: Message) -> dict[str, Any]:
        if message.method == "initialize":
            asked = message.params.get("protocolVersion")
            return {
                "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": names.NAME, "version": __version__},
                "instructions": tools.INSTRUCTIONS,
            }
        if message.method == "ping":
            return {}
        if message.method == "tools/list":
            return {"tools": tools.offered(in_a_run=bool(self.identity.run))}
        raise Refused(NO_METHOD, f"there is no method {message.method!r:.100}")


def main(environment: Mapping[str, str] | None = None) -> int:
    """Serve the agent that the variables name, until its program closes our input."""
    identity = Identity(os.environ if environment is None else environment)
    missing = identity.missing()
    if missing:
        sys.stderr.write(
            f"maos mcp: {', '.join(missing)} not set (an agent's program starts this, and maos tells it whose it is)\n"
        )
        return 2
    try:
        return Connection(identity).serve()
    except KeyboardInterrupt:  # how some programs end their servers
        return 0
