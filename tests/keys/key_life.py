"""The program that crash tests kill: rotates the keys of a database, encrypts one that exists, or erases an agent.

python -m tests.keys.key_life WHAT FOLDER
"""

import asyncio
import sys
from pathlib import Path

import maos
from maos.keys import rotation
from maos_testing.crash import ack
from tests.keys.vaults import TYPES, open_with

AGENTS = 7


async def fill(m: maos.Maos) -> None:
    for number in range(AGENTS):
        await m.state.create(f"a{number}", {"text": f"canary-{number}"})


async def main(what: str, folder: Path) -> None:
    async with open_with(folder / "maos.db", folder / "key") as m:
        await m.trust()  # it is a copy
    match what:
        case "rotate":
            async with open_with(folder / "maos.db", folder / "key") as m:
                await m.keys.rotate(f"file:{folder}/new")
        case "convert":
            await maos.encrypt(folder / "maos.db", f"file:{folder}/key", types=TYPES)
        case "erase":
            async with open_with(folder / "maos.db", folder / "key", MAOS_BACKUP_TO=str(folder / "backups")) as m:
                await m.erasures.erase("a3")
    ack("done")


if __name__ == "__main__":
    rotation.PAGE_KEYS = 3  # several steps
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
