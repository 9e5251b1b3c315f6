"""An engine's life, to be killed: starts the agent `a`, or takes it up, and waits until it has ended.

python engine_life.py DATABASE HOME FOLDER
"""

import asyncio
import sys
from pathlib import Path

import maos
from maos_testing.crash import ack

SCRIPT = """
echo begun >> starts
read first; echo "got $first"
read second; echo "got $second"
for i in 1 2 3 4 5; do echo "line $i"; sleep 0.01; done
echo finished >> ends
"""


async def live(database: str, home: Path, folder: Path) -> None:
    async with maos.open(database, home=home) as m:
        try:
            await m.agents.get("a")
        except maos.NotFound:
            await m.journal.append("inbox/a", maos.Event("message_sent", {"text": "one"}), key="one")
            await m.journal.append("inbox/a", maos.Event("message_sent", {"text": "two"}), key="two")
            argv = ["sh", "-c", SCRIPT]
            running = await m.agents.start(argv=argv, cwd=folder, name="a", in_place=True, takes_input=True)
        else:
            running = await m.agents.adopt("a")
        if running is not None:
            attempt = await running.wait()
            ack(attempt.status)


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
