"""Writes a file of settings: `writing_life.py FILE TEXT`."""

import sys
from pathlib import Path

from maos.settings import loader
from maos_testing.crash import ack

if __name__ == "__main__":
    loader.write(Path(sys.argv[1]), sys.argv[2])
    ack("written")
