"""Replaying is pure: the same whoever replays, and nothing outside is asked (I15)."""

import os
import subprocess
import sys
from pathlib import Path

from tests.workflows import purity_life


def replay(database: Path, what: str, *, seed: int, zone: str, locale: str) -> str:
    """The digests, as another process sees them."""
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "TZ": zone, "LC_ALL": locale}
    command = [sys.executable, purity_life.__file__, str(database), *([what] if what else [])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_two_processes_that_order_sets_differently_replay_the_same(tmp_path: Path) -> None:
    """I15: another PYTHONHASHSEED, time zone and locale; the second makes the calls of the first, and none is new."""
    database = tmp_path / "maos.db"
    first = replay(database, "wait", seed=1, zone="UTC", locale="C")
    second = replay(database, "", seed=2, zone="Asia/Tokyo", locale="C.UTF-8")
    assert first == second != ""
    ended = replay(database, "go", seed=3, zone="America/New_York", locale="C")
    again = replay(database, "", seed=4, zone="UTC", locale="C")
    assert ended == again
    assert ended != first


async def test_replaying_calls_no_step_and_asks_no_clock(tmp_path: Path) -> None:
    """The second process ends with the ids that the first one made up."""
    import maos

    database = tmp_path / "maos.db"
    replay(database, "wait", seed=1, zone="UTC", locale="C")
    replay(database, "go", seed=2, zone="UTC", locale="C")
    async with maos.open(database) as m:
        flow = await m.workflows.get("p")
    assert flow.status == "completed"
    assert flow.result == [flow.steps[f"1:{n}.2"].result for n in (1, 2, 3)]
    assert {call.tries for call in flow.steps.values()} == {1}
    assert purity_life.pure.name == flow.name
