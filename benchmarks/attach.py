"""An engine with 100 live agents is killed; how long until the next one hears all of them again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measure import Figures, Report, Row, Subject, interleave
from benchmarks.scratch import REPOSITORY, Scratch, end_processes

AGENTS = 100
RATE = 20
SECONDS = "until all are heard, s"


def start(directory: Path, agents: int, seconds: float) -> subprocess.Popen[str]:
    """An engine; what it says of time begins when it is started."""
    argv = [sys.executable, "-m", "benchmarks.agents", directory / "maos.db", directory / "home", agents, RATE, seconds]
    environment = {**os.environ, "BENCH_BEGUN": repr(time.monotonic())}
    return subprocess.Popen(list(map(str, argv)), stdout=subprocess.PIPE, text=True, cwd=REPOSITORY, env=environment)


async def measure(scratch: Scratch, quick: bool) -> Report:
    """Start once, then kill and start again and again."""
    agents = AGENTS
    kills = 5 if quick else 15
    with scratch.directory() as directory:
        home = directory / "home"
        try:
            process = start(directory, agents, 600)
            assert process.stdout is not None
            json.loads(process.stdout.readline())

            async def restart() -> Figures:
                nonlocal process
                process.kill()
                process.wait()
                process.stdout.close()  # type: ignore[union-attr]
                process = start(directory, agents, 600)
                return {SECONDS: json.loads(process.stdout.readline())["all_heard_s"]}  # type: ignore[union-attr]

            rounds = await interleave(f"attach, {agents} agents", [Subject("maos", restart)], kills)
            process.kill()
            process.wait()
            process.stdout.close()  # type: ignore[union-attr]
        finally:
            end_processes(home)
    figures = [each[SECONDS] for each in rounds.figures["maos"]]
    return Report([rounds], [Row.of(f"attach.{agents}.seconds", figures, "<= 1")])
