"""The state at any version or time, the difference of two versions, and a rollback that rewrites nothing.

version 1: {'plan': 'draft', 'budget': 100}
at that time: {'plan': 'draft', 'budget': 100}
from 1 to 3: /plan update, /budget update
rolled back: version 4 equals version 1: True
1 instance_created
2 state_updated
3 state_updated
4 rolled_back
replayed 4 events, every checksum reproduced: True
"""

import asyncio
import sys

import maos

PATH = sys.argv[1] if len(sys.argv) > 1 else ":memory:"


async def main() -> None:
    async with maos.open(PATH) as m:
        first = await m.state.create("planner", {"plan": "draft", "budget": 100})
        await asyncio.sleep(0.01)
        await m.state.update("planner", {"plan": "final"})
        await m.state.update("planner", {"budget": -5})

        print(f"version 1: {(await m.state.at('planner', version=1)).to_dict()}")
        print(f"at that time: {(await m.state.at('planner', time=first.time_us)).to_dict()}")
        changes = await m.state.diff("planner", 1, 3)
        print(f"from 1 to 3: {', '.join(f'{change.path} {change.kind}' for change in changes)}")

        update = await m.state.rollback("planner", 1)  # appends version 4; 2 and 3 stay readable
        print(f"rolled back: version {update.version} equals version 1: {update.checksum == first.checksum}")
        for version in await m.state.history("planner"):
            print(version.version, version.type)

        replay = await m.state.replay("planner", 1, 4)
        print(f"replayed {replay.events} events, every checksum reproduced: {replay.verified}")


asyncio.run(main())
