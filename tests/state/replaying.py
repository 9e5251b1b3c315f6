"""Replays a history and prints what it comes to: `python -m tests.state.replaying events.json | journal.db`.

Given events, it needs nothing but the pure part of maos, and complains when folding them opens, starts, imports or
connects to anything.
"""

import asyncio
import hashlib
import json
import sys
from typing import Any

from maos.model import changes, checksum

FORBIDDEN = ("open", "os.", "socket.", "subprocess.", "import", "shutil.", "tempfile.", "glob.", "urllib.", "ctypes.")
heard: list[str] = []


def canonical(state: dict[str, Any]) -> str:
    """A state as bytes that are the same wherever it was built, hashed."""
    text = json.dumps(state, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def fold(events: list[dict[str, Any]]) -> list[list[str]]:
    """The checksum and the hash of the state after each event."""
    total, state = checksum.EMPTY, {}
    found = []
    for event in events:
        shown = list(changes.changes(state, event["ops"]))
        assert bool(shown) == bool(event["ops"])
        total, state = checksum.after(total, state, event["ops"])
        assert total == checksum.checksum(state)
        found.append([checksum.text(total), canonical(state)])
    return found


async def fold_journal(path: str) -> list[list[str]]:
    """The same through the whole of maos."""
    import maos

    found = []
    async with maos.open(path) as m:
        for version in range(1, await m.journal.version("agent/a") + 1):
            state = (await m.state.replay("a", 1, version)).state
            found.append([state.checksum, canonical(state.raw())])
    return found


def main() -> None:
    name = sys.argv[1]
    if not name.endswith(".json"):
        print(json.dumps(asyncio.run(fold_journal(name))))
        return
    with open(name, encoding="utf-8") as file:
        events = json.load(file)
    fold(events[:1])  # whatever is loaded on first use
    listening = True

    def hook(event: str, _arguments: Any) -> None:
        if listening and event.startswith(FORBIDDEN):
            heard.append(event)

    sys.addaudithook(hook)
    found = fold(events)
    listening = False
    assert heard == [], heard
    print(json.dumps(found))


if __name__ == "__main__":
    main()
