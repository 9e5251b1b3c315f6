"""One demonstration, carried out once for all tests that only look at what it left."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from maos_demo.proof import DemoFolder
from tests.engine.conftest import processes_below

DEMO = [sys.executable, "-m", "maos", "demo"]


class Done(NamedTuple):
    """A demonstration that was carried out."""

    place: DemoFolder
    told: dict[str, Any]


def surroundings(temporary: Path) -> dict[str, str]:
    """The environment of a new user: nothing configured, no key, and temporary files in a folder that we can see."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG") or name.startswith("COV")}
    home = temporary / "user"
    home.mkdir(exist_ok=True)
    return {**kept, "HOME": str(home), "TMPDIR": str(temporary), "TERM": "xterm-256color"}


def end_all_below(folder: Path) -> list[int]:
    """End whatever still has to do with a folder; who that was."""
    left = processes_below(folder)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return left


@pytest.fixture(scope="session")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """The demonstration in a folder that was named, by a user who has nothing but git."""
    around = tmp_path_factory.mktemp("demo")
    folder = around / "kept"
    try:
        result = subprocess.run(
            [*DEMO, "kept", "--json"], cwd=around, env=surroundings(around), capture_output=True, text=True, timeout=110
        )
    finally:
        left = end_all_below(folder)
    assert left == []
    assert (result.returncode, result.stderr) == (0, ""), result.stdout
    return Done(DemoFolder(folder), json.loads(result.stdout))


@pytest.fixture
def copy(done: Done, tmp_path: Path) -> DemoFolder:
    """What it left, to be tampered with; the files of agents' homes are left out, the proof does not need them."""
    for name in ("notes", "till"):
        shutil.copytree(done.place.folder / name, tmp_path / "copy" / name, symlinks=True)
    for file in (each for each in done.place.folder.iterdir() if each.is_file()):
        shutil.copy(file, tmp_path / "copy")
    return DemoFolder(tmp_path / "copy")
