"""Conversations: typed at a terminal, or line by line through a pipe."""

import json
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.agent.conftest import agents, call, here, start, wait_until  # noqa: F401
from tests.cli.conftest import WAIT_S_MAX, terminal  # noqa: F401
from tests.cli.orchestrate.conftest import plan, repository  # noqa: F401

AGENT = Path(__file__).with_name("planning_agent.py")


class Chat:
    """`maos chat --json` with a script that reacts."""

    def __init__(self, *args: str) -> None:
        command = [sys.executable, "-m", "maos", "chat", "--json", *args]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.seen: list[dict[str, Any]] = []
        self.stderr = ""
        self._threads = [threading.Thread(target=self._read), threading.Thread(target=self._read_errors)]
        for each in self._threads:
            each.start()

    def say(self, *lines: str) -> None:
        assert self.process.stdin is not None
        for line in lines:
            self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait_for(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The first document like this."""

        def found() -> dict[str, Any] | None:
            for each in list(self.seen):
                if each["kind"] == kind and all(each.get(name) == value for name, value in fields.items()):
                    return each
            assert self.process.poll() is None or any(t.is_alive() for t in self._threads), (self.seen, self.stderr)
            return None

        result: dict[str, Any] = wait_until(found, f"{kind} {fields} in {self.seen} {self.stderr}")
        return result

    def end(self) -> int:
        """Say nothing more; the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.ended()

    def ended(self) -> int:
        code = self.process.wait(WAIT_S_MAX)
        for each in self._threads:
            each.join()
        return code

    def kinds(self) -> list[str]:
        return [each["kind"] for each in self.seen]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for each in self._threads:
            each.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.seen.append(json.loads(line))

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.stderr += line


Talk = Callable[..., Chat]


@pytest.fixture
def kind(repository: Path) -> str:  # noqa: F811
    """An agent that plans."""
    return f"acp:{shlex.join([sys.executable, str(AGENT), str(repository)])}"


@pytest.fixture
def talk(repository: Path) -> Iterator[Talk]:  # noqa: F811
    """Begin a conversation."""
    begun: list[Chat] = []

    def begin(*args: str) -> Chat:
        begun.append(Chat(*args))
        return begun[-1]

    yield begin
    for each in begun:
        each.close()


def heard(folder: Path) -> str:
    """What the agents were told."""
    path = folder / "heard"
    return path.read_text() if path.exists() else ""
