"""Cached, version-checked reads of an agent's state of 10 KB and 200 KB."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks import ours
from benchmarks.measure import Figures, Report, Rounds, Subject, Timer, interleave, steady
from benchmarks.peers.langgraph_savers import Thread, newest, open_sqlite
from benchmarks.scratch import Scratch
from benchmarks.workload import state

TIME = "us"
SAVER = "langgraph SqliteSaver.get_tuple"


async def at_size(directory: Path, kilobytes: int, rounds: int) -> Rounds:
    """Both systems on a state of one size; the stores stay open, as in a program that reads often."""
    initial = state(kilobytes)
    wanted = len(initial["messages"])
    async with AsyncExitStack() as stack:
        saver = open_sqlite(directory)
        stack.callback(saver.conn.close)
        Thread(saver, initial)

        async def sqlite_saver(reads: int = 200) -> Figures:
            with steady(collect=False), Timer() as timer:
                for _ in range(reads):
                    found = newest(saver)
            assert len(found["messages"]) == wanted
            return {TIME: timer.seconds / reads * 1e6}

        async def our_reads(reads: int = 2_000) -> Figures:
            with steady(collect=False), Timer() as timer:
                for _ in range(reads):
                    found = await agents.get(ours.AGENT)
            assert len(found.data["messages"]) == wanted
            return {TIME: timer.seconds / reads * 1e6}

        if not ours.absent():
            where = ours.in_directory(directory)
            agents = await stack.enter_async_context(ours.agents(where))
            await agents.create(ours.AGENT, initial)
        result = await interleave(
            f"read, newest state of {kilobytes} KB",
            [Subject(SAVER, sqlite_saver), ours.subject(our_reads)],
            rounds,
        )
        if not ours.absent():
            await refuse_stale(where, agents)
    return result


async def refuse_stale(where: str, agents: ours.Agents) -> None:
    """Prove that the reads were checked: what another opener of the file wrote is seen by the next read."""
    before = await agents.get(ours.AGENT)
    async with ours.agents(where) as others:
        written = await others.update(ours.AGENT, {"status": "changed elsewhere"}, expected=before.version)
    after = await agents.get(ours.AGENT)
    if after.version != written.version or after.data["status"] != "changed elsewhere":
        raise AssertionError(f"a cached read returned version {after.version}, not {written.version}")


async def measure(scratch: Scratch, quick: bool) -> Report:
    """Both sizes and the two goals."""
    rounds = 15 if quick else 41
    tables = []
    for kilobytes in (10, 200):
        with scratch.directory() as directory:
            tables.append(await at_size(directory, kilobytes, rounds))
    small, large = tables
    rows = [
        small.row("read.10k.vs_sqlitesaver", SAVER, ours.NAME, TIME, ">= 6"),
        large.row("read.200k.vs_sqlitesaver", SAVER, ours.NAME, TIME, ">= 50"),
    ]
    return Report(tables, rows)
