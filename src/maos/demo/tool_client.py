"""How a plain script talks to maos: it starts `maos mcp` and exchanges lines of JSON with it, as agents do."""

from __future__ import annotations

import json
import re
import subprocess
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_QUOTED = re.compile(r"Message (?P<id>\S+) from (?P<sender>\S+) \(")


class ToolClient:
    """The tools of one agent. Whose they are is in the variables that the engine gave it."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-P", "-m", "maos.mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._number = 0
        self._ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "demo"}})

    def call(self, tool: str, **arguments: Any) -> str:
        """Use a tool; what it answers."""
        result = self._ask("tools/call", {"name": tool, "arguments": arguments})
        text: str = result["content"][0]["text"]
        if result.get("isError"):
            raise RuntimeError(f"{tool}: {text}")
        return text

    def close(self) -> None:
        """Ask for nothing more."""
        self._server.communicate(timeout=30)

    def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._number += 1
        self._server.stdin.write(
            json.dumps({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}) + "\n"
        )
        self._server.stdin.flush()
        line = self._server.stdout.readline()
        if not line:
            raise RuntimeError(f"{method}: the door is closed")
        answer: dict[str, Any] = json.loads(line)
        if "result" not in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result


def messages(told: str) -> list[dict[str, str]]:
    """What `read_messages` told, taken apart: words of other agents are quoted, a person's are not."""
    found = []
    for block in told.split("\n\n") if told != "no messages" else ():
        head, _, rest = block.partition("\n")
        quoted = _QUOTED.match(head)
        if quoted is None:
            found.append({"got": "", "from": "person", "text": block})
            continue
        lines = [line.removeprefix("> ") for line in rest.splitlines()]
        text = "\n".join(line for line in lines if not line.startswith("metadata: "))
        found.append({"got": quoted["id"], "from": quoted["sender"], "text": text})
    return found
