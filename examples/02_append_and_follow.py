"""The journal itself: events in streams, and a reader that follows them live.

A follower sees every event once, in order, from the position it asks for. Nothing is polled: an append wakes it, in
this process or in another one on the same file.

    appended build/17@1 at position 1
    appended build/18@1 at position 2
    followed 1 build/17@1 {'step': 'compile'}
    followed 2 build/18@1 {'step': 'compile'}
    followed 3 build/17@2 {'step': 'test', 'passed': 212}
"""

import asyncio
import sys

import maos

PATH = sys.argv[1] if len(sys.argv) > 1 else ":memory:"


async def follow(m: maos.Maos, count: int) -> None:
    async for record in m.journal.follow(prefix="build/"):
        print(f"followed {record.position} {record.id} {record.data}")
        if record.position == count:
            return


async def main() -> None:
    # Event types are named when the journal is opened: a misspelt one is refused, not stored.
    async with maos.open(PATH, types=[maos.EventType("step_done")]) as m:
        for build in ("build/17", "build/18"):
            reply = await m.journal.append(build, maos.Event("step_done", {"step": "compile"}))
            print(f"appended {build}@{reply.version} at position {reply.position}")

        follower = asyncio.create_task(follow(m, 3))
        await asyncio.sleep(0.05)  # it has read what was there and waits
        await m.journal.append("build/17", maos.Event("step_done", {"step": "test", "passed": 212}))
        await follower


asyncio.run(main())
