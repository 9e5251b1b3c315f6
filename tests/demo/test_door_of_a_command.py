"""A plain command as an agent that talks: it has a door when its plan says so, and nothing to tell whose it is else."""

import json
import sys
from pathlib import Path

import pytest

from maos.app import Maos
from tests.engine.conftest import home, m  # noqa: F401

VARIABLES = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
NAMES = ("MAOS_DB", "MAOS_ATTEMPT", "MAOS_RUN", "MAOS_ATTEMPT_SECRET")
SAVES = [
    sys.executable,
    "-P",
    "-c",
    "from maos_demo.agents import ToolClient\n"
    "client = ToolClient(); client.call('save_state', key='pi', value=3); client.close()",
]


async def variables(m: Maos, agent: str) -> dict[str, str]:  # noqa: F811
    told: dict[str, str] = json.loads((await m.agents.get(agent)).last_text)
    return {name: value for name, value in told.items() if name in NAMES}


@pytest.mark.parametrize("door", [True, False])
async def test_a_command_of_a_plan_has_a_door_if_the_plan_says_so(m: Maos, tmp_path: Path, door: bool) -> None:  # noqa: F811
    """A12: what was not asked for is not in its environment."""
    task = {"name": "look", "command": VARIABLES, **({"mcp": True} if door else {})}
    run = await m.runs.create({"tasks": [task]}, folder=tmp_path, options={"in_place": True})
    run = await m.runs.execute(run.id)
    assert run.status == "completed"
    agent = f"{run.id}.look"
    own = {"MAOS_ATTEMPT": f"{agent}.1", "MAOS_ATTEMPT_SECRET": "[redacted:MAOS_ATTEMPT_SECRET]"}
    more = {"MAOS_DB": str(tmp_path / "maos.db"), "MAOS_RUN": run.id} if door else {}
    assert await variables(m, agent) == {**own, **more}


async def test_it_still_has_its_door_when_it_is_started_again(m: Maos, tmp_path: Path) -> None:  # noqa: F811
    """Values are not recorded, so they are found anew: the attempt is another one."""
    await (await m.agents.start(argv=VARIABLES, name="a", cwd=tmp_path, in_place=True, tool_server=True)).wait()
    await (await m.agents.resume("a")).wait()
    assert await variables(m, "a") == {
        "MAOS_DB": str(tmp_path / "maos.db"),
        "MAOS_ATTEMPT": "a.2",
        "MAOS_ATTEMPT_SECRET": "[redacted:MAOS_ATTEMPT_SECRET]",
    }


async def test_a_script_can_use_it(m: Maos, tmp_path: Path) -> None:  # noqa: F811
    await (await m.agents.start(argv=SAVES, name="a", cwd=tmp_path, in_place=True, tool_server=True)).wait()
    assert (await m.state.get("a")).data["saved"]["pi"] == 3
