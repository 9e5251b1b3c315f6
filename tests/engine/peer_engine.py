"""An engine that runs, adopts or resumes the agent `a`, an agent of the Agent Client Protocol without a model.

python peer_engine.py DATABASE HOME FOLDER TIME_LIMIT_S STEPS [OPTION...]
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import maos
from maos.app import Maos
from maos.engine.live import LiveAttempt

PEER = Path(__file__).parents[1] / "agents" / "acp" / "peer.py"


async def start(
    m: Maos,
    folder: Path,
    *steps: dict[str, Any],
    name: str = "a",
    options: tuple[str, ...] = (),
    time_limit_s: float = 0,
) -> LiveAttempt:
    """Start the agent with its steps."""
    return await m.agents.start(
        json.dumps(steps),
        name=name,
        kind="acp",
        argv=[sys.executable, str(PEER), *options],
        cwd=folder,
        in_place=True,
        time_limit_s=time_limit_s,
    )


async def live(database: str, home: Path, folder: Path, time_limit_s: float, steps: str, *options: str) -> None:
    async with maos.open(database, home=home) as m:
        try:
            await m.agents.get("a")
        except maos.NotFound:
            running = await start(m, folder, *json.loads(steps), options=options, time_limit_s=time_limit_s)
        else:
            running = await m.agents.resume("a")
        await running.wait()


if __name__ == "__main__":
    database, home, folder, limit, *rest = sys.argv[1:]
    asyncio.run(live(database, Path(home), Path(folder), float(limit), *rest))
