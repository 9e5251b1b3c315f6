"""What tests of the real Claude Code need: a model that follows a script, an order, and tools that can be watched."""

import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from maos.agents.claude.dialect import Claude
from maos.agents.contract import LaunchOrder, McpServer, Reply
from maos_testing.model_stub import ModelStub, ScriptStep, TokenCount, ToolCall
from tests.agents.driving import Run, an_order, started

KEY = "key-of-the-test"
PATH = ":".join(folder for folder in os.environ["PATH"].split(":") if not Path(folder, "claude").exists())
"""Without a Claude Code of the person who runs the tests: the pinned one is tested."""
SESSION = "6f1c0b34-3c4e-4c0e-9a53-5f0d0d4f7a10"


PRICES = {"claude-opus-5-5": (4, 20, 0.2, 5)}
"""Dollars for a million tokens: in, out, from and to a cache. It is the default of the pinned Claude Code."""


def usd(tokens: TokenCount, model: str = "claude-opus-5-5") -> float:
    """What an answer of a model costs."""
    counts = (tokens.input, tokens.output, tokens.cache_read, tokens.cache_write)
    return sum(count * price for count, price in zip(counts, PRICES[model], strict=True)) / 1_000_000


def charged(stub: ModelStub) -> float:
    """What a provider would charge for all that the model has answered."""
    return sum(usd(each.tokens, each.model) for each in stub.charges)


def bash(command: str, **more: Any) -> ToolCall:
    """A call of the shell."""
    return ToolCall(name="Bash", input={"command": command, "description": "a step of the test", **more})


def environment(stub: ModelStub, **more: str) -> dict[str, str]:
    """The engine's environment, as far as the agent's program may see it."""
    return {"PATH": PATH, "ANTHROPIC_BASE_URL": stub.url, "ANTHROPIC_API_KEY": KEY, **more}


@contextlib.asynccontextmanager
async def agent(
    stub: ModelStub, folder: Path, task: str, *, variables: Mapping[str, str] | None = None, **order: Any
) -> AsyncIterator[Run]:
    """Claude Code at work on a task; `forgetful` is the driver's."""
    forgetful = order.pop("forgetful", False)
    given: LaunchOrder = an_order(folder, task=task, **order)
    async with started(Claude(), given, environment(stub, **(variables or {})), forgetful=forgetful) as run:
        yield run


def interrupt(id: str) -> Reply:
    """What makes it stop what it is doing and take another message."""
    request = {"type": "control_request", "request_id": id, "request": {"subtype": "interrupt"}}
    return Reply(id, json.dumps(request).encode() + b"\n")


async def turn(run: Run, count: int = 1) -> dict[str, Any]:
    """The end of the n-th turn."""
    return (await run.until_fact("turn_ended", count))[count - 1]


class SlowTool:
    """A command that runs until it is let go, and leaves traces of having run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        waiting = f"until [ -e {folder}/go ]; do sleep 0.05; done"
        self.call = bash(f"echo $$ > {folder}/pid; echo ran >> {folder}/runs; {waiting}; echo let go")

    @property
    def runs(self) -> int:
        """How often it was started."""
        return len(self._read("runs").split())

    @property
    def is_running(self) -> bool:
        """Whether it has begun."""
        return bool(self._read("pid").strip() and self.runs)

    @property
    def still_runs(self) -> bool:
        """Whether its process is there."""
        return Path(f"/proc/{self._read('pid').strip()}").exists()

    def let_go(self) -> None:
        """Let it end."""
        (self._folder / "go").touch()

    def end(self) -> None:
        """Kill it if it is still there: it has a session of its own, and outlives a program that was killed."""
        if pid := self._read("pid").strip():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def _read(self, name: str) -> str:
        path = self._folder / name
        return path.read_text() if path.exists() else ""


def mcp_server() -> McpServer:
    """A server with one tool, `note`."""
    return McpServer(
        "notes", [sys.executable, str(Path(__file__).with_name("mcp_server.py"))], {"NOTE_PREFIX": "noted:"}
    )


def texts(steps: Sequence[str]) -> list[ScriptStep]:
    """A script of plain replies."""
    return [ScriptStep(text=each) for each in steps]
