"""A run of several agents from Python: a plan, a pause, and a resume in another engine.

    python examples/09_run_several_agents.py

The agents are shell commands, and share a folder. The first engine pauses when the first task is done, while the second
has started and waits for a file; the next engine reads from the journal which tasks are left. It prints

    paused: 1 of 3 tasks done
    completed: 3 of 3 tasks done
    count: 2 lines
"""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

import maos

WAITING = "until [ -e go ]; do sleep 0.05; done; echo pears >> list"
PLAN = {
    "request": "Count what we have",
    "tasks": [
        {"name": "apples", "command": ["sh", "-c", "echo apples >> list"]},
        {"name": "pears", "command": ["sh", "-c", WAITING], "needs": ["apples"]},
        {"name": "count", "command": ["sh", "-c", "echo $(wc -l < list) lines"], "needs": ["pears"]},
    ],
}


async def main(folder: Path) -> None:
    async with maos.open(folder / "maos.db", home=folder / "home") as m:
        run = await m.runs.create(PLAN, folder=folder, options={"in_place": True})

        def pause_after_apples(now: object, events: Sequence[object]) -> None:
            if any(getattr(event, "type", "") == "task_finished" for event in events):
                m.runs.pause_here(run.id, "for a break")

        run = await m.runs.execute(run.id, listener=pause_after_apples)
        print(f"{run.status}: {run.done} of {len(run.tasks)} tasks done")

    (folder / "go").touch()
    async with maos.open(folder / "maos.db", home=folder / "home") as m:
        run = await m.runs.execute(run.id)
        print(f"{run.status}: {run.done} of {len(run.tasks)} tasks done")
        print(f"count: {run.tasks['count'].result}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(Path(name)))
