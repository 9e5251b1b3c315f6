"""Replay is pure: the same state under any hash seed, time zone, locale and version of Python (I15)."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

import maos
from tests.journal.places import Place
from tests.state.edits import edit, start

ROOT = Path(__file__).parents[2]

CIRCUMSTANCES = {
    "seed 1": {"PYTHONHASHSEED": "1", "TZ": "UTC", "LC_ALL": "C"},
    "seed 2, Kathmandu, Turkish": {"PYTHONHASHSEED": "2", "TZ": "Asia/Kathmandu", "LC_ALL": "tr_TR.UTF-8"},
    "seed 3, Newfoundland, German": {"PYTHONHASHSEED": "3", "TZ": "America/St_Johns", "LC_ALL": "de_DE.ISO-8859-1"},
    "optimised, no UTF-8": {"PYTHONHASHSEED": "4", "PYTHONOPTIMIZE": "1", "PYTHONUTF8": "0", "LC_ALL": "POSIX"},
}
ODD: dict[str, Any] = {
    "İı": ["ß", "é", "e\u0301", "🦑", "\u2028", "\x00"],
    "numbers": [0, -1, 2**63, 10**40, 0.1, 1e16, 1e-7, 5e-324, 1.7976931348623157e308, -0.0],
    "": {"": [[], {}, None, True, False]},
}


@pytest.fixture
async def lived(sqlite: Place) -> tuple[Path, Path, list[str]]:
    """A history as a database and as plain events, and its checksums."""
    chance = Random(3)
    state = start()
    async with sqlite.open() as m:
        await m.state.create("a", state)
        await m.state.update("a", ODD)
        for number in range(25):
            await m.state.update("a", edit(chance, state, number))
        await m.state.rollback("a", 5)
        events = [record.data async for record in m.journal.read("agent/a")]
        sums = [each.checksum for each in await m.state.history("a")]
    path = sqlite.folder / "events.json"
    path.write_text(json.dumps(events), encoding="utf-8")
    return Path(sqlite.target), path, sums


def replayed(what: Path, python: str = sys.executable, **circumstances: str) -> Any:
    """What another process makes of a history."""
    done = subprocess.run(
        [python, "-m", "tests.state.replaying", str(what)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(Path(maos.__file__).parents[1]), **circumstances},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def test_a_replay_gives_the_same_in_every_process(lived: tuple[Path, Path, list[str]]) -> None:
    """I15: and folding opens, starts, imports and connects to nothing."""
    database, events, sums = lived
    through_maos = replayed(database, **CIRCUMSTANCES["seed 1"])
    assert [each[0] for each in through_maos] == sums
    for name, circumstances in CIRCUMSTANCES.items():
        assert replayed(events, **circumstances) == through_maos, name


@pytest.mark.parametrize("minor", [11, 12, 13, 14])
async def test_a_replay_gives_the_same_in_other_versions_of_python(
    lived: tuple[Path, Path, list[str]], minor: int
) -> None:
    """I15."""
    name = f"python3.{minor}"
    python = shutil.which(name)
    if python is None or subprocess.run([python, "-c", ""], capture_output=True).returncode:
        pytest.skip(f"there is no {name} to run")
    _database, events, sums = lived
    assert [each[0] for each in replayed(events, python)] == sums


async def test_two_who_build_the_same_state_in_another_order_agree(sqlite: Place) -> None:
    """I15: on the checksum, whatever way led there."""
    async with sqlite.open() as m:
        await m.state.create("a", {"x": 1, "y": {"p": [1, 2], "q": None}})
        await m.state.create("b", {"y": {"q": 0}})
        await m.state.update("b", {"y": {"p": [1]}, "z": True})
        await m.state.update("b", {"y": {"q": None, "p": maos.Extend([2])}, "x": 1, "z": maos.DELETE})
        assert (await m.state.get("a")).checksum == (await m.state.get("b")).checksum
