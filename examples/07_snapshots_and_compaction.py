"""Snapshots to restore, and compaction of a long history.

A snapshot is a stored copy of a state; a checkpoint is a name for a version. Compaction replaces many events by one:
versions keep their numbers and later hashes still verify, but versions inside the range can no longer be read.

    snapshot before-merge holds version 51: full, 7 times smaller than plain
    compaction would put 1 event in the place of 53
    compaction did, and recorded it as version 64
    version 20: agent 'writer' no longer has version 20: versions 1 to 53 were compacted into one (...)
    version 60 has 58 lines
    restored: version 65 has 50 lines again
    verify: ok
"""

import asyncio
import sys

import maos

PATH = sys.argv[1] if len(sys.argv) > 1 else ":memory:"


async def write_lines(m: maos.Maos, first: int, last: int) -> None:
    for number in range(first, last + 1):
        await m.state.update("writer", {"lines": maos.Extend([f"line {number} of the report"])})


async def main() -> None:
    async with maos.open(PATH) as m:
        await m.state.create("writer", {"lines": []})
        await write_lines(m, 1, 50)
        info = await m.state.snapshot("writer", name="before-merge", retention=maos.Retention(critical=True))
        smaller = f"{info.ratio:.0f} times smaller than plain"
        print(f"snapshot {info.name} holds version {info.version}: {info.kind}, {smaller}")
        await write_lines(m, 51, 61)

        preview = await m.state.compact("writer", keep_last=10, dry_run=True)
        print(f"compaction would put {preview.events_after} event in the place of {preview.events_before}")
        done = await m.state.compact("writer", keep_last=10)
        print(f"compaction did, and recorded it as version {done.version}")
        try:
            await m.state.at("writer", version=20)
        except maos.NotFound as error:
            print(f"version 20: {error}")
        print(f"version 60 has {len((await m.state.at('writer', version=60)).data['lines'])} lines")

        restored = await m.state.restore("writer", "before-merge")
        state = await m.state.get("writer")
        print(f"restored: version {restored.version} has {len(state.data['lines'])} lines again")
        print(f"verify: {'ok' if (await m.verify()).ok else 'damaged'}")


asyncio.run(main())
