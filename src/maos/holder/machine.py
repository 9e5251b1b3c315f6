"""What the holder asks the machine for."""

from __future__ import annotations

import os
import time

_remaining = int(os.environ.get("MAOS_CRASH_AT", "0"))


def now_us() -> int:
    """The time of day. The holder is a program of its own, and `maos.clock` with what it imports would double it."""
    return time.clock_gettime_ns(time.CLOCK_REALTIME) // 1000


def boot_id() -> str:
    """A name for this start of the machine: pids and start times begin anew with it."""
    return _content("/proc/sys/kernel/random/boot_id").decode().strip()


def oom_kills() -> int:
    """How many processes of our cgroup the kernel has killed for want of memory; 0 where that is not told."""
    try:
        path = _content("/proc/self/cgroup").split(b"::", 1)[1].split(b"\n", 1)[0].decode()
        for line in _content(f"/sys/fs/cgroup{path}/memory.events").splitlines():
            name, _, count = line.partition(b" ")
            if name == b"oom_kill":
                return int(count)
    except (OSError, IndexError):
        pass  # no cgroups of the second kind, or none for us
    return 0


def crash_point(name: str) -> None:
    """Die here if a test asked for it: `maos.faults` for the holder, without its imports."""
    global _remaining  # noqa: PLW0603 - a countdown of the whole process is what is meant
    if not _remaining:
        return
    _remaining -= 1
    if _remaining == 0:
        trace = os.environ.get("MAOS_CRASH_TRACE")
        if trace:
            fd = os.open(trace, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.write(fd, name.encode() + b"\n")
            os.close(fd)
        os.kill(os.getpid(), 9)


def _content(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 65536)
    finally:
        os.close(fd)
