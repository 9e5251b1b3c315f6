"""An agent's state: created once, changed in parts, read again by the next process.

Run it twice: the second run continues where the first one ended.

    created reviewer at version 1
    version 2: /status 'idle' -> 'busy'
    version 2: /files_read MISSING -> 1
    reviewer has read 1 files and is busy
"""

import asyncio
import sys

import maos

PATH = sys.argv[1] if len(sys.argv) > 1 else "maos.db"


async def main() -> None:
    async with maos.open(PATH) as m:
        try:
            state = await m.state.get("reviewer")
            print(f"found reviewer at version {state.version}")
        except maos.NotFound:
            state = await m.state.create("reviewer", {"status": "idle"}, source="example")
            print(f"created reviewer at version {state.version}")

        # Name only what changes. When `update` returns, the change is on disk.
        files_read = state.data.get("files_read", 0) + 1
        update = await m.state.update("reviewer", {"status": "busy", "files_read": files_read})
        for change in update.changes:
            old = "MISSING" if change.old is maos.MISSING else repr(change.old)
            print(f"version {update.version}: {change.path} {old} -> {change.new!r}")

    async with maos.open(PATH) as m:
        state = await m.state.get("reviewer")
        print(f"reviewer has read {state.data['files_read']} files and is {state.data['status']}")


asyncio.run(main())
