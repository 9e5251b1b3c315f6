"""Durable steps of a workflow: one after the other, 64 at once, bytes for each, and a fresh process with one step."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path

from benchmarks import ours
from benchmarks.measure import Figures, Missing, Report, Rounds, Row, Subject, Timer, interleave
from benchmarks.scratch import REPOSITORY, Scratch, size
from benchmarks.workflow_driver import AT_ONCE, Order

RATE, PARALLEL, BYTES, START = "steps/s", "64 at once, steps/s", "bytes/step", "start-up, ms"
DBOS, DBOS_POSTGRES = "DBOS on SQLite", "DBOS on PostgreSQL"
LANGGRAPH, BURR = "langgraph SqliteSaver", "Burr SQLitePersister"
S_MAX = 600.0


def run(module: str, order: Order) -> tuple[dict[str, float], float]:
    """What a system took for an order, in a process of its own, and how long that process ran."""
    # Without byte code every start would compile the package again, which no installed program does.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    argv = [sys.executable, "-m", "benchmarks.workflow_driver", module]
    with Timer() as timer:
        done = subprocess.run(
            argv,
            cwd=REPOSITORY,
            env=environment,
            input=json.dumps(order),
            stdout=subprocess.PIPE,
            text=True,
            timeout=S_MAX,
            check=True,
        )
    return json.loads(done.stdout.splitlines()[-1]), timer.seconds


async def measure(scratch: Scratch, quick: bool) -> Report:
    """All systems, and the goals."""
    steps, rounds, seconds = (300, 5, 60.0) if quick else (2_000, 30, math.inf)

    def on_sqlite(module: str, *, parallel: bool = True) -> Callable[[], Awaitable[Figures]]:
        async def figures() -> Figures:
            def ordered(directory: Path, steps: int, rounds: int) -> Order:
                return {"directory": str(directory), "url": "", "steps": steps, "rounds": rounds}

            with scratch.directory() as directory:
                _, start_s = run(module, ordered(directory, 0, 0))
                before = size(directory)
                taken, _ = run(module, ordered(directory, steps, 0))
                found = {RATE: steps / taken["sequential"], BYTES: (size(directory) - before) / steps}
            found[START] = start_s * 1e3
            if parallel:
                with scratch.directory() as directory:
                    taken, _ = run(module, ordered(directory, 0, rounds))
                    found[PARALLEL] = rounds * AT_ONCE / taken["parallel"]
            return found

        return figures

    def on_postgres(module: str) -> Callable[[], Awaitable[Figures]]:
        async def figures() -> Figures:
            url = await scratch.database()
            taken, _ = run(module, {"directory": "", "url": url, "steps": steps, "rounds": rounds})
            return {RATE: steps / taken["sequential"], PARALLEL: rounds * AT_ONCE / taken["parallel"]}

        return figures

    def peer(name: str, package: str, figures: Callable[[], Awaitable[Figures]]) -> Subject | Missing:
        return Subject(name, figures) if find_spec(package) else Missing(name, f"{package} is not installed")

    subjects = [
        ours.subject(on_sqlite("benchmarks.workflow_ours")),
        peer(DBOS, "dbos", on_sqlite("benchmarks.peers.dbos_steps")),
        peer(LANGGRAPH, "langgraph", on_sqlite("benchmarks.peers.langgraph_steps")),
        peer(BURR, "burr", on_sqlite("benchmarks.peers.burr_steps", parallel=False)),
        ours.subject(on_postgres("benchmarks.workflow_ours"), ours.NAME_POSTGRES),
        peer(DBOS_POSTGRES, "dbos", on_postgres("benchmarks.peers.dbos_steps")),
    ]
    title = f"workflow, {steps} steps one after the other and {rounds} times {AT_ONCE} at once"
    found = await interleave(title, subjects, 5 if quick else 11, seconds=seconds)
    return Report([found], rows(found))


def rows(found: Rounds) -> list[Row]:
    """Five times DBOS on the same database, twice the best of the others."""
    maos, on_postgres = ours.NAME, ours.NAME_POSTGRES
    return [
        found.row("workflow.sequential.vs_dbos", maos, DBOS, RATE, ">= 5"),
        found.row("workflow.sequential.pg_vs_dbos", on_postgres, DBOS_POSTGRES, RATE, ">= 5"),
        found.row("workflow.sequential.vs_langgraph", maos, LANGGRAPH, RATE, ">= 2"),
        found.row("workflow.sequential.vs_burr", maos, BURR, RATE, ">= 2"),
        found.row("workflow.parallel.vs_dbos", maos, DBOS, PARALLEL, ">= 5"),
    ]
