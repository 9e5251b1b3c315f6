"""An engine that tests kill or stop: `python -m tests.holder.engine_life start|attach FOLDER TOKEN AFTER`.

Reports what it was told: the offset of each group of records, and why it had to stop.
"""

import asyncio
import sys
from pathlib import Path

from maos.errors import MaosError
from maos.holder.agent_process import AgentProcess
from maos.holder.client import attach, start
from maos_testing.crash import ack
from tests.holder.agents import sh

SCRIPT = 'echo up; echo $$ >> "$PROOF"; read x; echo got $x'


async def begin(folder: Path, token: int) -> AgentProcess:
    proof = folder.parent / "proof"
    return await start(folder, sh(SCRIPT, token=token, keeps_input_open=True, env={"PROOF": str(proof)}))


async def main() -> None:
    how, folder, token, after = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    if how == "start":
        process = await begin(folder, token)
        ack(process.pid)
        await process.detach()
        return
    process = await attach(folder, token=token, after=after)
    ack("attached")
    try:
        while await process.records():
            pass
    except MaosError as error:
        ack(type(error).__name__)
    try:
        await attach(folder, token=token, after=after)
    except MaosError as error:
        ack(type(error).__name__)


if __name__ == "__main__":
    asyncio.run(main())
