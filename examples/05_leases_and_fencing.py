"""One writer at a time, even if one of them is stopped for longer than its lease.

A lease is the right to act on a name until a time. Its token grows with every new owner and is checked inside the
transaction that writes, so a process that was stopped, and whose lease has expired meanwhile, cannot write.

    one holds the lease with token 1
    two is refused while it is valid: None
    two holds it now, with token 2
    one wakes up: lease deploy with token 1 is not valid: the newest token is 2 (...)
    deploy/log: ['one began', 'two took over']
"""

import asyncio
import sys

import maos

PATH = sys.argv[1] if len(sys.argv) > 1 else ":memory:"


def note(text: str) -> maos.Event:
    return maos.Event("noted", {"text": text})


async def main() -> None:
    async with maos.open(PATH, types=[maos.EventType("noted")]) as m:
        one = await m.journal.acquire("deploy", owner="one", ttl_s=0.2)
        assert one is not None
        print(f"one holds the lease with token {one.token}")
        await m.journal.append("deploy/log", note("one began"), under=one)
        print(f"two is refused while it is valid: {await m.journal.acquire('deploy', owner='two', ttl_s=30)}")

        await asyncio.sleep(0.3)  # one is stopped, does not renew, and knows nothing of it

        two = await m.journal.acquire("deploy", owner="two", ttl_s=30)
        assert two is not None
        print(f"two holds it now, with token {two.token}")
        await m.journal.append("deploy/log", note("two took over"), under=two)
        try:
            await m.journal.append("deploy/log", note("one goes on"), under=one)
        except maos.LeaseLost as error:
            print(f"one wakes up: {error}")

        print(f"deploy/log: {[record.data['text'] async for record in m.journal.read('deploy/log')]}")


asyncio.run(main())
