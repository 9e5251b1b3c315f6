"""A real server process of `maos serve`, and tokens of each role."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import maos
from maos.model.access import Role
from maos.model.run import Run

WAIT_S_MAX = 60
MAOS = [sys.executable, "-P", "-m", "maos"]


class ServerProcess:
    """`maos serve` in a folder of its own, and how it is reached."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "XDG_CONFIG_HOME": str(home / "config")}
        self.database = folder / "maos.db"
        self.log = home / "serve.log"
        """Its standard error: a file, because a pipe that is not read would make the server wait."""
        self.url = self.code = ""
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def netloc(self) -> str:
        return self.url.removeprefix("http://")

    def start(self, *arguments: str, port: int = 0) -> None:
        """Start it, and wait until it accepts requests."""
        command = [*MAOS, "--db", str(self.database), "serve", "--json", "--port", str(port), *arguments]
        self.log.parent.mkdir(exist_ok=True)
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(self.log.read_text())
        told = json.loads(line)
        self.url, self.code = told["url"] or "", (told["sign_in"] or "").partition("code=")[2]

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.stop(signal.SIGKILL)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Stop it; its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        process.communicate(timeout=WAIT_S_MAX)
        return process.returncode

    def maos(self, *arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command of maos on the same database."""
        database = [] if environment and "MAOS_URL" in environment else ["--db", str(self.database)]
        return subprocess.run(
            [*MAOS, *database, *arguments], cwd=self.folder, env={**self.environment, **(environment or {})},
            capture_output=True, text=True, timeout=WAIT_S_MAX, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def wait_for_run(self, id: str, holds: Callable[[Run], bool] = lambda run: not run.is_open) -> None:
        """Wait until something holds of a run; by default, that it has ended."""

        async def wait() -> None:
            async with maos.open(self.database) as m:
                while not holds(await m.runs.get(id)):
                    await asyncio.sleep(0.05)

        asyncio.run(asyncio.wait_for(wait(), WAIT_S_MAX))

    def tokens(self) -> dict[str, str]:
        """A token of each role, made in this process."""

        async def made() -> dict[str, str]:
            async with maos.open(self.database) as m:
                return {role: (await m.access.create_token(f"the-{role}", role))[1] for role in Role}

        return asyncio.run(made())

    def client(self, token: str = "", **options: Any) -> httpx2.Client:
        """An HTTP client, with a token or without one."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=WAIT_S_MAX, trust_env=False, **options)


def write_plan(folder: Path, *tasks: dict[str, Any]) -> Path:
    """A plan file with commands."""
    path = folder / "plan.json"
    path.write_text(json.dumps({"tasks": list(tasks)}))
    return path


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[Callable[[], ServerProcess]]:
    """A server of this test's own; it is not started yet."""
    made: list[ServerProcess] = []

    def make() -> ServerProcess:
        folder = tmp_path / "work"
        folder.mkdir(exist_ok=True)
        made.append(ServerProcess(folder, tmp_path / "home"))
        return made[-1]

    yield make
    for each in made:
        each.kill()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that tests share which leave it as it is; it has an agent with a state, and a run that has ended."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "work").mkdir()
    made = ServerProcess(folder / "work", folder / "home")
    asyncio.run(_fill(made))
    made.start()
    yield made
    made.stop()


async def _fill(server: ServerProcess) -> None:
    async with maos.open(server.database) as m:
        await m.state.create("reviewer", {"status": "idle"})
        await m.state.update("reviewer", {"status": "busy"})
        plan = {"tasks": [{"name": "hello", "command": ["sh", "-c", "echo '<script>alert(1)</script>'"]}]}
        await m.runs.start(plan, folder=server.folder, options={"in_place": True}, id="r-done")
        await m.runs.execute("r-done")


@pytest.fixture(scope="session")
def tokens(server: ServerProcess) -> dict[str, str]:
    """A token of each role."""
    return server.tokens()
