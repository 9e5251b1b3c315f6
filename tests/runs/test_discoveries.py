"""R-104: what one agent finds, the others of its run can see."""

from maos.app import Maos
from tests.runs.test_scheduler import plan


async def test_what_the_agents_of_a_run_have_found_is_known_by_who_found_it(engine_m: Maos, tmp_path: object) -> None:
    """Whoever begins later is told; whoever works sees it with `run_status`."""
    made = plan(a="", b="a")
    for task in made.tasks:
        task.command = ["sh", "-c", f"echo 'found: {task.name} was here'; echo nothing"]
    run = await engine_m.runs.create(made, folder=str(tmp_path), options={"in_place": True, "kind": "shell"})
    run = await engine_m.runs.execute(run.id)
    assert run.status == "completed"
    found = [(f"{run.id}.a", "a was here"), (f"{run.id}.b", "b was here")]
    assert await engine_m.agents.discoveries(run) == found
    assert await engine_m.agents.discoveries(run, but=f"{run.id}.a") == found[1:]
