"""Time, boot id and out-of-memory kills, for the holder."""

from __future__ import annotations

import os
import time


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


def read_file(path: str) -> bytes:
    """Return the content of a file."""
    fd = os.open(path, os.O_RDONLY)
    data = b""
    try:
        while more := os.read(fd, 65536):
            data += more
    finally:
        os.close(fd)
    return data
