"""Servers of peers: started on loopback for one round, with files of their own, and ended by their process id."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

START_S_MAX = 20.0
END_S_MAX = 10.0


def free_port() -> int:
    """A port on loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(argv: Sequence[str], port: int, log: Path) -> Iterator[int]:
    """A server that answers on a port, until the block ends; its process id."""
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + START_S_MAX
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{argv[0]} did not start: {log.read_text(errors='replace')[-500:]}") from None
                time.sleep(0.02)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
