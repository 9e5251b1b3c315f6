"""A run of shell agents, in a git repository or a plain folder, to be killed: makes it, or goes on until it has ended.

python run_life.py DATABASE HOME REPOSITORY
"""

import asyncio
import sys
from pathlib import Path

import maos
from maos import workspaces
from maos.model.plan import Gate, Plan, Task
from maos.model.run import Run
from maos_testing.crash import ack


def effect(name: str, repository: Path) -> list[str]:
    """Something that can be counted from outside, and a file of its own."""
    return ["sh", "-c", f"echo {name} >> {repository.parent}/effects; echo {name} > {name}.txt; cat *.txt | wc -l"]


def plan(repository: Path) -> Plan:
    """Six tasks, two of them at once, one with a gate."""
    tasks = [("a", ""), ("b", "a"), ("c", "a"), ("d", "b c"), ("e", "d"), ("f", "d")]
    gates = {"d": [Gate(command=["sh", "-c", "test -e d.txt"])]}
    return Plan(
        tasks=[
            Task(name=name, command=effect(name, repository), needs=needs.split(), gates=gates.get(name, []))
            for name, needs in tasks
        ]
    )


async def live(database: str, home: Path, repository: Path) -> Run:
    async with maos.open(database, home=home) as m:
        runs = m.runs
        known = [run async for run in runs.all()]
        if not known:
            options = {"in_place": True, "kind": "shell"}
            if (repository / ".git").exists():
                into = await workspaces.prepare(repository, "the-run", root=home / "workspaces")
                options = {"workspace": into.to_data(), "kind": "shell"}
            known = [await runs.create(plan(repository), folder=repository, options=options)]
        run = known[0]
        if run.status != "completed":
            run = await runs.execute(run.id, concurrency=3)
        ack(run.status)
        return run


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
