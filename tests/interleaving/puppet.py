"""A process that does to a store what it is told: one JSON object per line in, one or more out."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from maos.clock import SystemClock
from maos.errors import Conflict, LeaseLost, MaosError
from maos.ids import incarnation
from maos.store import postgres, sql_store, sqlite
from maos.store.contract import Key, RawEvent, Write
from maos.store.postgres import PostgresDatabase
from maos.store.sql_store import SqlStore
from maos.store.sqlite import SqliteDatabase


class WrongClock(SystemClock):
    """The machine's clock, and somebody has set it wrong."""

    def __init__(self, ahead_s: float) -> None:
        self._ahead_us = int(ahead_s * 1_000_000)

    def now_us(self) -> int:
        return super().now_us() + self._ahead_us


def say(**answer: object) -> None:
    print(json.dumps(answer), flush=True)


async def listen() -> dict[str, Any]:
    line = await asyncio.to_thread(sys.stdin.readline)
    if not line:
        raise SystemExit(0)  # our master is gone
    return json.loads(line)  # type: ignore[no-any-return]


async def open_store(
    place: str, mark: str, schema: str = "maos", clock_ahead_s: float = 0, idle_ms_max: int = 5_000
) -> SqlStore:
    clock = WrongClock(clock_ahead_s)
    postgres.IDLE_MS_MAX = idle_ms_max
    if place.startswith("postgresql://"):
        return await SqlStore.open(PostgresDatabase(place, clock=clock, schema_name=schema, mark_path=Path(mark)))
    return await SqlStore.open(SqliteDatabase(Path(place), clock=clock))


def note(stream: str, body: str, expected: int | None = None) -> Write:
    return Write(stream, [RawEvent("noted", 1, body.encode())], expected)


async def append_many(store: SqlStore, me: str, streams: list[str], count: int, width: int) -> None:
    """Append from several tasks; tell of each append once it is acknowledged."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            stream, body = streams[number % len(streams)], f"{me} {number}"
            reply = await store.append(note(stream, body))
            say(ack=[stream, reply.version, reply.position, body])

    await asyncio.gather(*(work() for _ in range(width)))


async def race(store: SqlStore, me: str, stream: str, until: int) -> None:
    """Want each next version of a stream, as others do; tell of those that were won."""
    lost = 0
    while (version := await store.version(stream)) < until:
        try:
            await store.append(note(stream, me, expected=version))
        except Conflict:
            lost += 1
        else:
            say(won=version + 1)
    say(lost=lost)


async def follow(store: SqlStore, until: int) -> None:
    """Read the journal as it grows, without ever looking back; tell what came."""
    seen: list[int] = []
    while len(seen) < until:
        after = seen[-1] if seen else 0
        await store.wait(after=after, timeout_s=60)
        seen += [event.position for event in await store.read_log(after=after, limit=7)]
    say(seen=seen)


async def hear(store: SqlStore, rounds: int) -> None:
    """Wait for others to write, without ever looking unasked; tell when each wake-up came."""
    sql_store.POLL_S = 600.0
    for _ in range(rounds):
        head = await store.head()
        say(waiting=head)
        position = await store.wait(after=head, timeout_s=60)
        say(woken=position, at_ns=time.monotonic_ns())


async def act_under_lease(
    store: SqlStore, me: str, name: str, stream: str, ttl_s: float, stop_at: str = "", busy: bool = False
) -> None:
    """Append under a lease until it is lost; never look whether it still is ours, as a bad program would not.

    At its fourth append it stops itself, at a named place, until somebody wakes it.
    """
    number = 0

    def stop_here(place: str) -> None:
        nonlocal stop_at
        if place == stop_at and number == 3:
            stop_at = ""
            say(stopping=place)
            os.kill(os.getpid(), signal.SIGSTOP)

    postgres.crash_point = sqlite.crash_point = stop_here
    # A thread that looks after the log might be stopped while it holds the lock; here only the append is to be stopped.
    store.database.needs_maintenance = lambda: False  # type: ignore[method-assign]
    lease = await store.acquire(name, owner=me, ttl_s=60)
    assert lease is not None
    say(token=lease.token)
    while True:
        await store.renew(lease, ttl_s=60 if number < 3 else ttl_s)
        stop_here("before an append")
        try:
            # A key makes PostgreSQL take the long way, a transaction of several statements.
            key = Key(f"{me} {number}", b"") if busy else None
            reply = await store.append(note(stream, me), under=lease, key=key)
        except LeaseLost:
            say(fenced=True)
            return
        say(ack=reply.version)
        number += 1


async def take_turns(store: SqlStore, me: str, name: str, stream: str, turns: int) -> None:
    """Take a lease, append a little under it, release it; again and again, beside others who do so too."""
    taken = fenced = 0
    for number in range(turns * 100):
        lease = await store.acquire(name, owner=me, ttl_s=60)
        if lease is None:
            await asyncio.sleep(0.001)
            continue
        taken += 1
        try:
            for _ in range(3):
                body = f"{me} {number} {lease.token}"
                reply = await store.append(note(stream, body), under=lease)
                say(ack=[stream, reply.version, reply.position, body])
        except LeaseLost:
            fenced += 1
        await store.release(lease)
        if taken >= turns:
            break
    say(taken=taken, fenced=fenced)


async def main() -> None:
    store: SqlStore | None = None
    say(ready=incarnation())
    while True:
        command = await listen()
        task = command.pop("do")
        if task == "end":
            break
        try:
            if task == "open":
                store = await open_store(**command)
            else:
                assert store is not None
                await globals()[task](store, **command)
        except MaosError as error:
            say(failed=f"{type(error).__name__}: {error}")
        else:
            say(done=task)
    if store is not None:
        await store.close()


if __name__ == "__main__":
    asyncio.run(main())
