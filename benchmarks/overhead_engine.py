"""An engine that carries out a run of agents which work all the time, and says what it costs itself.

    python -m benchmarks.overhead_engine DATABASE HOME AGENTS SECONDS

It prints a line when it begins to look, and one with what it saw.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.agents import cpu_of, holder_of, memory_of
from maos.model.events.facts import ToolResult

SAVE_EVERY_S = 20.0
"""Far more often than the two minutes of everyday, so that what checkpoints cost is seen."""


async def engine(database: str, home: Path, agents: int, seconds: float) -> None:
    """Wait until every agent works, then watch the processes for a while."""
    import maos
    from maos.clock import SystemClock
    from maos.engine import checkpoints
    from maos.runs.worker import AgentWorker

    steps = 0
    pids: dict[str, int] = {}
    working = asyncio.Event()

    def heard(attempt: Any, facts: Sequence[Any]) -> None:
        nonlocal steps
        steps += sum(isinstance(each, ToolResult) for each in facts)
        pids[attempt.agent] = attempt.pid
        if len(pids) == agents:
            working.set()

    async with maos.open(database, home=home) as m:
        await checkpoints.set_interval(m.journal, SystemClock(), SAVE_EVERY_S)
        tasks = [{"name": f"t{number}", "task": "Work.", "kind": "claude"} for number in range(agents)]
        options = {"in_place": True, "time_limit_s": 3600}
        run = await m.runs.create({"tasks": tasks}, folder=home.parent, options=options)
        worker = AgentWorker(m.agents, listener=heard)
        carrying_out = asyncio.create_task(m.runs.execute(run.id, worker=worker, concurrency=agents))
        await working.wait()
        await asyncio.sleep(10)  # until the dictionary is trained
        holders = [holder_of(pid) for pid in pids.values()]
        position, clock, before = await m.journal.head(), time.monotonic(), steps
        print("looking", flush=True)
        own, theirs = cpu_of(os.getpid()), sum(map(cpu_of, holders))
        await asyncio.sleep(seconds)
        passed = time.monotonic() - clock
        figures = {
            "engine % of a core": (cpu_of(os.getpid()) - own) / passed * 100,
            "engine MB": memory_of(os.getpid()),
            "engine resident MB": resident(os.getpid()),
            "holder % of a core": (sum(map(cpu_of, holders)) - theirs) / passed * 100 / agents,
            "holder MB": sum(map(memory_of, holders)) / agents,
            "events/s": (await m.journal.head() - position) / passed,
            "steps": steps - before,
        }
        print(json.dumps(figures), flush=True)
        m.runs.pause_here(run.id, "measured")
        await carrying_out


def resident(pid: int) -> float:
    """Its memory in MB, what it shares counted whole."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1000


if __name__ == "__main__":
    asyncio.run(engine(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
