"""Doors on a journal of the test's own: an agent's program is played by the official client."""

import asyncio
import os
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

import maos
from maos.app import Maos
from maos.engine.attempt_spec import ToolServers
from maos.model.plan import Plan, Task
from maos.model.run import Run
from maos.settings import DatabaseName
from tests.attempts import plan_attempt

PASSED_ON = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
"""So that what runs in a door of a test is measured."""


class Said(str):
    """What a tool answered."""

    failed: bool = False


class Agent:
    """An agent's program as far as its door sees it."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: Any) -> Said:
        """Call a tool and look at what it says."""
        return said(await self.client.call_tool(tool, arguments))

    async def ping(self) -> None:
        """Ask whether the door is there."""
        with warnings.catch_warnings(action="ignore"):  # only the newest revision is without it
            await self.client.send_ping()


def said(result: Any) -> Said:
    text = Said("\n".join(each.text for each in result.content))
    text.failed = bool(result.is_error)
    return text


class World:
    """A journal, a run of some tasks in it, and doors for their agents."""

    def __init__(self, m: Maos, path: Path) -> None:
        self.m = m
        self.path = path
        self.runs = m.runs
        self.run: Run

    async def begin(self, *tasks: str) -> None:
        self.run = await self.runs.create(Plan(tasks=[Task(name=each, task=f"do {each}") for each in tasks]))

    async def variables(self, task: str, *, number: int = 1, run: bool = True) -> dict[str, str]:
        """What the engine tells a door."""
        agent, of = (f"{self.run.id}.{task}", self.run.id) if run else (task, "")
        proof = await plan_attempt(self.m.journal, agent, number, run=of)
        server = ToolServers(DatabaseName(str(self.path))).server(f"{agent}.{number}", run=of)
        passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        return {**passed_on, **server.env, **proof}

    @asynccontextmanager
    async def agent(
        self, task: str, *, number: int = 1, run: bool = True, mode: Any = "auto", **variables: str
    ) -> AsyncIterator[Agent]:
        """The agent of a task, at its door."""
        env = {**await self.variables(task, number=number, run=run), **variables}
        argv = ToolServers(DatabaseName("")).server("").argv
        server = StdioServerParameters(command=argv[0], args=list(argv[1:]), env=env, cwd=self.path.parent)
        with (self.path.parent / "errors.txt").open("a") as errors:
            async with Client(stdio_client(server, errlog=errors), mode=mode) as client:
                yield Agent(client)

    async def events(self, stream: str, type_: str = "") -> list[dict[str, Any]]:
        """The data of the events of a stream."""
        found = [record async for record in self.m.journal.read(stream)]
        return [dict(record.data) for record in found if not type_ or record.type == type_]

    def errors(self) -> str:
        """What doors wrote to their standard error."""
        path = self.path.parent / "errors.txt"
        return path.read_text() if path.exists() else ""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A run of two tasks, writer and reader; nobody carries it out."""
    path = tmp_path / "maos.db"
    async with maos.open(path, home=tmp_path / "home") as m:
        made = World(m, path)
        await made.begin("writer", "reader")
        yield made
        assert "Traceback" not in made.errors()


@pytest.fixture
def wait_for() -> Callable[[Callable[[], Any]], Any]:
    """Wait until something is so."""

    async def wait(condition: Callable[[], Any], timeout_s: float = 30.0) -> Any:
        async with asyncio.timeout(timeout_s):
            while not (found := await condition()):
                await asyncio.sleep(0.05)
            return found

    return wait
