"""A door without a client that minds its manners: lines go in, lines come out, and either may be anything."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from maos.engine.attempt_spec import ARGV

ANSWER_S_MAX = 60.0


class Gone(Exception):
    """The door has ended."""


class RawDoor:
    """A process and its pipes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._rest = b""
        self._ids = 0

    def write(self, data: bytes) -> None:
        """Put bytes into its input."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Gone from None

    def send(self, method: str, params: Any = None, *, id: Any = None) -> Any:
        """Send a message."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        message |= {} if params is None else {"params": params}
        message |= {} if id is None else {"id": id}
        self.write(json.dumps(message).encode() + b"\n")

    def read(self, timeout_s: float = ANSWER_S_MAX) -> dict[str, Any]:
        """The next message that it sends."""
        assert self.process.stdout is not None
        until_s = time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, until_s - time.monotonic()))
            if not ready:
                raise TimeoutError(f"nothing within {timeout_s} s")
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                raise Gone
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, method: str, params: Any = None) -> dict[str, Any]:
        """A request and its answer."""
        self._ids += 1
        self.send(method, params, id=self._ids)
        answer = self.read()
        assert answer["id"] == self._ids
        return answer

    def call(self, tool: str, **arguments: Any) -> tuple[str, bool]:
        """What a tool says, and whether it failed."""
        answer = self.ask("tools/call", {"name": tool, "arguments": arguments})
        assert "result" in answer, answer
        result = answer["result"]
        return result["content"][0]["text"], result["isError"]

    def end(self) -> int:
        """Close its input and wait for its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(timeout=ANSWER_S_MAX)


@contextmanager
def raw_door(
    variables: Mapping[str, str], *, cwd: Any = "/", greet: bool = True, argv: Sequence[str] = ARGV[1:]
) -> Iterator[RawDoor]:
    """A door that is killed at the end if it is still there."""
    process = subprocess.Popen(
        [sys.executable, *argv],
        env={"PATH": os.environ["PATH"], **variables},
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    door = RawDoor(process)
    try:
        if greet:
            about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
            door.ask("initialize", about)
            door.send("notifications/initialized")
        yield door
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                pass  # what was written and never read
