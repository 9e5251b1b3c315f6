"""The entry point: ``python -m benchmarks.run NAME [--quick]``; without a name it lists what there is.

Progress goes to stderr, tables to stdout, and the last line of stdout is one JSON object with the goals.
Missing a goal is a result, not a failure: the exit status says only whether the measurement itself worked.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from types import FrameType

from benchmarks.measure import Report, grid, progress
from benchmarks.scratch import Scratch

NAMES = {
    "append": "durable appends by 1, 64 and 512 writers, on SQLite and PostgreSQL",
    "state": "200 durable updates of 10 KB and 200 KB agent states: speed and bytes on disk",
    "load": "open a store and read the newest state after 1,000 and 10,000 updates, whole and lazily",
    "read": "cached, version-checked reads of 10 KB and 200 KB states",
    "startup": "what `maos --help` and `import maos` cost above a bare interpreter",
    "bus": "messages sent, delivered and acknowledged between two processes, by 1 and 10 pairs",
    "scheduler": "graphs of trivial tasks, wide, deep and diamond: tasks/s, and what a task costs at 10^3 … 10^5",
    "workflow": "durable steps of a workflow, one after the other and 64 at once, bytes for each, and start-up",
    "growth": "append, load and disk from 10^3 to 10^6 events",
    "stream": "100 agents x 100 lines/s: what is kept, how soon, at what cost; and when the engine is killed",
    "attach": "an engine with 100 live agents is killed: how long until the next one hears them all",
    "resume": "an engine with 1, 10 and 100 agents is killed: how long until there is new output on disk",
    "serve": "the server: reads, a stream for many clients, and its page in a browser beside Temporal's",
    "backup": "continuous backup to an object store while 20 agents append: cost, delay, bytes, restoration",
    "overhead": "what maos adds while 10 agents work, and what it keeps of each thing",
}


def end_on_signal(scratch: Scratch) -> None:
    """Make Ctrl+C and SIGTERM remove the files and end the process, whatever it is doing.

    An exception in the middle of a driver's conversation with its server could leave it waiting for ever.
    """

    def end(number: int, frame: FrameType | None) -> None:
        scratch.remove()
        progress("interrupted, files removed\n")
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def output(name: str, report: Report, machine: str) -> str:
    """The tables, the goals, and the JSON line."""
    lines = [["goal", "ratio", "of rounds", "wanted", ""]]
    for row in report.rows:
        ratio = "-" if row.ratio is None else f"{row.ratio:.4g}"
        span = "" if math.isnan(row.low) or row.low == row.high else f"{row.low:.3g} … {row.high:.3g}"
        lines.append([row.id, ratio, span, row.goal, row.note or ("met" if row.met else "MISSED")])
    result = {"name": name, "rows": [row.as_json() for row in report.rows]}
    parts = [machine, *(table.table() for table in report.tables), "", grid(lines), json.dumps(result)]
    return "\n".join(parts)


def main() -> int:
    """Run one benchmark, or list them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("name", nargs="?", choices=list(NAMES), metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--quick", action="store_true", help="fewer rounds and sizes, under two minutes")
    parser.add_argument("--directory", type=Path, help="where the stores are written, instead of .bench/")
    options = parser.parse_args()
    if options.name is None:
        print(grid([[name, text] for name, text in NAMES.items()]))
        return 0
    started = time.monotonic()
    try:
        with Scratch(options.directory) as scratch:
            end_on_signal(scratch)
            module = import_module(f"benchmarks.{options.name}")
            report = asyncio.run(module.measure(scratch, options.quick))
            machine = scratch.machine()
    except ImportError as error:
        progress(f"cannot run: {error}; `make bench` installs maos and all peers\n")
        return 2
    progress(f"done in {time.monotonic() - started:.0f} s\n")
    print(output(options.name, report, machine))
    return 0


if __name__ == "__main__":
    sys.exit(main())
