"""A run whose workspaces need a setup, to be killed: makes it, or resumes it until it has ended.

python setup_life.py DATABASE HOME REPOSITORY
"""

import asyncio
import sys
from pathlib import Path

import maos
from maos.model.run import Run
from maos_testing.crash import ack

TASKS = ("a", "b")


def plan(repository: Path) -> dict[str, object]:
    """Two tasks that fail without the whole setup, which counts its ends outside."""
    begun, ended = repository.parent / "begun", repository.parent / "ended"
    setup = ["sh", "-c", f"echo x >> {begun}; mkdir made; pwd > made/one; cp local.cfg made/two; echo x >> {ended}"]
    needs = 'grep -q "$PWD" made/one && grep -q 1 made/two && grep -q 1 local.cfg && echo done > $NAME.txt'
    return {
        "setup": [setup],
        "copy_ignored": ["local.cfg"],
        "tasks": [{"name": each, "command": ["sh", "-c", needs], "env": {"NAME": each}} for each in TASKS],
    }


async def live(database: str, home: Path, repository: Path) -> Run:
    """One life of the engine."""
    async with maos.open(database, home=home) as m:
        known = [run async for run in m.runs.all()]
        run = known[0] if known else await m.runs.start(plan(repository), folder=repository, id="r-1")
        if run.status != "completed":
            run = await m.runs.execute(run.id, concurrency=3)
        ack(run.status)
        return run


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
