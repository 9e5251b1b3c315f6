"""A database in a folder that can only be read, or in a file that can: it is read, as it is, and not written to."""

import asyncio
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import trust

CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, PR_CAPBSET_DROP = 1, 2, 24
READING = (
    ("status",), ("ps",), ("agent", "list"), ("agent", "logs", "one"), ("agent", "show", "one", "--json"),
    ("state", "list"), ("inbox",), ("workflow", "list"), ("admin", "verify"),
)  # fmt: skip
RUNNER = """
import json, sys
from click.testing import CliRunner
from maos.cli.program import program
done = [CliRunner().invoke(program, args, prog_name="maos") for args in json.loads(sys.argv[1])]
json.dump([[each.exit_code, each.output] for each in done], sys.stdout)
"""


def obey_modes() -> None:
    """Have root obey the modes of files, as every other user does."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
                raise OSError(ctypes.get_errno(), "the capability could not be dropped")


class Folder:
    """A folder with a database, and `maos` for a user who must obey the modes of files."""

    def __init__(self) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="maos-read-only-"))
        self.path = self.base / "folder"

    def maos(self, *args: str, status: int = 0) -> str:
        """Run a command; what it prints."""
        return self.all_of((args,), status=status)[0]

    def all_of(self, commands: Sequence[Sequence[str]], *, status: int = 0) -> list[str]:
        """Run commands, all in one process; what each prints."""
        done = self.python("-c", RUNNER, json.dumps(commands))
        assert done.returncode == 0, done
        results = json.loads(done.stdout)
        assert [code for code, _text in results] == [status] * len(commands), results
        return [text for _code, text in results]

    def python(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, *args], capture_output=True, text=True, **self._how)

    def begin(self, program: str, *args: str) -> "subprocess.Popen[str]":
        """Start a program that is written to and read from."""
        argv = [sys.executable, "-c", program, *args]
        return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **self._how)

    @property
    def _how(self) -> dict[str, Any]:
        home = {"HOME": str(self.base), "MAOS_HOME": str(self.base / "home"), "LANG": "C.UTF-8"}
        return {"cwd": self.path, "env": {"PATH": os.environ["PATH"], **home}, "preexec_fn": obey_modes}

    def seal(self, folder: int = 0o555, file: int = 0o600) -> set[str]:
        """Take the right to write away; return the files there are."""
        for each in self.path.iterdir():
            if each.is_file():
                each.chmod(file)
        self.path.chmod(folder)
        return {each.name for each in self.path.iterdir()}

    def close(self) -> None:
        self.path.chmod(0o755)
        shutil.rmtree(self.base)


@pytest.fixture(scope="module")
def template() -> Iterator[Path]:
    """A folder with a database that no process has open."""
    made = Folder()
    made.path.mkdir()
    assert (
        made.python("-m", "maos", "agent", "run", "--name", "one", "--in-place", "--", "echo", "hello").returncode == 0
    )
    yield made.path
    made.close()


@pytest.fixture
def folder(template: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    made = Folder()
    shutil.copytree(template, made.path)
    monkeypatch.setenv("MAOS_HOME", str(made.base / "home"))
    asyncio.run(trust(made.path / "maos.db"))
    yield made
    made.close()


@pytest.mark.parametrize(("mode", "file"), [(0o555, 0o600), (0o555, 0o400), (0o755, 0o400)])
def test_it_is_read_and_nothing_is_left_there(folder: Folder, mode: int, file: int) -> None:
    before = folder.seal(mode, file)
    printed = folder.all_of(READING if (mode, file) == (0o555, 0o600) else READING[:4])
    assert not [text for text in printed if "note: " in text]
    assert printed[3] == "hello\ndone\n"
    assert "cannot be opened for writing" in folder.maos("state", "create", "x", status=5)
    assert {each.name for each in folder.path.iterdir()} == before


KILLED = """
import asyncio, os, signal
import maos
async def main():
    m = await maos.open("maos.db")
    await m.state.create("newest")
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


def test_events_that_are_only_in_the_log_are_read(folder: Folder) -> None:
    """A process was killed: its log and the file to read it with are there."""
    assert folder.python("-c", KILLED).returncode == -9
    before = folder.seal()
    assert {"maos.db-wal", "maos.db-shm"} < before
    assert "newest" in folder.maos("state", "list")
    assert {each.name for each in folder.path.iterdir()} == before


def test_a_log_that_cannot_be_read_is_not_left_out(folder: Folder) -> None:
    """Without the file that SQLite needs, the newest events would be missing: an error instead."""
    assert folder.python("-c", KILLED).returncode == -9
    (folder.path / "maos.db-shm").unlink()
    folder.seal()
    said = folder.maos("state", "list", status=5)
    assert "its newest events are in maos.db-wal" in said
    assert "hint: copy maos.db and maos.db-wal to another folder" in said


WATCHED = """
import asyncio, os, sys
import maos
async def main():
    async with maos.open("maos.db", create=False) as m:
        seen = [name async for name in m.state.names()]
        print(len(seen), flush=True)
        for line in sys.stdin:
            assert await m.state.version("late") == int(line), line
            print(sorted([name async for name in m.state.names()]), (await m.state.get("late")).version, flush=True)
asyncio.run(main())
"""
WRITES = """
import asyncio, sys
import maos
async def main():
    async with maos.open("maos.db") as m:
        await m.state.create("late") if sys.argv[1] == "1" else await m.state.update("late", {"status": sys.argv[1]})
        if sys.argv[2] == "stays":
            print("written", flush=True)
            sys.stdin.read()
asyncio.run(main())
"""


def test_what_another_process_writes_is_read(folder: Folder) -> None:
    """The reader opened it without locks; the writer, who may write, comes later, leaves, and comes again."""
    folder.seal()
    reader = folder.begin(WATCHED)
    assert reader.stdin is not None
    assert reader.stdout is not None
    assert reader.stdout.readline() == "0\n"
    for version, how in ((1, "leaves"), (2, "stays"), (3, "leaves")):
        folder.path.chmod(0o755)
        writer = folder.begin(WRITES, str(version), how)
        assert writer.stdin is not None
        assert writer.stdout is not None
        if how == "stays":
            assert writer.stdout.readline() == "written\n"
        else:
            assert writer.wait() == 0
        folder.path.chmod(0o555)
        reader.stdin.write(f"{version}\n")
        reader.stdin.flush()
        assert reader.stdout.readline() == f"['late'] {version}\n"
        folder.path.chmod(0o755)
        writer.communicate()
    reader.communicate()
    assert reader.returncode == 0
