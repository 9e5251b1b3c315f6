"""Prefect: a flow submits the tasks of a graph, each with those it waits for, to threads of its own process.

It cannot have the versions that maos is tested with, so it has an environment of its own. Its server, with SQLite, is
the one it starts by itself; starting it is not measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.scratch import REPOSITORY

NAME = "prefect"
PYTHON = REPOSITORY / f"{Path(sys.prefix).name}-prefect" / "bin" / "python"
S_MAX = 1_800.0
DRIVER = """
import json, sys, time
from prefect import flow, task
from prefect.task_runners import ThreadPoolTaskRunner

order = json.load(sys.stdin)

@task
def one(number):
    return number

@flow(task_runner=ThreadPoolTaskRunner(max_workers=order["at_once"]))
def graph(needs):
    submitted = []
    for number, wanted in enumerate(needs):
        submitted.append(one.submit(number, wait_for=[submitted[each] for each in wanted]))
    for future in submitted:
        future.result()

taken = {}
graph([[]])
for name, needs in order["graphs"].items():
    began_s = time.perf_counter()
    graph(needs)
    taken[name] = time.perf_counter() - began_s
print(json.dumps(taken), flush=True)
"""


def absent() -> str:
    """Why it cannot be measured here; empty when it can."""
    return "" if PYTHON.exists() else "it is not installed; `make bench` does that"


def execute(directory: Path, graphs: dict[str, list[list[int]]], *, at_once: int) -> dict[str, float]:
    """Seconds for each graph."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    env |= {
        "PREFECT_HOME": str(directory),
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "DO_NOT_TRACK": "1",
    }
    driver = directory / "driver.py"  # it looks at the source of its tasks
    driver.write_text(DRIVER)
    log = directory / "log"  # its server complains while it ends, so nobody is shown that unless it failed
    with log.open("wb") as errors:
        done = subprocess.run(
            [PYTHON, driver],
            env=env,
            cwd=directory,
            input=json.dumps({"at_once": at_once, "graphs": graphs}),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            timeout=S_MAX,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"{NAME} ended with status {done.returncode}:\n{log.read_text(errors='replace')[-2000:]}")
    line = next(each for each in done.stdout.splitlines() if each.startswith("{"))
    taken: dict[str, float] = json.loads(line)
    return taken
