"""A database as agents leave it, and the command line in this process, in one of its own, and on a terminal."""

import asyncio
import codecs
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyte
import pytest
from click.testing import CliRunner, Result

import maos
from maos.cli.program import program
from maos_testing.manual_clock import MICROSECONDS, ManualClock

START_US = 1_577_880_000 * MICROSECONDS  # 2020-01-01T12:00:00Z
WAIT_S_MAX = 60
COLUMNS, LINES = 100, 40
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
HOSTILE = "\x1b[31mred\x1b[0m [bold]x[/bold] \x9b2J\u202egnp.exe\r\n"

Run = Callable[..., subprocess.CompletedProcess[str]]
Invoke = Callable[..., Result]


async def fill(path: Path) -> None:
    """Three agents, an hour between one change and the next, on the first days of 2020."""
    clock = ManualClock(START_US)
    async with maos.open(path, clock=clock) as m:
        update = m.state.update

        async def wait_and_update(wanted: dict[str, Any], **more: Any) -> None:
            clock.advance(3600)
            await update("reviewer", wanted, **more)

        first: dict[str, Any] = {"status": "idle", "messages": [], "execution": {"task": None}, "memory": {"old": 1}}
        await m.state.create("reviewer", first, source="setup")
        await wait_and_update({"status": "busy"}, source="runner", correlation="run/1")
        await wait_and_update({"messages": maos.Extend([{"role": "user", "text": "hello"}])}, source="runner")
        await wait_and_update({"memory": {"old": maos.DELETE, "new": [1, 2]}}, critical=True, metadata={"why": "tidy"})
        await wait_and_update({"messages": maos.Extend([f"message {n}" for n in range(40)])}, source="runner")
        await m.state.snapshot("reviewer", name="before-upgrade")
        await wait_and_update({"execution": {"task": "review"}}, causation="agent/planner@1")
        await m.state.create("planner", source="setup")
        await m.state.create("[bold]evil[/bold]", {"status": HOSTILE, HOSTILE: HOSTILE}, source=HOSTILE)


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled") / "maos.db"
    asyncio.run(fill(path))
    return path


@pytest.fixture
def db(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a filled database of this test's own, which is the default in the current folder."""
    for file in filled.parent.iterdir():
        shutil.copy(file, tmp_path)
    empty_folder(tmp_path, monkeypatch)
    asyncio.run(trust(tmp_path / "maos.db"))
    return tmp_path / "maos.db"


async def trust(path: Path) -> None:
    """Use a copy of a database as one's own."""
    async with maos.open(path) as m:
        await m.trust()


@pytest.fixture
def no_db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the default database, which does not exist."""
    empty_folder(tmp_path, monkeypatch)
    return tmp_path / "maos.db"


def empty_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path)
    monkeypatch.setenv("XDG_STATE_HOME", str(path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(path / "config"))
    monkeypatch.setenv("EDITOR", "true")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    for name in ("MAOS_DB", "MAOS_HOME", "VISUAL", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that Ctrl+C can end, also when the tests run in the background; and, afterwards, our own time zone."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def invoke() -> Invoke:
    """Run a command in this process; what is not an expected failure is raised."""

    def run(*args: str, stdin: str | None = None) -> Result:
        result = CliRunner().invoke(program, args, input=stdin, prog_name="maos")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.fixture
def run() -> Run:
    """Run a command in a process of its own, as a shell would."""

    def run(*args: str, stdin: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "maos", *args],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=WAIT_S_MAX,
            env={**os.environ, **env},
        )

    return run


class Terminal:
    """A command with a person in front of it: all three streams are a terminal, of 100 columns by default."""

    def __init__(self, *args: str, command: Sequence[str] = ("-m", "maos"), columns: int = COLUMNS) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, columns, 0, 0))
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self._process = subprocess.Popen(
            [sys.executable, *command, *args],
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            env={**environment, "TERM": "xterm-256color"},
        )  # fmt: skip
        os.close(theirs)
        self.text = ""
        self._screen = pyte.Screen(columns, LINES)
        self._stream = pyte.Stream(self._screen)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def shown(self) -> str:
        """What a person sees now."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    @property
    def cursor(self) -> pyte.screens.Cursor:
        """Where the cursor is, and whether it is hidden."""
        return self._screen.cursor

    @property
    def words(self) -> str:
        """All that was printed, without styles and as one line: where a text is wrapped depends on paths in it."""
        return " ".join(ESCAPES.sub("", self.text).split())

    def wait_for(self, text: str) -> None:
        """Read until something was printed or is shown: of a frame only what has changed is drawn."""
        words = " ".join(text.split())
        while text not in self.text and words not in self.words and words not in " ".join(self.shown.split()):
            assert self._read(), f"{text!r} did not come, but {self.shown}"

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Read until something is so."""
        until_s = time.monotonic() + WAIT_S_MAX
        while not holds():
            assert time.monotonic() < until_s, self.shown
            self._read(0.1)

    def resize(self, *, lines: int, columns: int) -> None:
        self._screen.resize(lines, columns)
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.interrupt(signal.SIGWINCH)  # which the kernel sends only to the group in the foreground

    @property
    def echoes(self) -> bool:
        """Whether the terminal shows what is typed by itself, as it does when no program draws."""
        return bool(termios.tcgetattr(self._ours)[3] & termios.ECHO)

    def make_plain(self) -> None:
        """Have the terminal echo, and collect lines."""
        mode = termios.tcgetattr(self._ours)
        mode[3] |= termios.ECHO | termios.ICANON
        termios.tcsetattr(self._ours, termios.TCSANOW, mode)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def wait_until_idle(self) -> None:
        """Wait until it waits: a signal between a prompt and the reading of the answer is seen after the answer."""
        seen = 0
        while seen < 3:
            state = Path(f"/proc/{self._process.pid}/stat")
            seen = seen + 1 if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "S" else 0
            time.sleep(0.05)

    def interrupt(self, sent: signal.Signals = signal.SIGINT) -> None:
        self._process.send_signal(sent)

    def end(self) -> int:
        """Read what is left; the exit code."""
        while self._read():
            pass
        return self._process.wait(WAIT_S_MAX)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)

    def _read(self, wait_s: float = WAIT_S_MAX) -> bool:
        ready, _, _ = select.select([self._ours], [], [], wait_s)
        try:
            new = os.read(self._ours, 65536) if ready else b""
        except OSError:  # how a terminal says that the other side is gone
            new = b""
        text = self._decoder.decode(new)
        self.text += text
        self._stream.feed(text)
        return bool(new)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    """Start a command on a terminal."""
    opened: list[Terminal] = []

    def start(*args: str, columns: int = COLUMNS) -> Terminal:
        opened.append(Terminal(*args, columns=columns))
        return opened[-1]

    yield start
    for each in opened:
        each.close()
