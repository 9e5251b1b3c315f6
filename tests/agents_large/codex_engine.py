"""An engine that runs, takes up or resumes the agent `a` with the real Codex.

python -m tests.agents_large.codex_engine DATABASE HOME FOLDER URL TASK
"""

import asyncio
import sys
from pathlib import Path

import maos
from maos.agents import kinds
from maos.app import Maos
from maos.clock import SystemClock
from maos.engine.attempts import Attempts
from maos.model.attempt import Attempt
from maos_testing.crash import ack
from tests.agents_large.programs import environment


def engine(m: Maos, home: Path, url: str) -> Attempts:
    """An engine whose agents see nothing of this machine's own set-up."""
    return Attempts(m.journal, SystemClock(), dialect=kinds.dialect, folder=home, environment=environment("codex", url))


async def go_on(attempts: Attempts, folder: Path, task: str) -> Attempt:
    """Whatever is left to do, until the agent has ended."""
    try:
        known = await attempts.get("a")
    except maos.NotFound:
        running = await attempts.start(
            task, kind="codex", name="a", model="gpt-5.5", cwd=folder, in_place=True, permission="edits"
        )
    else:
        if known.status == "done":
            return known
        running = await attempts.resume("a")
    ack("running")
    return await running.wait()


async def live(database: str, home: Path, folder: Path, url: str, task: str) -> None:
    async with maos.open(database) as m:
        attempts = engine(m, home, url)
        try:
            await go_on(attempts, folder, task)
        finally:
            await attempts.close()


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], sys.argv[5]))
