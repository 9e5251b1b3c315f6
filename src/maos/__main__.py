"""`python -m maos`: the command line."""

import gc
import io
import os
import sys
from typing import TextIO, cast

GARBAGE_OBJECTS = 20_000
"""After how many new objects garbage is collected. To load a command creates far more than the 700 of the default."""


def main() -> None:
    """Run the command line."""
    gc.set_threshold(GARBAGE_OBJECTS)
    try:
        sys.stdout, sys.stderr = complete_writes(sys.stdout), complete_writes(sys.stderr)
        from maos.cli.program import program

        program(prog_name="maos")
    except KeyboardInterrupt:  # while everything was being loaded, or after it was done
        raise SystemExit(130) from None


def complete_writes(stream: TextIO | None) -> TextIO:
    """Return a stream that takes every write: a closed one is replaced by /dev/null, and one without a buffer
    (PYTHONUNBUFFERED) gets one, because a write that a signal interrupts would be cut off."""
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    if not isinstance(stream, io.TextIOWrapper) or not isinstance(stream.buffer, io.FileIO):
        return stream
    encoding, errors = stream.encoding, stream.errors
    buffer = io.BufferedWriter(cast(io.FileIO, stream.detach()))
    return io.TextIOWrapper(buffer, encoding, errors, line_buffering=True)


if __name__ == "__main__":
    main()
