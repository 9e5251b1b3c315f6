"""The program that crash tests kill: `python -m tests.import_legacy.import_life FILE DATABASE HOME`."""

import asyncio
import sys
from pathlib import Path

import maos
from maos_testing.crash import ack
from tests.import_legacy.conftest import bring


async def main(path: str, database: str, home: str) -> None:
    async with maos.open(database, home=Path(home)) as m:
        for id, each in (await bring(m, Path(path))).items():
            ack([id, each.what])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
