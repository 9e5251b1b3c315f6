"""An engine with many busy agents, to be killed again and again.

    python busy_engine.py DATABASE HOME FOLDER AGENTS LINES

Starts the agents that do not exist, takes up those that do, and reports their number once all of them are heard.
"""

import asyncio
import sys
from pathlib import Path

import maos
from maos_testing.crash import ack

SCRIPT = """
import sys, time
lines = int(sys.argv[1])
begun = time.monotonic()
for number in range(lines):
    print("line", number, flush=True)
    time.sleep(max(0, begun + number / 200 - time.monotonic()))
"""


async def live(database: str, home: Path, folder: Path, agents: int, lines: int) -> None:
    async with maos.open(database, home=home) as m:
        known = {attempt.agent async for attempt in m.agents.all()}
        adopted = await asyncio.gather(*map(m.agents.adopt, known))
        running = [each for each in adopted if each is not None]
        for number in range(agents):
            if f"a{number}" not in known:
                argv = [sys.executable, "-S", "-c", SCRIPT, str(lines)]
                running.append(
                    await m.agents.start(argv=argv, cwd=folder, name=f"a{number}", in_place=True, time_limit_s=3600)
                )
        ack(sum(each.attempt.is_open for each in running))
        await asyncio.gather(*(each.wait() for each in running))


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])))
