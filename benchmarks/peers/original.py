"""maos-cli 0.9.4, the original of this idea, killed in the middle: how many of the lines its agents printed it kept.

It installs a package that is also called `maos`, so it has an environment of its own. Its agents are the command
`claude` on the PATH; here that is a script which prints lines. It saves the end of what it read every 30 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.agents import command
from benchmarks.measure import Figures
from benchmarks.scratch import REPOSITORY, Scratch, end_processes

NAME = "maos-cli 0.9.4, killed"
AGENTS = 5
RATE = 100
SECONDS = 4.0
KEPT = "kept"
PYTHON = REPOSITORY / f"{Path(sys.prefix).name}-original" / "bin" / "python"
LINE = re.compile(rb"(\d+) \d+\.\d{6} a line of some")
DRIVER = """
import asyncio, sys
from maos.core.claude_sdk_executor import AgentExecution, ClaudeSDKExecutor
from maos.interfaces.sqlite_persistence import SqlitePersistence

async def main():
    persistence = SqlitePersistence(sys.argv[1])
    await persistence.initialize()
    executor = ClaudeSDKExecutor(persistence=persistence)
    work = [AgentExecution(agent_id=f"a{number}", task="x") for number in range(int(sys.argv[2]))]
    await asyncio.gather(*(executor.execute_agent(each) for each in work))

asyncio.run(main())
"""


def absent() -> str:
    """Why it cannot be measured here; empty when it can."""
    return "" if PYTHON.exists() else "it is not installed; `make bench` does that"


async def killed(scratch: Scratch) -> Figures:
    """One life of the original, ended by SIGKILL."""
    with scratch.directory() as directory:
        fake = directory / "claude"
        fake.write_text(
            f"#!{sys.executable} -IS\nimport os\nos.execv({command(RATE, 60)[0]!r}, {command(RATE, 60)!r})\n"
        )
        fake.chmod(0o755)
        environment = {"PATH": f"{directory}:{os.environ['PATH']}", "HOME": str(directory)}
        argv = [PYTHON, "-c", DRIVER, directory / "maos.db", str(AGENTS)]
        process = subprocess.Popen(
            argv, env=environment, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        await asyncio.sleep(SECONDS + 1)  # a second to begin with
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return {KEPT: len(_kept(directory / "maos.db")) / (AGENTS * RATE * SECONDS)}


def _kept(database: Path) -> set[tuple[bytes, bytes]]:
    """The different lines that any table still has."""
    found: set[tuple[bytes, bytes]] = set()
    with contextlib.closing(sqlite3.connect(database)) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                text = b" ".join(str(cell).encode() for cell in row)
                found |= {(match[0], b"") for match in LINE.finditer(text)}
    return found


async def ours_killed(scratch: Scratch) -> Figures:
    """One life of an engine of ours, ended by SIGKILL; the next one says how much of what was printed is kept."""
    with scratch.directory() as directory:
        home = directory / "home"
        begun = {**os.environ, "BENCH_BEGUN": repr(time.monotonic())}
        argv = [sys.executable, "-m", "benchmarks.agents", directory / "maos.db", home, AGENTS, RATE, SECONDS]
        words = list(map(str, argv))
        try:
            process = subprocess.Popen(words, stdout=subprocess.PIPE, env=begun, cwd=REPOSITORY)
            await asyncio.sleep(SECONDS + 1)
            process.kill()
            process.communicate()
            run = await asyncio.create_subprocess_exec(
                *words, stdout=asyncio.subprocess.PIPE, env=os.environ, cwd=REPOSITORY
            )
            await run.communicate()
            recorded, printed = await _recorded(directory / "maos.db", home)
            return {KEPT: recorded / printed}
        finally:
            end_processes(home)


async def _recorded(database: Path, home: Path) -> tuple[int, int]:
    import maos

    found: list[str] = []
    last: dict[int, int] = {}
    async with maos.open(database, home=home) as m:
        for number in range(AGENTS):
            async for record in m.agents.records(f"a{number}"):
                if record.type == "attempt_output":
                    lines = [each["text"] for each in record.data["facts"] if each["kind"] == "line"]
                    found += [json.dumps([number, line]) for line in lines]
                    last[number] = int(lines[-1].split(" ")[0]) + 1 if lines else last.get(number, 0)
    assert len(found) == len(set(found)), "a line was recorded twice"
    return len(found), sum(last.values())
