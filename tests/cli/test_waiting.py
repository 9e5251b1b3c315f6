"""A PostgreSQL server that is away: what executes or follows something waits with one line, the rest gives up soon."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from maos_testing.postgres import PostgresServer

WAIT_S_MAX = 60
LIMIT = {"MAOS_DATABASE_WAIT_S": "0.3"}
"""Far less than the server is away for."""
WAITING = re.compile(r"^note: waiting for the database since \d\d:\d\d:\d\d: postgresql://", re.MULTILINE)
BACK = re.compile(r"^note: the database is back after ", re.MULTILINE)
FLOW = """
import pathlib, time
import maos

@maos.step(idempotent=True)
def wait(name: str) -> str:
    pathlib.Path("step-began").touch()
    while not pathlib.Path(name).exists():
        time.sleep(0.02)
    return "seen"

@maos.workflow
async def watch(name: str) -> str:
    return await wait(name)
"""
PLAN = """
tasks:
  - name: first
    command: [sh, -c, 'touch task-began; until [ -e go ]; do sleep 0.05; done; echo first']
  - name: second
    needs: [first]
    command: [echo, second]
"""
Begin = Callable[..., "Command"]


class Command:
    """A command of maos in a process of its own; what it prints is kept in a file."""

    def __init__(self, folder: Path, number: int, args: tuple[str, ...], environment: dict[str, str]) -> None:
        self._file = folder / f"printed-{number}"
        with self._file.open("w") as printed:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "maos", *args],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
            )

    @property
    def printed(self) -> str:
        return self._file.read_text()

    def wait_for(self, pattern: str | re.Pattern[str]) -> None:
        wait_until(lambda: bool(re.search(pattern, self.printed)), lambda: self.printed)

    def end(self) -> int:
        return self.process.wait(WAIT_S_MAX)


def wait_until(holds: Callable[[], bool], shown: Callable[[], str]) -> None:
    until_s = time.monotonic() + WAIT_S_MAX
    while not holds():
        assert time.monotonic() < until_s, shown()
        time.sleep(0.02)


@pytest.fixture
def begin(tmp_path: Path, postgres_url: str) -> Iterator[Begin]:
    """Start a command on the server."""
    started: list[Command] = []
    home = {"HOME": str(tmp_path), "MAOS_HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "XDG_STATE_HOME": str(tmp_path / "state"), "MAOS_DB": postgres_url, "LANG": "C.UTF-8"}  # fmt: skip
    (tmp_path / "plan.yaml").write_text(PLAN)
    (tmp_path / "flow.py").write_text(FLOW)

    def start(*args: str, **more: str) -> Command:
        environment = {"PATH": os.environ["PATH"], **home, **more}
        started.append(Command(tmp_path, len(started), args, environment))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()


def test_engines_and_followers_outlive_a_server_that_is_away(
    begin: Begin, postgres: PostgresServer, tmp_path: Path
) -> None:
    """Longer than the limit that is set: each prints one line and one more when it is back, and continues."""
    engines = [
        begin("run", "-f", "plan.yaml", "--auto", "--in-place", **LIMIT),
        begin("workflow", "run", "flow.py:watch", "go", "--id", "w-1", **LIMIT),
        begin("agent", "run", "--name", "alone", "--", "sh", "-c",
              "touch alone-began; until [ -e go ]; do sleep 0.05; done; echo alone", **LIMIT),
    ]  # fmt: skip
    for name in ("task-began", "step-began", "alone-began"):
        wait_until((tmp_path / name).exists, lambda: "\n".join(each.printed for each in engines))
    following = begin("agent", "logs", "-f", "alone")
    serving = begin("serve", "--port", "0")
    serving.wait_for("maos serves")
    time.sleep(0.3)  # the follower has no sign of its own; it waits for the server also if it only begins
    postgres.stop()
    waiting = [*engines, following]
    for each in waiting:
        each.wait_for(WAITING)
    (tmp_path / "go").touch()  # what agents say and steps return meanwhile is recorded later
    assert [each.process.poll() for each in waiting] == [None] * len(waiting)
    postgres.start()
    assert [each.end() for each in waiting] == [0] * len(waiting), "\n".join(each.printed for each in waiting)
    serving.process.send_signal(signal.SIGINT)
    assert serving.end() == 0
    for each in [*waiting, serving]:
        assert "Traceback" not in each.printed
        assert len(WAITING.findall(each.printed)) == len(BACK.findall(each.printed)) <= 1, each.printed
    assert "completed · 2 of 2 tasks done" in engines[0].printed
    assert "seen" in engines[1].printed
    assert "alone" in following.printed


def test_opening_waits(begin: Begin, postgres: PostgresServer) -> None:
    """As long as the setting says; without it an engine waits as long as it takes, and Ctrl+C ends that."""
    postgres.stop()
    short = begin("status", **LIMIT)
    engine, other = begin("agent", "run", "--name", "alone", "--", "echo", "hello"), begin("run", "--", "true")
    assert short.end() == 5
    assert "error: cannot use postgresql://" in short.printed
    assert "hint: check that the server is running" in short.printed
    for each in (engine, other):
        each.wait_for(WAITING)
    other.process.send_signal(signal.SIGINT)
    assert other.end() == 130
    assert "Traceback" not in other.printed
    postgres.start()
    assert engine.end() == 0, engine.printed
    assert "hello" in engine.printed


def test_a_password_that_is_refused_is_not_waited_for(begin: Begin, postgres_url: str) -> None:
    refused = begin("--db", postgres_url.replace("postgres@", "no_such_user@"), "run", "--", "true")
    assert refused.end() == 5
    assert "no_such_user" in refused.printed
    assert "waiting" not in refused.printed
