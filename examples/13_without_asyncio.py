"""Use maos in a program without asyncio: a run of two tasks, started, executed and read.

    python examples/13_without_asyncio.py

It prints the status of the run and its events:

    completed
    1 run_created
    2 run_planned
    3 run_claimed
    4 task_started
    5 task_finished
    6 task_started
    7 task_finished
    8 run_ended
"""

import tempfile
from pathlib import Path

import maos

PLAN = {
    "tasks": [
        {"name": "count", "command": ["sh", "-c", "ls | wc -l"]},
        {"name": "report", "command": ["echo", "counted"], "needs": ["count"]},
    ]
}

with tempfile.TemporaryDirectory() as folder, maos.connect(f"{folder}/maos.db", home=Path(folder, "home")) as m:
    run = m.runs.start(PLAN, folder=folder, options={"in_place": True, "kind": "shell"})
    run = m.runs.execute(run.id)
    print(run.status)
    for record in m.journal.read(f"run/{run.id}"):
        print(record.version, record.type)
