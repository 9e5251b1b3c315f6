"""A process of `maos serve`, for one benchmark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OURS = "maos serve"


class Served:
    """A server of maos."""

    def __init__(self, url: str, sign_in: str, pid: int) -> None:
        self.host, _, port = url.removeprefix("http://").partition(":")
        self.url = url
        self.sign_in = sign_in
        self.port = int(port)
        self.pid = pid


@contextmanager
def serving(database: Path) -> Iterator[Served]:
    """`maos serve`, without executing anything, until the block ends."""
    argv = [sys.executable, "-P", "-m", "maos", "--db", str(database), "serve", "--json", "--port", "0", "--no-resume"]
    env = {**os.environ, "XDG_CONFIG_HOME": str(database.parent)}
    with (database.parent / "log").open("wb") as log:
        server = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, text=True, env=env, cwd=database.parent)
    assert server.stdout is not None
    try:
        line = server.stdout.readline()
        if not line:
            raise RuntimeError(f"maos serve did not start: {(database.parent / 'log').read_text()[-500:]}")
        told = json.loads(line)
        yield Served(told["url"], told["sign_in"], server.pid)
    finally:
        server.terminate()
        server.communicate(timeout=20)
