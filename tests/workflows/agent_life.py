"""A workflow with an agent that waits for a file, to be killed: makes it, or goes on with it until it has ended.

python agent_life.py DATABASE HOME FOLDER
"""

import asyncio
import sys
from pathlib import Path

import maos
from maos.workflows import agent

SCRIPT = "echo x >> begun; until [ -e go ]; do sleep 0.02; done; echo built"


@maos.workflow(name="agent-life-build")
async def build(folder: str) -> str:
    return await agent(argv=["sh", "-c", SCRIPT], cwd=folder, in_place=True)


async def live(database: str, home: Path, folder: Path) -> str:
    async with maos.open(database, home=home) as m:
        return str(await m.workflows.run(build, str(folder), id="b"))


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
