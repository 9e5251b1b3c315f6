"""The messages of the protocol: JSON-RPC 2.0, one message a line. Whatever comes in is believed to be hostile."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
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


class RpcMessage:
    """A request, or a notification when it has no id."""

    __slots__ = ("id", "method", "params", "seen")

    def __init__(self, method: str, params: dict[str, Any], id: Id | None = None) -> None:
        self.method = method
        self.params = params
        self.id = id
        self.seen = 0
        """How many messages of ours had been sent before it came."""


def parse(line: bytes) -> RpcMessage | None:
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
    return RpcMessage(method, params, id)


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
