"""Agents that print lines at a steady rate, each line with the time it was printed, and an engine that hears them.

    python -m benchmarks.agents DATABASE HOME AGENTS RATE SECONDS

runs the engine: takes up the agents that live, resumes those that do not, starts those there are not, and prints one
JSON document when all are heard, and another when SECONDS later all have been stopped.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from maos.model.events.facts import Line

PERL = """
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC sleep);
$| = 1;
my ($rate, $seconds) = @ARGV;
my $begun = clock_gettime(CLOCK_MONOTONIC);
for (my $n = 0; $n < $rate * $seconds; $n++) {
  my $wait = $begun + $n / $rate - clock_gettime(CLOCK_MONOTONIC);
  sleep($wait) if $wait > 0;
  printf("%d %.6f a line of some length, as agents print them, with a few words of meaning in it\\n",
         $n, clock_gettime(CLOCK_MONOTONIC));
}
"""
PYTHON = """
import sys, time
rate, seconds = map(float, sys.argv[1:])
begun = time.monotonic()
for n in range(int(rate * seconds)):
    time.sleep(max(0, begun + n / rate - time.monotonic()))
    words = "a line of some length, as agents print them, with a few words of meaning in it"
    print(n, f"{time.monotonic():.6f}", words, flush=True)
"""


def command(rate: float, seconds: float) -> list[str]:
    """An agent that costs next to nothing itself: perl is part of every Debian, and smaller than Python."""
    perl = shutil.which("perl")
    program = [perl, "-e", PERL] if perl else [sys.executable, "-I", "-S", "-c", PYTHON]
    return [*program, str(rate), str(seconds)]


class Ear:
    """What the engine heard: how long each line took from the agent to the disk."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.heard: dict[str, int] = {}
        self.last: dict[str, int] = {}
        self.fresh: set[str] = set()
        self.begun = time.monotonic()
        self.first_heard = 0.0
        self.all_heard = asyncio.Event()
        self.wanted = 0

    def __call__(self, attempt: Any, facts: Sequence[Any]) -> None:
        now = time.monotonic()
        for fact in facts:
            if isinstance(fact, Line):
                number, when, _words = fact.text.split(" ", 2)
                printed = float(when)
                self.last[attempt.agent] = int(number)
                self.heard[attempt.agent] = self.heard.get(attempt.agent, 0) + 1
                self.delays.append(now - printed)
                if printed >= self.begun and attempt.agent not in self.fresh:
                    self.first_heard = self.first_heard or now
                    self.fresh.add(attempt.agent)
                    if len(self.fresh) == self.wanted:
                        self.all_heard.set()


async def engine(database: str, home: Path, agents: int, rate: float, seconds: float) -> None:
    """One engine, until all agents have ended."""
    import maos

    ear = Ear()
    ear.begun = float(os.environ.get("BENCH_BEGUN", ear.begun))
    ear.wanted = agents
    async with maos.open(database, home=home) as m:
        known = {attempt.agent async for attempt in m.agents.all()}
        adopted = await asyncio.gather(*(m.agents.adopt(name, listener=ear) for name in known))
        running = [each for each in adopted if each is not None]
        living = {each.attempt.agent for each in running}
        places = asyncio.Semaphore(10)

        async def start(name: str) -> Any:
            async with places:
                if name in known:
                    return await m.agents.resume(name, listener=ear)
                return await m.agents.start(
                    argv=command(rate, 3600), cwd=home.parent, name=name, in_place=True,
                    time_limit_s=3600, listener=ear,
                )  # fmt: skip

        names = [f"a{number}" for number in range(agents)]
        running += await asyncio.gather(*(start(name) for name in names if name not in living))
        await ear.all_heard.wait()
        heard = {"first_heard_s": ear.first_heard - ear.begun, "all_heard_s": time.monotonic() - ear.begun}
        print(json.dumps(heard), flush=True)
        before = resource.getrusage(resource.RUSAGE_SELF)
        clock = time.monotonic()
        holders = [each for each in map(holder_of, (each.attempt.pid for each in running)) if each]
        ear.delays.clear()
        begun_us = sum(map(cpu_of, holders))
        await asyncio.sleep(seconds)
        after = resource.getrusage(resource.RUSAGE_SELF)
        passed = time.monotonic() - clock
        delays = sorted(ear.delays)
        figures = {
            "engine cores": (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / passed,
            "holders cores": (sum(map(cpu_of, holders)) - begun_us) / passed,
            "engine MB": memory_of(os.getpid()),
            "holder MB": sum(map(memory_of, holders)) / max(1, len(holders)),
            "p50 ms": delays[len(delays) // 2] * 1e3,
            "p99 ms": delays[int(len(delays) * 0.99)] * 1e3,
        }
        await asyncio.gather(*(each.stop(grace_s=5) for each in running))
        await asyncio.gather(*(each.wait() for each in running))
        printed = sum(number + 1 for number in ear.last.values())
        print(json.dumps({**figures, "lines": sum(ear.heard.values()), "printed": printed}), flush=True)


def holder_of(agent: int) -> int:
    """The holder is two above the agent: the guard is between them."""
    try:
        return _parent(_parent(agent))
    except OSError:
        return 0


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def cpu_of(pid: int) -> float:
    """Seconds of processor time a process has used."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> float:
    """Its memory in MB, what it shares counted in parts."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1000


if __name__ == "__main__":
    asyncio.run(engine(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5])))
