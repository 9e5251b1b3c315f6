"""Runs that an engine in another process carries out, as the test lets it."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.agent.conftest import Call, agents, call, here, start, wait_until  # noqa: F401
from tests.cli.conftest import WAIT_S_MAX

ENGINE = Path(__file__).with_name("engine.py")
SHOP: list[dict[str, Any]] = [
    {"name": "api", "task": "write the api"},
    {"name": "page", "task": "write the page", "needs": ["api"]},
]


class Engine:
    """A run that is carried out until the test kills the engine or lets it end."""

    def __init__(self, folder: Path, tasks: list[dict[str, Any]], run: str) -> None:
        self._folder = folder
        args = [str(folder / "maos.db"), json.dumps({"tasks": tasks}), *([run] if run else [])]
        self.process = subprocess.Popen(
            [sys.executable, str(ENGINE), *args], cwd=folder, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.run = self.process.stdout.readline().strip()
        assert self.run

    def end(self, task: str, said: str = "done") -> None:
        """Let a task end: with a result, or after `!` with a failure."""
        new = self._folder / f"{task}.new"
        new.write_text(said)
        new.rename(self._folder / f"{task}.end")

    def kill(self) -> None:
        """End the engine as a power cut would."""
        self.process.kill()
        self.process.wait()

    def wait(self) -> str:
        """What became of the run, when the engine has ended by itself."""
        assert self.process.stdout is not None
        status = self.process.stdout.readline().strip()
        assert self.process.wait(WAIT_S_MAX) == 0
        return status

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


Begin = Callable[..., Engine]


@pytest.fixture
def begin(here: Path) -> Iterator[Begin]:  # noqa: F811
    """Begin a run in a process of its own, or go on with one."""
    begun: list[Engine] = []

    def begin(tasks: list[dict[str, Any]] | None = None, *, run: str = "") -> Engine:
        begun.append(Engine(here, tasks or SHOP, run))
        return begun[-1]

    yield begin
    for each in begun:
        each.close()


@pytest.fixture
def repository(here: Path) -> Path:  # noqa: F811
    """The folder as a git repository with one commit."""
    for args in (["init", "-q"], ["add", "-A"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e@e", *args], cwd=here, check=True)
    return here


Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(call: Call) -> Ask:  # noqa: F811
    """What a command says as JSON."""

    def ask(*args: str) -> dict[str, Any]:
        done = call(*args, "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return ask


@pytest.fixture
def until(ask: Ask) -> Callable[[str, str], dict[str, Any]]:
    """Wait until a run is in a state; what is said of it then."""

    def until(run: str, state: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            found = ask("status", run, "--tasks")
            return found if found["state"] == state else None

        found: dict[str, Any] = wait_until(look, f"{run} is {state}")
        return found

    return until


Until = Callable[[str, str], dict[str, Any]]
