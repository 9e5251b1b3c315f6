"""A folder to work in, agents that are started for a test, and nobody left when it is over."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from maos import settings
from maos.holder import process_tree
from maos.holder.client import end, end_stray, holders, strays
from tests.cli.conftest import WAIT_S_MAX, Invoke

TICKING = "i=0; while [ ! -e enough ]; do i=$((i+1)); echo line $i; sleep 0.02; done; echo last $i"
"""An agent that counts until a file tells it that it is enough."""


def wait_until(condition: Callable[[], Any], what: str = "") -> Any:
    """What a condition gives as soon as it gives something."""
    until = time.monotonic() + WAIT_S_MAX
    while not (found := condition()):
        assert time.monotonic() < until, f"it never happened: {what or condition}"
        time.sleep(0.02)
    return found


@contextmanager
def hangups(handler: signal.Handlers) -> Iterator[None]:
    """Programs started meanwhile begin with this disposition of SIGHUP, whatever the tests were started with."""
    before = signal.signal(signal.SIGHUP, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


class Started:
    """A command in the background, with its output in files."""

    def __init__(self, folder: Path, args: tuple[str, ...], on_hangup: signal.Handlers) -> None:
        self._out, self._err = folder / "stdout", folder / "stderr"
        with self._out.open("wb") as out, self._err.open("wb") as err, hangups(on_hangup):
            self.process = subprocess.Popen(
                [sys.executable, "-m", "maos", *args], stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )

    @property
    def stdout(self) -> str:
        return self._out.read_text()

    @property
    def stderr(self) -> str:
        return self._err.read_text()

    def wait_for(self, text: str) -> None:
        """Return when something was printed."""
        wait_until(lambda: text in self.stdout + self.stderr or self.process.poll() is not None, text)
        assert text in self.stdout + self.stderr

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """The exit code, when it has ended by itself."""
        return self.process.wait(WAIT_S_MAX)


Start = Callable[..., Started]


class Done(NamedTuple):
    """A command that was called, as if it had been a process."""

    stdout: str
    stderr: str
    returncode: int


Call = Callable[..., Done]


class Agents:
    """What the command line says of agents."""

    def __init__(self, run: Call) -> None:
        self._run = run

    def listed(self) -> dict[str, dict[str, Any]]:
        found = json.loads(self._run("agent", "list", "--all", "--json").stdout)
        return {each["agent"]: each for each in found["agents"]}

    def status(self, agent: str) -> str:
        return str(self.listed()[agent]["status"])

    def shown(self, agent: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._run("agent", "show", agent, "--json").stdout)
        return found

    def log(self, agent: str) -> list[str]:
        """Its lines as they were recorded."""
        events = [json.loads(line) for line in self._run("agent", "logs", agent, "--json").stdout.splitlines()]
        return [each["text"] for each in events if each["kind"] == "line"]


@pytest.fixture
def here(no_db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder that commands are called in; agents that still run there afterwards are ended."""
    folder, home = tmp_path / "work", tmp_path / "home"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MAOS_HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    yield folder
    for root in home.glob("*/holders"):
        asyncio.run(_end_everybody(root))


async def _end_everybody(root: Path) -> None:
    if root.is_dir():
        for each in holders(root):
            await end(each)
        for stray in strays(root):
            await end_stray(stray)


@pytest.fixture
def start(here: Path, tmp_path: Path) -> Iterator[Start]:
    """Start a command in the background; with `on_hangup=signal.SIG_IGN`, as `nohup` does."""
    started: list[Started] = []

    def begin(*args: str, on_hangup: signal.Handlers = signal.SIG_DFL) -> Started:
        folder = tmp_path / f"command-{len(started)}"
        folder.mkdir()
        started.append(Started(folder, args, on_hangup))
        return started[-1]

    yield begin
    for each in started:
        each.process.kill()
        each.process.wait()


@pytest.fixture
def call(here: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Call a command in this process, which is quicker; agents have processes of their own all the same."""

    def call(*args: str, stdin: str | None = None, **env: str) -> Done:
        with monkeypatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            result = invoke(*args, stdin=stdin)
        return Done(result.stdout, result.stderr, result.exit_code)

    return call


@pytest.fixture
def agents(call: Call) -> Agents:
    return Agents(call)


def enough(folder: Path) -> None:
    """Let the agents that tick end."""
    (folder / "enough").touch()


def holder_of(attempt: str) -> int:
    """The process that holds an attempt."""
    return next(each.pid for each in holders(settings.folder_of("maos.db") / "holders") if each.attempt == attempt)


def lives(pid: int) -> bool:
    seen = process_tree.look(pid)
    return seen is not None and seen.state not in "ZX"
