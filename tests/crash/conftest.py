"""What the crash tests share."""

import asyncio
import sys

import pytest

from maos_testing.crash import ChildProcess
from tests.crash.stores import ROOT, Abandoned, Place

pytest.register_assert_rewrite("tests.crash.promises")  # so that what it finds is shown in full


@pytest.fixture(scope="session")
def abandoned(tmp_path_factory: pytest.TempPathFactory) -> Abandoned:
    """A journal that was left in the middle of its life."""
    folder = tmp_path_factory.mktemp("abandoned")
    argv = [sys.executable, "-m", "tests.crash.scenarios", "abandon", Place(str(folder)).said()]
    life = ChildProcess(argv, cwd=ROOT).wait(1)
    used = len((folder / "maos.db-wal").read_bytes().rstrip(b"\0"))
    left = Abandoned(folder, [], [position for _number, position, _versions in life.acks], used)
    left.log.extend(asyncio.run(left.read(tmp_path_factory.mktemp("whole"))))
    assert left.log[-1].position == left.ends[-1]
    return left
