"""Time, boot id, out-of-memory kills and crash points, for the holder."""

from __future__ import annotations

import os
import time

_remaining = int(os.environ.get("MAOS_CRASH_AT", "0"))


def now_us() -> int:
    """Return the time of day. Importing `maos.clock` would double the size of the holder."""
    return time.clock_gettime_ns(time.CLOCK_REALTIME) // 1000


def boot_id() -> str:
    """Return the id of this boot of the machine: pids and start times are unique within one boot only."""
    return read_file("/proc/sys/kernel/random/boot_id").decode().strip()


def oom_kills() -> int:
    """Return how many processes of this cgroup the kernel has killed for lack of memory; 0 where it does not say."""
    try:
        path = read_file("/proc/self/cgroup").split(b"::", 1)[1].split(b"\n", 1)[0].decode()
        for line in read_file(f"/sys/fs/cgroup{path}/memory.events").splitlines():
            name, _, count = line.partition(b" ")
            if name == b"oom_kill":
                return int(count)
    except (OSError, IndexError):
        pass  # no cgroup v2 here
    return 0


def crash_point(name: str) -> None:
    """Kill this process if a test has chosen this point: `maos.faults` without its imports."""
    global _remaining  # noqa: PLW0603 - one countdown for the whole process
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


def read_file(path: str) -> bytes:
    """Return the content of a small file."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 65536)
    finally:
        os.close(fd)
