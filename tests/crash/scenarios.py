"""The programs that crash tests kill: `python -m tests.crash.scenarios NAME PLACE [ARGUMENT]`.

Each reports what it is told the moment it is told. `STEPS` holds the appends of each program, so that the test knows
what to look for.
"""

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from maos.store.contract import Document, Store, Write
from maos_testing.crash import ack
from tests.crash.promises import Step, compaction, events, key
from tests.crash.stores import Place, place_from

LEASE_S = 600.0
WRITERS = 24


def append_steps() -> list[Step]:
    """Plain appends to two streams, of one page and of several."""
    sizes = (40, 40, 9_000, 40)
    return [
        Step((Write(f"run/{number % 2}", events(f"append {number}", 1 + number % 3, size)),))
        for number, size in enumerate(sizes)
    ]


def copy_steps() -> list[Step]:
    """What is there when a copy is made."""
    return append_steps()[:2]


def group_steps() -> list[Step]:
    """Appends made at the same time, some of one stream."""
    return [Step((Write(f"run/{number % 3}", events(f"group {number}", 2)),)) for number in range(8)]


def together_steps() -> list[Step]:
    """Appends to several streams at once, with a key and documents."""
    return [
        Step(
            (
                Write("run/1", events(f"together {number} run", 2), expected=2 * number),
                Write(f"inbox/{number}", events(f"together {number} inbox", 1, 5_000), expected=0),
            ),
            key(f"together {number}"),
            (
                Document("view", "run/1", number + 1, f"seen {number}".encode()),
                Document("view", f"only/{number - 1}", number + 1, None),
                Document("view", f"only/{number}", number, b"x" * 3_000),
            ),
        )
        for number in range(3)
    ]


def compaction_steps() -> list[Step]:
    """Appends, a compaction that merges most of them, one more append, and a compaction of the rest."""
    steps = [
        Step((Write("agent/a", events(f"before {number}", 3, 700)),), key(f"before {number}")) for number in range(2)
    ]
    steps.append(compaction("agent/a", 1, 4, "first compaction"))
    steps.append(Step((Write("agent/a", events("after")),), key("after")))
    steps.append(compaction("agent/a", 5, 6, "second compaction"))
    return steps


def lease_steps() -> list[Step]:
    """Appends made under a lease."""
    return [Step((Write("agent/a", events(f"under {number}")),)) for number in range(3)]


def abandon_steps() -> list[Step]:
    """Appends to a few streams, with keys and documents, for a journal that is to be damaged."""
    return [
        Step(
            (Write(f"run/{number % 3}", events(f"abandoned {number}", 1 + number % 2, 60 + number * 13)),),
            key(f"abandoned {number}"),
            (Document("view", f"run/{number % 3}", number, b"seen %d" % number),),
        )
        for number in range(10)
    ]


def upgrade_steps() -> list[Step]:
    """What is there before an upgrade, and one append after it."""
    return [Step((Write(f"run/{n}", events(f"upgrade {n}", 3, 900)),), key(f"upgrade {n}")) for n in range(4)]


STEPS: dict[str, Callable[[], list[Step]]] = {
    "append": append_steps,
    "group": group_steps,
    "together": together_steps,
    "compaction": compaction_steps,
    "lease": lease_steps,
    "abandon": abandon_steps,
    "upgrade": upgrade_steps,
    "copy": copy_steps,
}


async def take(store: Store, steps: list[Step], number: int) -> None:
    """Make one append and report its reply."""
    reply = await steps[number].take(store)
    ack([number, reply.position, reply.versions])


async def one_after_the_other(store: Store, steps: list[Step], _place: Place) -> None:
    for number in range(len(steps)):
        await take(store, steps, number)


async def at_the_same_time(store: Store, steps: list[Step], _place: Place) -> None:
    half = len(steps) // 2
    for numbers in (range(half), range(half, len(steps))):
        await asyncio.gather(*(take(store, steps, number) for number in numbers))


async def under_lease(store: Store, steps: list[Step], _place: Place) -> None:
    for number, step in enumerate(steps):
        lease = await store.acquire("agent/a", owner="program", ttl_s=LEASE_S)
        assert lease is not None
        ack(["acquired", lease])
        reply = await step.take(store, lease)
        ack(["appended", number, reply.position, reply.versions])
        await store.release(lease)
        ack(["released", lease])


async def then_killed(store: Store, steps: list[Step], place: Place) -> None:
    """Leaves everything in the log: a program that ends in order copies it into the database."""
    await one_after_the_other(store, steps, place)
    os.kill(os.getpid(), signal.SIGKILL)


async def after_upgrade(store: Store, steps: list[Step], _place: Place) -> None:
    ack(["open"])
    await take(store, steps, len(steps) - 1)


async def then_copied(store: Store, steps: list[Step], place: Place) -> None:
    await one_after_the_other(store, steps, place)
    position = await store.copy_to(Path(place.folder) / "copy")
    ack(["copied", position])


Program = Callable[[Store, list[Step], Place], Awaitable[None]]
PROGRAMS: dict[str, Program] = {
    "append": one_after_the_other,
    "group": at_the_same_time,
    "together": one_after_the_other,
    "compaction": one_after_the_other,
    "lease": under_lease,
    "abandon": then_killed,
    "upgrade": after_upgrade,
    "copy": then_copied,
}


def load_step(process: str, writer: int, number: int) -> Step:
    """One append of the load: every third with a key, every fifth to a stream that all writers share."""
    name = f"{process} {writer} {number}"
    stream = "shared" if number % 5 == 0 else f"writer/{writer}"
    writes = [Write(stream, events(name, 1 + number % 3, 40 + 700 * (number % 7 == 0)))]
    if number % 4 == 0:
        writes.append(Write(f"inbox/{writer % 3}", events(f"{name} inbox")))
    documents = (Document("cursor", f"{process} {writer}", number, b"%d" % number),) if number % 2 else ()
    return Step(tuple(writes), key(name) if number % 3 == 0 else None, documents)


async def load(store: Store, process: str) -> None:
    """Many writers, without end."""

    async def writer(this: int) -> None:
        for number in itertools.count():
            reply = await load_step(process, this, number).take(store)
            ack([this, number, reply.position, reply.versions])

    await asyncio.gather(*(writer(this) for this in range(WRITERS)))


async def main() -> None:
    name, place = sys.argv[1], place_from(sys.argv[2])
    async with place.open() as store:
        if name == "open":
            ack(["open", len(await store.read_log(limit=1_000))])
        elif name == "load":
            await load(store, sys.argv[3])
        else:
            await PROGRAMS[name](store, STEPS[name](), place)


if __name__ == "__main__":
    asyncio.run(main())
