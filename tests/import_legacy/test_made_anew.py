"""The dumps are what the real original leaves: made again with it, a database looks the same."""

import re
import subprocess
from pathlib import Path

import pytest

from maos.app import Maos
from maos.model.run import Run
from tests.crash.stores import ROOT
from tests.import_legacy.conftest import HERE, Make, bring

PYTHON = ROOT / ".venv-bench-original" / "bin" / "python"


def shape(run: Run) -> tuple[object, ...]:
    """What is the same whatever ids and times are drawn."""
    tasks = [(task.status, task.plan["task"], task.result, len(task.needs)) for task in run.tasks.values()]
    return run.request, run.status, tasks, round(run.cost_usd, 6), len(run.checkpoints)


@pytest.mark.skipif(not PYTHON.exists(), reason="the original is not installed: make .venv-bench-original/.installed")
async def test_the_dump_of_the_newest_version_made_anew(m: Maos, make: Make, tmp_path: Path) -> None:
    made = tmp_path / "made.db"
    subprocess.run([PYTHON, HERE / "make_database.py", made], check=True, capture_output=True, timeout=100)
    new = {shape(each.run)[0]: shape(each.run) for each in (await bring(m, made, dry_run=True)).values()}
    old = {shape(each.run)[0]: shape(each.run) for each in (await bring(m, make("0.9.4"), dry_run=True)).values()}
    assert new == old


def test_the_dumps_speak_of_no_machine() -> None:
    for path in HERE.glob("*.sql"):
        found = re.findall(r"/(?:tmp|home|root|Users|work)/\S*", path.read_text(encoding="utf-8"))
        assert not found, f"{path.name}: {found[0]}"
