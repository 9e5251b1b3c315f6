"""A run that a person skips, cancels and retries tasks of, to be killed: makes it, or resumes it until it has ended.

python operations_life.py DATABASE HOME FOLDER
"""

import asyncio
import contextlib
import sys
from pathlib import Path

import maos
from maos import Limits
from maos.app import Maos
from maos.engine import ownership
from maos.model.plan import Plan, Task
from maos.model.run import Run
from maos_testing.crash import ack

CONCURRENCY = 4


def plan(folder: Path) -> Plan:
    """a fails, and b needs it; c works until it is cancelled, and is done when retried; d needs c; e outlasts d.

    c leaves the number of its attempt that is to be cancelled: it is not the first one if the engine was killed while
    it started that.
    """
    effects = folder / "effects"
    slow = (
        f"echo c >> {effects}; test $(grep -c c {effects}) -gt 1 && exit; "
        f"echo ${{MAOS_ATTEMPT##*.}} > {folder}/.works && mv {folder}/.works {folder}/works; exec sleep 600"
    )
    commands = {"a": "exit 1", "b": f"echo b >> {effects}", "c": slow, "d": f"echo d >> {effects}"}
    commands["e"] = f"while ! grep -q d {effects}; do sleep 0.05; done"
    needs = {"b": ["a"], "d": ["c"]}
    return Plan(
        tasks=[
            Task(name=name, command=["sh", "-c", command], needs=needs.get(name, []))
            for name, command in commands.items()
        ]
    )


async def steer(m: Maos, id: str, folder: Path) -> None:
    """Have enough agents work at once, skip a when it has failed, cancel c while it first works, and retry it."""
    while True:
        run = await m.runs.get(id)
        works = int((folder / "works").read_text()) if (folder / "works").exists() else 0
        with contextlib.suppress(maos.InvalidInput, maos.Conflict):  # the run has moved on meanwhile
            if run.options.get("concurrency") != CONCURRENCY:
                await m.runs.update(id, Limits(concurrency=CONCURRENCY, time_limit_s=900.0))
            if run.tasks["a"].status == "failed":
                await m.runs.skip(id, "a")
            if run.tasks["c"].status == "running" and run.tasks["c"].attempts == works:
                await m.runs.cancel(id, task="c")
            if run.tasks["c"].status == "failed":
                await m.runs.retry(id, tasks=["c"])
        await asyncio.sleep(0.01)


async def live(database: str, home: Path, folder: Path) -> Run:
    async with maos.open(database, home=home) as m:
        known = [run async for run in m.runs.all()]
        options = {"in_place": True, "kind": "shell"}
        run = known[0] if known else await m.runs.create(plan(folder), folder=folder, options=options)
        deadline = asyncio.get_running_loop().time() + 50
        while run.status != "completed":
            assert asyncio.get_running_loop().time() < deadline, run
            steering = asyncio.create_task(steer(m, run.id, folder))
            with contextlib.suppress(maos.Conflict):  # while a command is applied, no engine can claim it
                async with asyncio.timeout_at(deadline):
                    run = await m.runs.execute(run.id, concurrency=1)
            steering.cancel()
            await asyncio.gather(steering, return_exceptions=True)
        ack(run.status.value)
        return run


if __name__ == "__main__":
    ownership.CLAIM_S = (
        1.0  # the next life does not wait long for the lease of one that was killed before it was recorded
    )
    asyncio.run(live(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
