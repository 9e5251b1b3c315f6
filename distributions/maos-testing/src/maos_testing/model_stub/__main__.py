"""Runs the stub as a program: `python -m maos_testing.model_stub --script FILE --port N`."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from maos_testing.model_stub.script import read_scripts
from maos_testing.model_stub.server import ModelStub


def main() -> None:
    """Serve until SIGINT or SIGTERM; the first line printed is the base URL."""
    parser = argparse.ArgumentParser(
        prog="python -m maos_testing.model_stub", description="a scripted model on loopback"
    )
    parser.add_argument("--script", type=Path, required=True, metavar="FILE", help="JSON: steps, or steps by name")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="where to listen (any free port)")
    arguments = parser.parse_args()
    try:
        stub = ModelStub(read_scripts(arguments.script.read_bytes()), port=arguments.port)
    except (OSError, ValueError) as error:
        parser.exit(2, f"{error}\n")
    asyncio.run(_serve(stub))


async def _serve(stub: ModelStub) -> None:
    ended = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, ended.set)
    async with stub:
        sys.stdout.write(f"{stub.url}\n")
        sys.stdout.flush()
        await ended.wait()


if __name__ == "__main__":
    main()
