"""The command line in processes of its own, in a repository, with a model of the test's own and a clock to be moved."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import maos
from maos.app import Maos
from maos.model.attempt import Attempt
from maos.model.run import Run, agent_name
from maos_testing.model_stub import ModelStub
from tests.engine.conftest import processes_below

GIT = "git -c user.name=n -c user.email=n@localhost"
DAY_S = 86_400
WAIT_S_MAX = 60.0

_MOVED_CLOCK = """
import os, time
by_s = int(os.environ["TEST_CLOCK_MOVED_S"])
now, now_ns = time.time, time.time_ns
time.time = lambda: now() + by_s
time.time_ns = lambda: now_ns() + by_s * 10**9
"""
"""Imported by Python before anything else: whoever asks for the time of day is told another one."""


async def until(
    condition: Callable[[], Awaitable[Any]], *, wait_s_max: float = WAIT_S_MAX, every_s: float = 0.02
) -> Any:
    """What a condition gives as soon as it gives something."""
    async with asyncio.timeout(wait_s_max):
        while not (found := await condition()):
            await asyncio.sleep(every_s)
        return found


class Commands:
    """The command line as a person has it: a folder, a home, and an environment without anything of this machine."""

    def __init__(self, root: Path, stub: ModelStub | None = None, **more: str) -> None:
        self.root = root
        self._url = stub.url if stub is not None else ""
        self._more = more
        self._started: list[asyncio.subprocess.Process] = []

    @property
    def folder(self) -> Path:
        """The repository that is worked on; the database is in it."""
        return self.root / "work"

    @property
    def home(self) -> Path:
        """Where agents have their files."""
        return self.root / "home"

    async def prepare(self) -> None:
        """Make the repository, and the module that moves the clock."""
        self.folder.mkdir(parents=True)
        (self.root / "clock").mkdir()
        (self.root / "clock" / "sitecustomize.py").write_text(_MOVED_CLOCK)
        (self.folder / ".gitignore").write_text("maos.db*\n")
        for command in ("init -q", "add .", "commit -q -m first"):
            done = await asyncio.create_subprocess_shell(f"{GIT} {command}", cwd=self.folder)
            assert await done.wait() == 0

    def move(self, root: Path) -> None:
        """Put everything somewhere else."""
        root.parent.mkdir(parents=True, exist_ok=True)
        self.root.rename(root)
        self.root = root

    def _environment(self, days: int) -> dict[str, str]:
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.root / "user"), "MAOS_HOME": str(self.home), "LANG": "C.UTF-8",
            "GIT_CONFIG_GLOBAL": os.devnull, **self._more,
        }  # fmt: skip
        if self._url:
            environment |= {"ANTHROPIC_BASE_URL": self._url, "ANTHROPIC_API_KEY": "key-of-the-test"}
        if days:
            environment |= {"PYTHONPATH": str(self.root / "clock"), "TEST_CLOCK_MOVED_S": str(days * DAY_S)}
        return environment

    async def start(self, *args: str, days: int = 0) -> asyncio.subprocess.Process:
        """Begin a command, perhaps some days later than it is."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "maos", *args, cwd=self.folder, env=self._environment(days),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self._started.append(process)
        return process

    async def call(self, *args: str, days: int = 0) -> tuple[int, str, str]:
        """The exit code of a command, and what it printed."""
        process = await self.start(*args, days=days)
        async with asyncio.timeout(WAIT_S_MAX):
            out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async def run(self, *args: str, days: int = 0) -> list[dict[str, Any]]:
        """What a command that goes well says as JSON."""
        code, out, err = await self.call(*args, "--json", days=days)
        assert code == 0, err + out
        return [json.loads(line) for line in out.splitlines()]

    def plan(self, tasks: list[Mapping[str, Any]]) -> str:
        """A plan in a file."""
        path = self.root / "plan.json"
        path.write_text(json.dumps({"request": "do it", "tasks": tasks}))
        return str(path)

    @contextlib.asynccontextmanager
    async def look(self) -> Any:
        """The database, for the test itself."""
        async with maos.open(self.folder / "maos.db", home=self.home) as m:
            yield m

    async def runs(self) -> list[Run]:
        """All runs, if there is a database."""
        if not (self.folder / "maos.db").exists():
            return []
        async with self.look() as m:
            return [run async for run in m.runs.all()]

    async def attempt(self, task: str) -> Attempt | None:
        """The newest attempt of the agent of a task of the only run, if it has begun."""
        for run in await self.runs():
            async with self.look() as m:
                with contextlib.suppress(maos.NotFound):
                    found: Attempt = await m.agents.get(agent_name(run.id, task))
                    return found
        return None

    def kill_everybody(self) -> None:
        """End agents and holders, and whoever else has to do with them."""
        for pid in processes_below(self.root):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def nobody_is_left(self) -> bool:
        """Whether all agents and holders have ended."""
        return not processes_below(self.root)

    async def close(self) -> None:
        """Leave nobody behind."""
        for process in self._started:
            if process.returncode is None:
                process.kill()
                await process.communicate()
        self.kill_everybody()


async def facts(m: Maos, agent: str, kind: str) -> list[dict[str, Any]]:
    """What an agent said, of one kind, over all its attempts."""
    found = []
    async for record in m.agents.records(agent):
        if record.type == "attempt_output":
            found += [each for each in record.data["facts"] if each["kind"] == kind]
    return found
