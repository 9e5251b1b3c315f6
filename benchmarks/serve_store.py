"""Databases for the server: many runs, a run with many events, an attempt that has printed many lines, and agents that
print.

Everything is written by the recorder that engines write with, so the folds that are kept beside a stream are there too.

    python -m benchmarks.serve_store print DATABASE SECONDS

records agents that print, with the time of each event in its lines: it prints `ready`, waits for a line on its
standard input, and prints how many events it recorded.

    python -m benchmarks.serve_store lines DATABASE RUN LINES

adds a run whose agent has printed so many lines, and prints the name of the agent.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from benchmarks.scheduler import Functions

if TYPE_CHECKING:
    from maos import Maos
    from maos.model.events.attempt import AttemptOutput

LINES_AN_EVENT = 100
EVENTS_AN_APPEND = 20
WORDS = "a line of some length, as agents print them, with a few words of meaning in it"
PRINTING = 25
PRINTED_LINES = 20
"""How many lines an event of a printing agent has."""
LINES_A_SECOND = 5_000
LEASE_S = 600.0


async def add_run(m: Maos, id: str, tasks: int, request: str = "") -> None:
    """Execute a run of trivial tasks, each of which is recorded as started and as finished."""
    parts = [{"name": f"part-{number:05}", "task": "x", "needs": ["first"]} for number in range(1, tasks)]
    run = await m.runs.create({"tasks": [{"name": "first", "task": "x"}, *parts]}, request=request, id=id)
    await m.runs.execute(run.id, worker=Functions(), concurrency=32)


async def add_lines(m: Maos, id: str, lines: int, folder: Path) -> str:
    """Execute a run of one command, and record a second attempt of it that printed so many lines; return its agent."""
    agent, first = await _example(m, id, folder)
    number, recorder = 0, await _attempt(m, first, agent, 2)
    while number < lines:
        page = range(number, min(lines, number + EVENTS_AN_APPEND * LINES_AN_EVENT), LINES_AN_EVENT)
        await recorder.append(*(_printed(_lines(each, min(lines, each + LINES_AN_EVENT))) for each in page))
        number = page.stop
    await recorder.append(*first[-2:])
    await recorder.release()
    return agent


async def print_lines(database: Path, seconds: float) -> None:
    """Record agents that print together so many lines a second, in groups; the first word of a line is its time."""
    import maos

    async with maos.open(database) as m:
        _agent, first = await _example(m, "r-example", database.parent)
        recorders = [await _attempt(m, first, f"prints-{number:02}", 1) for number in range(PRINTING)]
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        began, done = time.monotonic(), 0
        while (passed := time.monotonic() - began) < seconds:
            due = int(passed * LINES_A_SECOND / PRINTED_LINES) - done
            now = f"{time.monotonic():017.6f} {WORDS}"
            some = [recorders[(done + each) % PRINTING] for each in range(min(due, PRINTING))]
            await asyncio.gather(*(each.append(_printed([now] * PRINTED_LINES)) for each in some))
            done += len(some)
            await asyncio.sleep(0.02)
        for each in recorders:
            await each.release()
    print(done, flush=True)


async def _add_lines(database: Path, id: str, lines: int) -> None:
    import maos

    async with maos.open(database) as m:
        print(await add_lines(m, id, lines, database.parent), flush=True)


async def _example(m: Maos, id: str, folder: Path) -> tuple[str, Sequence[Any]]:
    """A run of one command that a real agent executed: its agent, and the events of its attempt."""
    from maos.model.attempt import attempt_id, stream

    plan = {"tasks": [{"name": "prints", "command": ["echo", "once"]}]}
    await m.runs.start(plan, folder=folder, options={"in_place": True}, id=id)
    agent = (await m.runs.execute(id)).agent("prints")
    return agent, [record.event async for record in m.journal.read(stream(attempt_id(agent, 1)))]


async def _attempt(m: Maos, example: Sequence[Any], agent: str, number: int) -> Any:
    """A recorder of a new attempt that begins as another one did."""
    from maos.engine.recorder import Recorder
    from maos.engine.streams import ATTEMPT
    from maos.model.attempt import Attempt, attempt_id, stream

    id = attempt_id(agent, number)
    lease = await m.journal.acquire(stream(id), ttl_s=LEASE_S)
    assert lease is not None
    recorder = Recorder(m.journal, ATTEMPT, Attempt(id=id), lease, lease_s=LEASE_S)
    await recorder.append(replace(example[0], agent=agent, number=number), example[1])
    return recorder


def _lines(first: int, end: int) -> list[str]:
    return [f"line {number + 1:07} {WORDS}" for number in range(first, end)]


def _printed(texts: Sequence[str]) -> AttemptOutput:
    from maos.model.events.attempt import AttemptOutput
    from maos.model.events.facts import Line

    return AttemptOutput(offset=0, at_us=time.time_ns() // 1_000, facts=[Line(text) for text in texts])


if __name__ == "__main__":
    if sys.argv[1] == "print":
        asyncio.run(print_lines(Path(sys.argv[2]), float(sys.argv[3])))
    else:
        asyncio.run(_add_lines(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
