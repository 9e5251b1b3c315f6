"""A process that takes a run somewhere, to be killed on the way.

python travel_life.py DATABASE HOME rollback|fork|join RUN WHAT
"""

import asyncio
import sys
from pathlib import Path

import maos
from maos.app import Maos
from maos.clock import SystemClock
from maos.engine import ownership
from maos.travel import points_in_time
from maos.travel.service import TimeTravel
from maos_testing.crash import ack


async def go(m: Maos, what: str, id: str, where: str) -> str:
    """Do it, or finish it; returns the id of the run that it is about."""
    if what == "join":
        return (await TimeTravel(m.journal, SystemClock(), m.runs, m.agents).join(id, where, policy="theirs")).run
    travel = TimeTravel(m.journal, SystemClock(), m.runs, m.agents)
    moment = await points_in_time.named(m.journal, await m.runs.get(id), "mark")
    if what == "fork":
        return (await travel.fork(id, moment, into=where)).run
    return (await travel.rollback(id, moment)).run


async def live(database: str, home: Path, what: str, id: str, where: str) -> None:
    async with maos.open(database, home=home) as m:
        ack(await go(m, what, id, where))


if __name__ == "__main__":
    ownership.CLAIM_S = 0.5  # whoever comes after it was killed waits for so long
    asyncio.run(live(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
