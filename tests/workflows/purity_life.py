"""Replays what is recorded, and goes on with a workflow that waits: prints the digest of every fold.

python purity_life.py DATABASE [go]
"""

import asyncio
import hashlib
import sys
from typing import Any

import maos
from maos.engine.types import WORKFLOW_RUN
from maos.workflows import parallel, signal, unique


@maos.step
async def count(words: set[str], table: dict[str, set[int]]) -> dict[str, Any]:
    return {"words": words, "table": table}


async def branch(number: int) -> str:
    await count({f"{number}-{each}" for each in "abcdefgh"}, {each: {1, 2, 3} for each in "zyx"})
    return unique()


@maos.workflow(name="purity-life")
async def pure() -> list[str]:
    found = await parallel(branch, range(3))
    await signal("go")
    return found


async def digests(database: str) -> str:
    """Of every workflow, folded from its first event on."""
    found = []
    async with maos.open(database, create=False) as m:
        async for name in m.journal.streams("workflow/"):
            fold = WORKFLOW_RUN.fold(id=name.removeprefix("workflow/"))
            async for record in m.journal.read(name):
                fold.apply(record.event)
            found.append(hashlib.sha256(WORKFLOW_RUN.keep(fold).body or b"").hexdigest())
    return " ".join(found)


async def live(database: str, *, go: bool) -> None:
    async with maos.open(database) as m:
        handle = await m.workflows.start(pure, id="p")
        if go:
            await m.workflows.signal("p", "go")
            await handle.result()
        else:
            while not handle.run.waiting:
                await asyncio.sleep(0.005)


if __name__ == "__main__":
    if sys.argv[2:]:
        asyncio.run(live(sys.argv[1], go=sys.argv[2] == "go"))
    print(asyncio.run(digests(sys.argv[1])))
