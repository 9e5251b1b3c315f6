"""The MCP server of one agent up to its first tool call: initializes the connection and lists the tools.

Nothing heavy is loaded before a tool is called: every agent pays for the start of its server, whether it calls a tool
or not.
"""

from __future__ import annotations

import os
import sys

from maos import __version__
from maos.mcp import tools
from maos.mcp.protocol import NO_METHOD, Refused, RpcChannel, RpcMessage
from maos.model import tool_calls as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Revisions of the protocol that begin with `initialize`, the newest first; for these tools they are all the same."""


def main(environment: Mapping[str, str] | None = None) -> int:
    """Serve the agent that the variables name, until its program closes the input."""
    environment = os.environ if environment is None else environment
    missing = [name for name in (names.DATABASE, names.ATTEMPT) if not environment.get(name)]
    if missing:
        sys.stderr.write(f"maos mcp: {', '.join(missing)} not set (agents' programs start this with these variables)\n")
        return 2
    try:
        serve(RpcChannel(), environment)
    except KeyboardInterrupt:  # how some programs end their servers
        pass
    return 0


def serve(channel: RpcChannel, environment: Mapping[str, str]) -> None:
    """Answer requests; from the first tool call on, a session answers them."""
    in_a_run = bool(environment.get(names.RUN))

    def respond(message: RpcMessage) -> None:
        if message.id is None:
            return  # a notification; none of them changes a later answer
        try:
            channel.send_result(message.id, _result(message, in_a_run))
        except Refused as refused:
            refused.id = message.id
            channel.send_error(refused)

    for message in channel.messages():
        if message.method == "tools/call" and message.id is not None:
            import asyncio

            from maos.mcp.session import ToolSession

            asyncio.run(ToolSession(channel, environment, respond).serve(message))
            return
        respond(message)


def _result(message: RpcMessage, in_a_run: bool) -> dict[str, Any]:
    """The result of a request that is not a tool call."""
    if message.method == "initialize":
        version = message.params.get("protocolVersion")
        return {
            "protocolVersion": version if version in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": names.NAME, "version": __version__},
            "instructions": tools.INSTRUCTIONS,
        }
    if message.method == "ping":
        return {}
    if message.method == "tools/list":
        return {"tools": [each for name, each in tools.BY_NAME.items() if in_a_run or name not in tools.OF_RUNS]}
    raise Refused(NO_METHOD, f"there is no method {message.method!r:.100}")
