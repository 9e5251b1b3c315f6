"""What it costs to start: `maos --help` and `import maos` against an interpreter that does nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import Figures, Missing, Report, Row, Subject, Timer, interleave, progress
from benchmarks.scratch import Scratch

TIME = "ms"
BARE = "python -c pass"
IMPORT = 'python -c "import maos"'
HELP = "maos --help"
IMPORT_LIMIT_MS = 100


def command_line() -> list[str]:
    """The installed command, or the module where maos is only on the path."""
    script = Path(sys.executable).with_name("maos")
    return [str(script), "--help"] if script.exists() else [sys.executable, "-m", "maos", "--help"]


async def measure(scratch: Scratch, quick: bool) -> Report:
    """Three kinds of process, started one at a time, and the two goals."""
    # Without byte code every start would compile the package again, which no installed program does.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def start(command: list[str]) -> Figures:
        with Timer() as timer:
            subprocess.run(command, env=environment, cwd=scratch.root, capture_output=True, check=True)
        return {TIME: timer.seconds * 1e3}

    def subject(name: str, command: list[str]) -> Subject | Missing:
        try:
            for _ in range(2):  # the first one writes the byte code
                start(command)
        except subprocess.CalledProcessError as error:
            return Missing(name, f"it ended with status {error.returncode}")

        async def run() -> Figures:
            return start(command)

        return Subject(name, run)

    progress("startup: warm-up")
    subjects = [
        subject(BARE, [sys.executable, "-c", "pass"]),
        subject(IMPORT, [sys.executable, "-c", "import maos"]),
        subject(HELP, command_line()),
    ]
    rounds = await interleave("startup, wall time of a process", subjects, 25 if quick else 101)
    above = rounds.row("startup.import.over_bare_per_100ms", IMPORT, BARE, TIME, "<= 1")
    if above.ratio is not None:
        pairs = zip(rounds.figures[IMPORT], rounds.figures[BARE], strict=True)
        above = Row.of(above.id, [(a[TIME] - b[TIME]) / IMPORT_LIMIT_MS for a, b in pairs], above.goal)
    return Report([rounds], [rounds.row("startup.help.vs_bare", HELP, BARE, TIME, "<= 6"), above])
