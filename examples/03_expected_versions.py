"""Two writers, one decision: an append that names the version it was decided from.

Both writers see the task free and both try to take it. Exactly one append succeeds; the other is refused, because the
stream has a newer version, and nothing is written. One append can also extend several streams, all or none of them.

    ada: took task/1
    ben: task/1 is at version 2, expected 1 (read the stream again and repeat with its version)
    ben: took task/2
    both streams moved together: log/tasks is at version 2
"""

import asyncio
import sys

import maos

PATH = sys.argv[1] if len(sys.argv) > 1 else ":memory:"
TYPES = [maos.EventType("opened"), maos.EventType("taken")]


async def take(m: maos.Maos, who: str, task: str, seen: int) -> bool:
    try:
        await m.journal.append_all(
            [
                maos.Append(task, [maos.Event("taken", {"by": who})], expected=seen),
                maos.Append("log/tasks", [maos.Event("taken", {"task": task, "by": who})]),
            ]
        )
    except maos.Conflict as error:
        print(f"{who}: {error}")
        return False
    print(f"{who}: took {task}")
    return True


async def main() -> None:
    async with maos.open(PATH, types=TYPES) as m:
        for task in ("task/1", "task/2"):
            await m.journal.append(task, maos.Event("opened", {}), expected=0)

        seen = await m.journal.version("task/1")  # both decide from this version
        await take(m, "ada", "task/1", seen)
        if not await take(m, "ben", "task/1", seen):
            await take(m, "ben", "task/2", await m.journal.version("task/2"))

        print(f"both streams moved together: log/tasks is at version {await m.journal.version('log/tasks')}")


asyncio.run(main())
