"""DBOS queues on SQLite: a workflow puts the tasks of a graph into a queue, level by level, and waits for each level.

Run by itself it reads ``{"directory": …, "at_once": …, "graphs": {name: needs}}`` from standard input.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.scratch import REPOSITORY

NAME = "DBOS queues"
POLL_S = 0.01
"""How often it looks for work and for results; the default of a second would be all that is measured."""
S_MAX = 900.0


def absent() -> str:
    """Why it cannot be measured here; empty when it can."""
    return "" if find_spec("dbos") else "dbos is not installed"


def execute(directory: Path, graphs: dict[str, list[list[int]]], *, at_once: int) -> dict[str, float]:
    """Seconds for each graph, in a process of its own: there is one DBOS in a process."""
    order = {"directory": str(directory), "at_once": at_once, "graphs": graphs}
    argv = [sys.executable, "-m", __name__]
    done = subprocess.run(
        argv, cwd=REPOSITORY, input=json.dumps(order), stdout=subprocess.PIPE, text=True, timeout=S_MAX, check=True
    )
    taken: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return taken


def levels(needs: list[list[int]]) -> list[list[int]]:
    """Tasks in groups: each needs only what is in groups before its own; needs have smaller numbers."""
    depth: list[int] = []
    for wanted in needs:
        depth.append(1 + max((depth[each] for each in wanted), default=-1))
    found: list[list[int]] = [[] for _ in range(max(depth) + 1)]
    for number, level in enumerate(depth):
        found[level].append(number)
    return found


def main() -> None:
    """Carry out what standard input says."""
    import time

    from dbos import DBOS, DBOSConfig

    order: dict[str, Any] = json.load(sys.stdin)
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": f"sqlite:///{Path(order['directory']) / 'dbos.sqlite'}",
        "log_level": "ERROR",
    }
    DBOS(config=config)

    @DBOS.step()
    def one(number: int) -> int:
        return number

    @DBOS.workflow()
    def graph(groups: list[list[int]]) -> None:
        for group in groups:
            for handle in [queue.enqueue(one, number) for number in group]:
                handle.get_result(polling_interval_sec=POLL_S)

    DBOS.launch()
    queue = DBOS.register_queue("tasks", worker_concurrency=order["at_once"], polling_interval_sec=POLL_S)
    taken = {}
    graph([[0]])
    for name, needs in order["graphs"].items():
        began_s = time.perf_counter()
        graph(levels(needs))
        taken[name] = time.perf_counter() - began_s
    DBOS.destroy()
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
