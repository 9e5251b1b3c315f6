"""Named points at which a test can kill the process.

This module imports nothing but `os`: it also runs in the holder, which must stay small.

In production `crash_point` checks one module variable and returns. With MAOS_CRASH_AT=n in the environment, the process
kills itself (SIGKILL) at the n-th crash point it reaches, so a test can crash at point 1, 2, 3 … until the work
completes. With MAOS_CRASH_ONLY, only points whose names begin with one of its words count; with MAOS_CRASH_NAME, only
those of that name. The process writes the name of the point it died at to the file MAOS_CRASH_TRACE; with
MAOS_CRASH_AT=-1 it lives and writes the name of every point it reaches.
"""

from __future__ import annotations

import os

_remaining = int(os.environ.get("MAOS_CRASH_AT", "0"))
_only = tuple(os.environ.get("MAOS_CRASH_ONLY", "").split()) or ("",)
_name = os.environ.get("MAOS_CRASH_NAME", "")


def crash_point(name: str) -> None:
    """Kill this process if a test has chosen this point."""
    global _remaining  # noqa: PLW0603 - one countdown for the whole process
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
        os.kill(os.getpid(), 9)
