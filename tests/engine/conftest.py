"""Engines on a database and a home of the test's own; whatever they leave running is ended by pid."""

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import maos
from maos.app import Maos

MARK = "MAOS_ATTEMPT="


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Where this test's agents have their files."""
    folder = tmp_path / "home"
    yield folder
    for pid in processes_below(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
async def m(tmp_path: Path, home: Path) -> AsyncIterator[Maos]:
    """An open journal with an engine."""
    async with maos.open(tmp_path / "maos.db", home=home) as opened:
        yield opened


def processes_below(folder: Path) -> list[int]:
    """Every process that has to do with an attempt in a folder: agents by their HOME, holders by their argument."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            environment = Path(f"/proc/{entry}/environ").read_bytes()
            command = Path(f"/proc/{entry}/cmdline").read_bytes()
            cwd = os.readlink(f"/proc/{entry}/cwd")
        except OSError:
            continue
        name = os.fsencode(folder)
        if name in environment or name in command or cwd.startswith(str(folder)):
            found.append(int(entry))
    return found
