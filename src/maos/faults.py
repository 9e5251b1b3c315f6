"""Named places where a test may kill the process.

In production `crash_point` tests one module variable and returns. With MAOS_CRASH_AT=n in the environment the
n-th crash point reached dies by SIGKILL, so a test can die at point 1, 2, 3 … until the work finishes. With
MAOS_CRASH_ONLY only points whose names begin with one of its words count, with MAOS_CRASH_NAME only those of that name.
The file MAOS_CRASH_TRACE is told the name of the point that the process died at; with MAOS_CRASH_AT=-1 it lives, and
the file is told every point it reached.
"""

from __future__ import annotations

import os
import signal

_remaining = int(os.environ.get("MAOS_CRASH_AT", "0"))
_only = tuple(os.environ.get("MAOS_CRASH_ONLY", "").split()) or ("",)
_name = os.environ.get("MAOS_CRASH_NAME", "")


def crash_point(name: str) -> None:
    """Die here if a test asked for it."""
    global _remaining  # noqa: PLW0603 - a countdown of the whole process is what is meant
    if not _remaining or not name.startswith(_only) or _name not in ("", name):
        return
    _remaining -= 1
    if _remaining > 0:
        return
    trace = os.environ.get("MAOS_CRASH_TRACE")
    if trace:
        with open(trace, "a", encoding="utf-8") as file:
            file.write(name + "\n")
    if _remaining == 0:
        os.kill(os.getpid(), signal.SIGKILL)
