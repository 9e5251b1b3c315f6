"""The same journal in PostgreSQL, shared by two nodes.

    python examples/08_postgresql.py postgresql://user:password@host/database

Both nodes (here: two connections of one program) see the events in the same order. Positions are assigned under a lock,
so a follower on any node never skips an event that is committed later. The program uses a schema of its own, which it
removes at the end.

    two nodes wrote 40 events
    a follower on the first node saw positions 1 to 40 in order: True
    the second node sees the first one's state at once: busy
    verify: ok
"""

import asyncio
import sys

import asyncpg

import maos

SCHEMA = "maos_example"
TYPES = [maos.EventType("ticked")]


async def write(node: maos.Maos, name: str) -> None:
    for number in range(20):
        await node.journal.append(f"node/{name}", maos.Event("ticked", {"number": number}))


async def follow(node: maos.Maos, count: int) -> list[int]:
    seen: list[int] = []
    async for record in node.journal.follow():
        seen.append(record.position)
        if len(seen) == count:
            break
    return seen


async def main(url: str) -> None:
    try:
        async with maos.open(url, types=TYPES, schema=SCHEMA) as a, maos.open(url, types=TYPES, schema=SCHEMA) as b:
            follower = asyncio.create_task(follow(a, 40))
            await asyncio.gather(write(a, "a"), write(b, "b"))
            seen = await follower
            print(f"two nodes wrote {len(seen)} events")
            print(f"a follower on the first node saw positions 1 to 40 in order: {seen == list(range(1, 41))}")

            await a.state.create("reviewer", {"status": "busy"})
            state = await b.state.get("reviewer")
            print(f"the second node sees the first one's state at once: {state.data['status']}")
            print(f"verify: {'ok' if (await b.verify()).ok else 'damaged'}")
    finally:
        connection = await asyncpg.connect(url)
        await connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        await connection.close()


if len(sys.argv) < 2:
    print("skipped: give the URL of a PostgreSQL database, e.g. postgresql://user:password@localhost/test")
else:
    asyncio.run(main(sys.argv[1]))
