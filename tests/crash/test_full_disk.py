"""A disk that is really full: nothing lost, the right error, and work that goes on when space returns (I10)."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from maos_testing.crash import ChildProcess
from tests.crash.stores import ROOT


def why_no_small_disk(folder: Path) -> str | None:
    """Why no disk of a few megabytes can be had here without being root; None when it can."""
    if sys.platform != "linux" or not shutil.which("unshare") or not shutil.which("mount"):
        return "a small disk needs Linux with unshare and mount"
    argv = ["unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    result = subprocess.run(argv, capture_output=True, text=True)
    return f"no small disk: {result.stderr.strip()}" if result.returncode else None


def test_a_full_disk(tmp_path: Path) -> None:
    if reason := why_no_small_disk(tmp_path):
        pytest.skip(reason)
    folder = tmp_path / "small"
    folder.mkdir()
    life = ChildProcess(["unshare", "-rm", sys.executable, "-m", "tests.crash.full_disk", str(folder)], cwd=ROOT).wait(
        1
    )
    assert life.acks == [
        "mounted",
        "1 at once: told, and nothing lost",
        "1 at once: no half copy",
        "1 at once: went on by itself",
        "8 at once: told, and nothing lost",
        "8 at once: no half copy",
        "8 at once: went on by itself",
        "closed while full",
        "read while full",
        "opened while full, and went on by itself",
        "opened again",
        "an engine waited for space",
        "made after space returned",
        "the disk is full under an engine",
        "commands said what there is to say",
        "the engine went on by itself",
    ]
