"""The program that crash tests kill: imports a bundle, agrees to it, and exports it again.

python -m tests.transfer.bundle_life BUNDLE DATABASE HOME FOLDER EXPORTED SCHEMA
"""

import asyncio
import sys
from pathlib import Path

import maos
from maos.clock import SystemClock
from maos.files import whole_file
from maos.transfer.service import Transfer
from maos_testing.crash import ack
from tests.transfer.runs import ID, bring


async def main(bundle: Path, database: str, home: Path, folder: Path, target: Path, schema: str) -> None:
    mark = home.parent / "mark" if "://" in database else None
    async with maos.open(database, home=home, schema=schema, mark_path=mark) as m:
        ack((await bring(m, bundle.read_bytes(), folder)).what)
        await m.runs.agree(ID)
        ack("settled")
        if not target.exists():
            with whole_file(target) as partial, partial.open("wb") as written:
                await Transfer(m.journal, SystemClock(), m.agents, made_by="maos test").export(ID, written)
        ack("exported")


if __name__ == "__main__":
    given = [Path(each) for each in sys.argv[1:]]
    asyncio.run(main(given[0], sys.argv[2], given[2], given[3], given[4], sys.argv[6]))
