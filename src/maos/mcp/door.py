"""The loop in front: it greets the client and shows the tools. At the first call of a tool the rest is loaded."""

from __future__ import annotations

import os
import sys

from maos import __version__
from maos.mcp import protocol, tools
from maos.mcp.identity import AgentIdentity
from maos.mcp.protocol import Refused, RpcMessage
from maos.mcp.wire import Input, LineTooLong, Output
from maos.model import tool_calls as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def main(environment: Mapping[str, str] | None = None) -> int:
    """Serve the agent that the variables name, until its program closes our input."""
    identity = AgentIdentity(os.environ if environment is None else environment)
    missing = identity.missing()
    if missing:
        sys.stderr.write(
            f"maos mcp: {', '.join(missing)} not set (an agent's program starts this, and maos tells it whose it is)\n"
        )
        return 2
    try:
        return Door(identity).serve()
    except KeyboardInterrupt:  # how some programs end their servers
        return 0


class Door:
    """One client on standard input and output."""

    def __init__(self, identity: AgentIdentity) -> None:
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
                from maos.mcp.desk import Desk

                return Desk(self).serve(message)
            self.respond(message)

    def next(self) -> tuple[RpcMessage | None, bool]:
        """The next message, and whether the input is over; what is no message is answered here."""
        try:
            line = self._input.line()
            if line is None:
                return None, True
            message = protocol.parse(line)
            if message is not None:
                message.seen = self._input.seen
            return message, False
        except LineTooLong:
            self.output.send(protocol.error(Refused(protocol.UNREADABLE, "a line is longer than is taken")))
        except Refused as refused:
            self.output.send(protocol.error(refused))
        return None, False

    def respond(self, message: RpcMessage) -> None:
        """Answer anything but the call of a tool."""
        if message.id is None:
            return  # a notification; none of them changes what we would answer
        try:
            answer = protocol.result(message.id, self._answer(message))
        except Refused as refused:
            refused.id = message.id
            answer = protocol.error(refused)
        self.output.send(answer)

    def _answer(self, message: RpcMessage) -> dict[str, Any]:
        if message.method == "initialize":
            asked = message.params.get("protocolVersion")
            return {
                "protocolVersion": asked if asked in protocol.VERSIONS else protocol.VERSIONS[0],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": names.NAME, "version": __version__},
                "instructions": tools.INSTRUCTIONS,
            }
        if message.method == "ping":
            return {}
        if message.method == "tools/list":
            return {"tools": tools.offered(in_a_run=bool(self.identity.run))}
        raise Refused(protocol.NO_METHOD, f"there is no method {message.method!r:.100}")
