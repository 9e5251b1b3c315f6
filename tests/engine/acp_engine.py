"""An engine that runs, adopts or resumes the agent `a`, which is the peer of tests/agents/acp.

python -m tests.engine.acp_engine DATABASE HOME FOLDER KIND TASK
"""

import asyncio
import os
import sys
from pathlib import Path

import maos
from maos.agents import kinds
from maos.app import Maos
from maos.clock import SystemClock
from maos.engine.attempts import Attempts
from maos.model.attempt import Attempt
from maos_testing.crash import ack


def engine(m: Maos, home: Path) -> Attempts:
    """An engine whose agents see nothing of this machine's own set-up."""
    environment = {"PATH": os.environ["PATH"]}
    return Attempts(m.journal, SystemClock(), dialect=kinds.dialect, folder=home, environment=environment)


async def go_on(attempts: Attempts, folder: Path, kind: str, task: str) -> Attempt:
    """Whatever is left to do, until the agent has ended."""
    try:
        await attempts.get("a")
    except maos.NotFound:
        running = await attempts.start(task, kind=kind, name="a", cwd=folder, in_place=True, time_limit_s=120)
    else:
        running = await attempts.resume("a", task=task)
    ack("running")
    return await running.wait()


async def live(database: str, home: Path, folder: Path, kind: str, task: str) -> None:
    async with maos.open(database) as m:
        attempts = engine(m, home)
        try:
            await go_on(attempts, folder, kind, task)
        finally:
            await attempts.close()


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], sys.argv[5]))
