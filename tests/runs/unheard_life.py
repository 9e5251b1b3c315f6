"""A run with one task for Codex, begun or resumed until it has ended.

python -m tests.runs.unheard_life DATABASE HOME FOLDER
"""

import asyncio
import sys
from pathlib import Path

import maos
from maos.app import Maos
from maos.model.run import Run
from maos_testing.crash import ack

PLAN = {"tasks": [{"name": "a", "task": "WAIT and work"}]}


async def work(m: Maos, folder: Path) -> Run:
    """Begin the run, or resume it; returns when it has ended."""
    known = [run async for run in m.runs.all()]
    run = known[0] if known else await m.runs.start(PLAN, folder=folder, options={"kind": "codex", "in_place": True})
    return await m.runs.execute(run.id)


async def live(database: str, home: Path, folder: Path) -> None:
    async with maos.open(database, home=home) as m:
        ack((await work(m, folder)).status)


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
