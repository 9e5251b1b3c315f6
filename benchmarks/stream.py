"""100 agents print 100 lines a second each: what is kept, when it is on disk, and what that costs.

Against the same agents writing to files through `cat`, which is the limit and promises nothing, and against maos-cli
0.9.4, the original of this idea, when it is killed in the middle.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.agents import command
from benchmarks.measure import Figures, Missing, Report, Row, Subject, interleave
from benchmarks.peers import original
from benchmarks.scratch import REPOSITORY, Scratch, end_processes

RATE = 100
KEPT = "kept"
CORES = "cores"


def through_cat(directory: Path, agents: int, seconds: float) -> Figures:
    """The same agents, each piped into a file by `cat`; the processor time is that of the cats."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    pairs = []
    for number in range(agents):
        with (directory / str(number)).open("wb") as file:
            agent = subprocess.Popen(command(RATE, seconds), stdout=subprocess.PIPE)
            pairs.append((agent, subprocess.Popen(["cat"], stdin=agent.stdout, stdout=file)))
            assert agent.stdout is not None
            agent.stdout.close()
    cats = 0.0
    for agent, _cat in pairs:
        agent.wait()
    middle = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _agent, cat in pairs:
        cat.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cats = after.ru_utime + after.ru_stime - middle.ru_utime - middle.ru_stime
    agents_s = middle.ru_utime + middle.ru_stime - before.ru_utime - before.ru_stime
    lines = sum(len((directory / str(number)).read_bytes().splitlines()) for number in range(agents))
    passed = time.monotonic() - began
    return {KEPT: lines / (agents * RATE * seconds), CORES: cats / passed, "agents cores": agents_s / passed}


def through_maos(directory: Path, agents: int, seconds: float) -> Figures:
    """One engine and as many holders as agents."""
    home = directory / "home"
    argv = [sys.executable, "-m", "benchmarks.agents", directory / "maos.db", home, agents, RATE, seconds]
    try:
        said = subprocess.run(
            list(map(str, argv)), stdout=subprocess.PIPE, text=True, check=True, cwd=REPOSITORY, env=os.environ
        ).stdout.splitlines()
    finally:
        end_processes(home)
    figures: Figures = json.loads(said[-1])
    lines, printed = figures.pop("lines"), figures.pop("printed")
    cores = figures["engine cores"] + figures["holders cores"]
    return {KEPT: lines / printed, CORES: cores, **figures}


async def measure(scratch: Scratch, quick: bool) -> Report:
    """Rounds of all, and what is kept when the one who listens is killed."""
    agents, seconds, count = (100, 10.0, 2) if quick else (100, 60.0, 3)

    async def cat() -> Figures:
        with scratch.directory() as directory:
            return through_cat(directory, agents, seconds)

    async def maos() -> Figures:
        with scratch.directory() as directory:
            return through_maos(directory, agents, seconds)

    title = f"stream, {agents} agents x {RATE} lines/s x {seconds:.0f} s"
    rounds = await interleave(title, [Subject("cat", cat), Subject("maos", maos)], count)
    kept = [each[KEPT] for each in rounds.figures["maos"]]
    delays = [each["p99 ms"] / 1e3 for each in rounds.figures["maos"]]
    rows = [Row.of("stream.kept", kept, ">= 1"), Row.of("stream.p99_s", delays, "<= 0.5")]
    killed: list[Subject | Missing] = [Subject("maos, killed", lambda: original.ours_killed(scratch))]
    killed.append(
        Missing("maos-cli 0.9.4, killed", original.absent())
        if original.absent()
        else Subject("maos-cli 0.9.4, killed", lambda: original.killed(scratch))
    )
    deaths = await interleave("stream, 5 agents, the engine is killed after 4 s", killed, 3)
    rows.append(Row.of("stream.killed.kept", [each[KEPT] for each in deaths.figures["maos, killed"]], ">= 1"))
    return Report([rounds, deaths], rows)
