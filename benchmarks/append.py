"""Durable appends: 300-byte events, each acknowledged on disk, by 1, 64 and 512 concurrent writers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from benchmarks import ours
from benchmarks.measure import Figures, Missing, Report, Rounds, Row, Subject, Timer, interleave, steady
from benchmarks.peers import apsw_each, apsw_group, asyncpg_each, asyncpg_unnest
from benchmarks.scratch import Scratch
from benchmarks.workload import Note, notes

Append = Callable[[Note], Awaitable[object]]
Store = AbstractAsyncContextManager[Callable[[str], Append]]
Run = Callable[[], Awaitable[Figures]]

FULL = "bare apsw, a commit per event"
GROUP = "bare apsw group commit"
CONNECTIONS = "asyncpg, 64 connections"
UNNEST = "bare asyncpg unnest group commit"
RATE = "events/s"


async def append_all(store: Store, writers: int, events: list[Note]) -> Figures:
    """Share the events among the writers; each waits for one acknowledgement before it appends the next."""

    async def write(append: Append, share: list[Note]) -> None:
        for note in share:
            await append(note)

    async with store as writer:
        pens = [writer(f"run/{number}") for number in range(writers)]
        for _ in range(2):  # connections prepare their statements, caches fill
            await asyncio.gather(*(pen(events[0]) for pen in pens))
        with steady(collect=True), Timer() as timer:
            await asyncio.gather(*(write(pen, events[n::writers]) for n, pen in enumerate(pens)))
    return {RATE: len(events) / timer.seconds}


async def measure(scratch: Scratch, quick: bool) -> Report:
    """All four tables and the six goals."""
    rounds, scale, seconds = (7, 2, 20.0) if quick else (15, 4, math.inf)
    events = notes(8_000 * scale)

    def on_sqlite(writers: int, count: int, store: Callable[[Path], Store]) -> Run:
        async def run() -> Figures:
            with scratch.directory() as directory:
                return await append_all(store(directory), writers, events[: count * scale])

        return run

    one = await interleave(
        "append, 1 writer, SQLite",
        [
            Subject(FULL, on_sqlite(1, 250, apsw_each.inline)),
            ours.subject(on_sqlite(1, 250, ours.journal_in)),
        ],
        2 * rounds,  # one fsync after the other is the noisiest figure, so more of it
        seconds=seconds,
    )
    many = await interleave(
        "append, 64 writers, SQLite",
        [
            Subject(FULL, on_sqlite(64, 800, apsw_each.threaded)),
            Subject(GROUP, on_sqlite(64, 8_000, apsw_group.group)),
            ours.subject(on_sqlite(64, 8_000, ours.journal_in)),
        ],
        rounds,
        seconds=seconds,
    )
    crowd = await interleave(
        "append, 512 writers, SQLite",
        [
            Subject(GROUP, on_sqlite(512, 8_000, apsw_group.group)),
            ours.subject(on_sqlite(512, 8_000, ours.journal_in)),
        ],
        rounds,
        seconds=seconds,
    )
    postgres = await interleave(
        "append, 64 writers, PostgreSQL",
        on_postgres(scratch, events[: 1_500 * scale], events[: 8_000 * scale]),
        rounds,
        seconds=seconds,
    )
    rows = [
        one.row("append.1.vs_bare_full", ours.NAME, FULL, RATE, ">= 0.9"),
        many.row("append.64.vs_bare_group", ours.NAME, GROUP, RATE, ">= 0.7"),
        many.row("append.64.vs_bare_full", ours.NAME, FULL, RATE, ">= 20"),
        crowd.row("append.512.vs_bare_group", ours.NAME, GROUP, RATE, ">= 0.5"),
        *postgres_rows(postgres),
    ]
    return Report([one, many, crowd, postgres], rows)


def on_postgres(scratch: Scratch, few: list[Note], many: list[Note]) -> list[Subject | Missing]:
    """64 writers on PostgreSQL, a new database for every system and round; the slow peer gets fewer events."""

    async def connections() -> Figures:
        url = await scratch.database()
        return await append_all(asyncpg_each.each(url, 64), 64, few)

    async def unnest() -> Figures:
        url = await scratch.database()
        return await append_all(asyncpg_unnest.group(url), 64, many)

    async def maos() -> Figures:
        url = await scratch.database()
        return await append_all(ours.journal(url), 64, many)

    return [
        Subject(CONNECTIONS, connections),
        Subject(UNNEST, unnest),
        ours.subject(maos, ours.NAME_POSTGRES),
    ]


def postgres_rows(rounds: Rounds) -> list[Row]:
    """The two goals on PostgreSQL."""
    return [
        rounds.row("append.pg64.vs_unnest", ours.NAME_POSTGRES, UNNEST, RATE, ">= 0.7"),
        rounds.row("append.pg64.vs_connections", ours.NAME_POSTGRES, CONNECTIONS, RATE, ">= 5"),
    ]
