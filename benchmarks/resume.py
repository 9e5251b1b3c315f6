"""An engine with 1, 10 and 100 agents is killed: how long until the next one has new output of theirs on disk.

Once with agents that still live and are taken up again, and once with agents that died with it and are resumed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measure import Figures, Report, Row, Subject, interleave
from benchmarks.scratch import REPOSITORY, Scratch, end_processes

AGENTS = (1, 10, 100)
RATE = 20
FIRST = "first new line, s"
ALL = "all heard again, s"


class Engine:
    """A process that runs agents, and can be killed alone or with all of them."""

    def __init__(self, directory: Path, agents: int) -> None:
        self._home = directory / "home"
        self._argv = [sys.executable, "-m", "benchmarks.agents", str(directory / "maos.db"), str(self._home)]
        self._argv += [str(agents), str(RATE), "600"]
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        environment = {**os.environ, "BENCH_BEGUN": repr(time.monotonic())}
        return subprocess.Popen(self._argv, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY, env=environment)

    def heard(self) -> Figures:
        """Wait until a line of every agent is on disk that was printed after the start, and say how long it took."""
        assert self._process.stdout is not None
        said = json.loads(self._process.stdout.readline())
        return {FIRST: said["first_heard_s"], ALL: said["all_heard_s"]}

    def kill(self, *, agents: bool) -> None:
        """End it as a crash would; with `agents`, all that it has started too."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        if agents:
            end_processes(self._home)

    def restart(self) -> Figures:
        """Start the next one."""
        self._process = self._start()
        return self.heard()


async def measure(scratch: Scratch, quick: bool) -> Report:
    """A table for each number of agents; the goal is for ten, and for the last of them."""
    kills, tables, rows = 5 if quick else 15, [], []
    for agents in AGENTS:
        with scratch.directory() as directory:
            engine = Engine(directory, agents)
            try:
                engine.heard()

                async def survived(engine: Engine = engine) -> Figures:
                    engine.kill(agents=False)
                    return engine.restart()

                async def died(engine: Engine = engine) -> Figures:
                    engine.kill(agents=True)
                    return engine.restart()

                subjects = [Subject("agents live", survived), Subject("agents died too", died)]
                table = await interleave(f"resume, {agents} agents", subjects, kills)
            finally:
                engine.kill(agents=True)
        tables.append(table)
        if agents == 10:
            for name, system in (("attached", "agents live"), ("resumed", "agents died too")):
                seconds = [each[ALL] for each in table.figures[system]]
                rows.append(Row.of(f"resume.{agents}.{name}_s", seconds, "<= 1"))
    return Report(tables, rows)
