"""200 durable updates of 1 KB on agent states of 10 KB and 200 KB: speed, and bytes on disk."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from benchmarks import ours
from benchmarks.measure import Figures, Report, Rounds, Row, Subject, Timer, interleave, steady
from benchmarks.peers.apsw_delta import BareDelta
from benchmarks.peers.dbos_sqlite import Dbos
from benchmarks.peers.langgraph_delta import Loop
from benchmarks.peers.langgraph_savers import Thread, open_postgres, open_sqlite
from benchmarks.scratch import Scratch, size
from benchmarks.workload import Message, State, messages, state

UPDATES = 200
RATE = "updates/s"
DISK = "disk KB"

BARE = "bare apsw delta"
SQLITE_SAVER = "langgraph SqliteSaver"
DELTA = "langgraph DeltaChannel"
DBOS = "DBOS on SQLite"
POSTGRES_SAVER = "langgraph PostgresSaver"


class Peer(Protocol):
    """A store that holds the initial state and makes one durable update per message."""

    def grow(self, messages: list[Message]) -> None:
        """One durable update per message."""

    def close(self) -> None:
        """Close all files."""


def delta_loop(directory: Path, initial: State) -> Loop:
    """The graph loop with its initial state stored."""
    loop = Loop(open_sqlite(directory))
    loop.start(initial)
    return loop


def speed(peer: Peer, script: list[Message]) -> Figures:
    """How fast a peer makes the updates; it is closed afterwards."""
    try:
        with steady(collect=True), Timer() as timer:
            peer.grow(script)
    finally:
        peer.close()
    return {RATE: len(script) / timer.seconds}


async def our_speed(where: str, initial: State, script: list[Message]) -> Figures:
    """How fast maos makes the same updates."""
    async with ours.agents(where) as agents:
        created = await agents.create(ours.AGENT, initial)
        with steady(collect=True), Timer() as timer:
            await ours.grow(agents, created.version, script)
    return {RATE: len(script) / timer.seconds}


async def at_size(scratch: Scratch, kilobytes: int, rounds: int, seconds: float) -> Rounds:
    """All systems on a state of one size."""
    initial, script = state(kilobytes), messages(UPDATES)

    def on_sqlite(open_peer: Callable[[Path], Peer]) -> Callable[[], Awaitable[Figures]]:
        async def run() -> Figures:
            with scratch.directory() as directory:
                return {**speed(open_peer(directory), script), DISK: size(directory) / 1_000}

        return run

    async def maos_on_sqlite() -> Figures:
        with scratch.directory() as directory:
            figures = await our_speed(ours.in_directory(directory), initial, script)
            return {**figures, DISK: size(directory) / 1_000}

    async def postgres_saver() -> Figures:
        return speed(Thread(open_postgres(await scratch.database()), initial), script)

    async def maos_on_postgres() -> Figures:
        return await our_speed(await scratch.database(), initial, script)

    subjects = [
        Subject(BARE, on_sqlite(lambda directory: BareDelta(directory, initial))),
        ours.subject(maos_on_sqlite),
        Subject(SQLITE_SAVER, on_sqlite(lambda directory: Thread(open_sqlite(directory), initial))),
        Subject(DELTA, on_sqlite(lambda directory: delta_loop(directory, initial))),
        Subject(DBOS, on_sqlite(Dbos)),
        Subject(POSTGRES_SAVER, postgres_saver),
        ours.subject(maos_on_postgres, ours.NAME_POSTGRES),
    ]
    title = f"state, {UPDATES} updates of 1 KB on {kilobytes} KB"
    return await interleave(title, subjects, rounds, seconds=seconds)


def rows(size: str, rounds: Rounds, saver: str, postgres_saver: str, saver_disk: str) -> list[Row]:
    """The six goals of one size; those against langgraph's savers differ by size."""
    maos, on_postgres = ours.NAME, ours.NAME_POSTGRES
    return [
        rounds.row(f"state.{size}.speed_vs_bare_delta", maos, BARE, RATE, ">= 0.7"),
        rounds.row(f"state.{size}.speed_vs_sqlitesaver", maos, SQLITE_SAVER, RATE, saver),
        rounds.row(f"state.{size}.speed_vs_dbos", maos, DBOS, RATE, ">= 7"),
        rounds.row(f"state.{size}.pg_speed_vs_postgressaver", on_postgres, POSTGRES_SAVER, RATE, postgres_saver),
        rounds.row(f"state.{size}.disk_vs_sqlitesaver", maos, SQLITE_SAVER, DISK, saver_disk),
        rounds.row(f"state.{size}.disk_vs_deltachannel", maos, DELTA, DISK, "<= 0.2"),
    ]


async def measure(scratch: Scratch, quick: bool) -> Report:
    """Both sizes and the twelve goals."""
    rounds, seconds = (7, 40.0) if quick else (15, math.inf)
    small = await at_size(scratch, 10, rounds, seconds)
    large = await at_size(scratch, 200, rounds, seconds)
    goals = rows("10k", small, ">= 1.7", ">= 8", "<= 0.01") + rows("200k", large, ">= 4", ">= 18", "<= 0.005")
    return Report([small, large], goals)
