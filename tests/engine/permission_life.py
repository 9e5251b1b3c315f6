"""An engine whose agent `a` asks for permissions, to be killed: starts the agent, or adopts it, until it has ended.

The first two requests are covered by a rule for the project; the third is answered by a person with `always`, which
makes a rule for the project; that rule covers the fourth. The person answers in the same process, so both can be killed
at any time.

python -m tests.engine.permission_life DATABASE HOME FOLDER
"""

import asyncio
import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path

import maos
from maos.app import Maos
from maos.engine import live, ownership
from maos.model.attempt import Attempt
from maos_testing.crash import ack

AGENT = Path(__file__).with_name("permission_agent.py")
COMMANDS = ("pytest -q", "pytest -x tests", "make docs && ls", "make docs && ls")


def kind(effects: Path, *commands: str) -> str:
    """The agent that asks for these commands, and notes the answers in a file."""
    return f"acp:{shlex.join([sys.executable, str(AGENT), str(effects), *commands])}"


async def answer(m: Maos) -> None:
    """Answer whatever a person is asked."""
    while True:
        for each in await m.questions.open():
            with suppress(maos.NotFound):  # answered meanwhile
                await m.questions.answer(each.ref, "always", scope="project")
        await asyncio.sleep(0.02)


async def run(database: str, home: Path, folder: Path) -> Attempt:
    os.environ["MAOS_HOME"] = str(folder / "state")
    async with maos.open(database, home=home) as m:
        await m.permissions.add("Bash(pytest *)", scope="project", of=str(folder))
        attempt = await m.agents.newest("a")
        if attempt is None:
            agent = kind(folder / "effects", *COMMANDS)
            running = await m.agents.start("ask", kind=agent, name="a", cwd=folder, in_place=True)
        elif attempt.status == "done":
            return attempt
        else:
            found = await m.agents.adopt("a") if attempt.is_open else None
            if found is None and (await m.agents.get("a")).status == "done":
                return await m.agents.get("a")
            running = found or await m.agents.resume("a")
        answering = asyncio.create_task(answer(m))
        try:
            async with asyncio.timeout(60):
                return await running.wait()
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)


if __name__ == "__main__":
    live.RULES_LOOK_S = 0.05
    ownership.CLAIM_S = 1.0
    ended = asyncio.run(run(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
    ack(ended.status.value)
