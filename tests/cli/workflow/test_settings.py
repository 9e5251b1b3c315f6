"""How often a workflow is made safe: as a flag says, else the settings, and kept with it."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.workflows import definition
from tests.cli.agent.conftest import Call

COUNTS = """
import maos

@maos.step(idempotent=True)
async def one(n: int) -> int:
    return n

@maos.workflow
async def count(up_to: int) -> int:
    return sum([await one(n) for n in range(up_to)])
"""


@pytest.fixture
def counts(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a workflow of idempotent steps."""
    (here / "counts.py").write_text(COUNTS)
    monkeypatch.setattr(definition, "_workflows", {})
    paths = list(sys.path)
    sys.modules.pop("counts", None)
    yield here
    sys.path[:] = paths
    sys.modules.pop("counts", None)


def _run(call: Call, id: str, *args: str, **env: str) -> dict[str, Any]:
    done = call("workflow", "run", "counts.py", "7", "--id", id, "--json", *args, **env)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["result"] == 21
    return found


def _kept(found: dict[str, Any]) -> Any:
    return found["options"].get("checkpoints", {}).get("frequency", "every_step")


def test_the_settings_say_how_often(counts: Path, call: Call) -> None:
    """R-1002, R-1009: by file, by variable, and a flag outweighs both."""
    assert (_kept(_run(call, "c0"))) == "every_step"
    (counts / "maos.toml").write_text('[checkpoint]\nfrequency = "every_n_steps"\nsteps = 3\n')
    found = _run(call, "c1")
    assert _kept(found) == "every_n_steps"
    assert [each["trigger"] for each in found["checkpoints"]] == ["steps", "steps"]
    assert len(_run(call, "c2", "--every", "2")["checkpoints"]) == 3
    assert _kept(_run(call, "c3", "--checkpoint", "every_step")) == "every_step"
    assert _kept(_run(call, "c4", MAOS_CHECKPOINT_FREQUENCY="manual")) == "manual"
    found = _run(call, "c5", MAOS_CHECKPOINT_FREQUENCY="time_based", MAOS_CHECKPOINT_INTERVAL="77")
    assert found["options"]["checkpoints"] == {"frequency": "time_based", "every": 3, "interval_s": 77}
    assert _kept(_run(call, "c6", MAOS_CHECKPOINT_ENABLED="false")) == "manual"


async def test_a_program_gets_them_from_its_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-1009: and what it says itself outweighs them."""
    monkeypatch.setattr(definition, "_workflows", {})

    @maos.step(idempotent=True)
    async def one(n: int) -> int:
        return n

    @maos.workflow
    async def count(up_to: int) -> int:
        return sum([await one(n) for n in range(up_to)])

    monkeypatch.setenv("MAOS_CHECKPOINT_FREQUENCY", "every_n_steps")
    monkeypatch.setenv("MAOS_CHECKPOINT_STEPS", "2")
    async with maos.open(tmp_path / "maos.db") as m:
        assert await m.workflows.run(count, 5, id="c1") == 10
        assert len((await m.workflows.get("c1")).checkpoints) == 2
        handle = await m.workflows.start(count, 5, id="c2", options={"checkpoints": {}})
        await handle.wait()
        assert (await m.workflows.get("c2")).checkpoints == []
        with pytest.raises(maos.InvalidInput, match="checkpoints cannot be"):
            await m.workflows.start(count, 5, options={"checkpoints": {"evry": 5}})
