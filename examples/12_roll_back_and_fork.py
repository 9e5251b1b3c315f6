"""A run is rolled back, forked, joined, exported and imported, all from Python.

    python examples/12_roll_back_and_fork.py

The agents are shell commands, in git worktrees of their own. The run is rolled back to the version at which its first
task was done; then the rollback is undone. A fork does one task more, which a join adds to the run; another journal
imports the run from a file. It prints

    completed: ['apples.txt', 'pears.txt']
    then: apples done, pears running
    back: ['apples.txt'], paused
    undone: ['apples.txt', 'pears.txt'], completed
    joined: ['apples.txt', 'pears.txt', 'plums.txt']
    elsewhere: completed, 3 of 3 tasks done
"""

import asyncio
import subprocess
import tempfile
from pathlib import Path

import maos
from maos.model.plan import Plan, Task
from maos.model.run import Run


def task(name: str, *needs: str) -> Task:
    return Task(name=name, command=["sh", "-c", f"echo {name} > {name}.txt"], needs=list(needs))


def files(repository: Path, run: Run) -> list[str]:
    """What the run has merged."""
    shown = subprocess.run(
        ["git", "ls-tree", "--name-only", run.commit], cwd=repository, check=True, capture_output=True, text=True
    )
    return shown.stdout.split()


def repository_in(folder: Path) -> Path:
    place = folder / "shop"
    git = ["git", "-C", str(place), "-c", "user.name=you", "-c", "user.email=you@localhost"]
    subprocess.run(["git", "init", "-q", str(place)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "An empty shop"], check=True)
    return place


async def main(folder: Path) -> None:
    shop = repository_in(folder)
    async with maos.open(folder / "maos.db", home=folder / "home") as m:
        plan = Plan(request="Fill the shop", tasks=[task("apples"), task("pears", "apples")])
        run = await m.runs.start(plan, folder=shop, options={"kind": "shell"})
        run = await m.runs.execute(run.id)
        print(f"{run.status}: {files(shop, run)}")

        begun = [each.version async for each in m.journal.read(f"run/{run.id}") if each.type == "task_started"]
        then = await m.travel.at(run.id, begun[-1])
        print("then: " + ", ".join(f"{each.name} {each.status}" for each in then.tasks.values()))

        journey = await m.travel.rollback(run.id, begun[-1])
        run = await m.runs.get(run.id)
        print(f"back: {files(shop, run)}, {run.status}")
        await m.travel.rollback(run.id, journey.undo)
        run = await m.runs.get(run.id)
        print(f"undone: {files(shop, run)}, {run.status}")

        fork = (await m.travel.fork(run.id)).run
        await m.runs.add(fork, Plan(tasks=[task("plums")]))
        await m.runs.execute(fork)
        await m.travel.join(run.id, fork)
        print(f"joined: {files(shop, await m.runs.get(run.id))}")

        await m.transfer.export(run.id, folder / "run.maos")

    subprocess.run(["git", "clone", "-q", str(shop), str(folder / "house")], check=True)
    async with maos.open(folder / "other.db", home=folder / "elsewhere") as m:
        brought = await m.transfer.import_(folder / "run.maos", folder=folder / "house")
        run = await m.runs.get(brought.manifest.id)
        print(f"elsewhere: {run.status}, {run.done} of {len(run.tasks)} tasks done")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(Path(name)))
