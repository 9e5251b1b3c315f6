"""The program that crash tests kill: appends, ships a backup after each append, and restores it.

python -m tests.backup.backup_life DATABASE LOCATION RESTORED
"""

import asyncio
import sys

import maos
from maos.backup import shipper
from maos.journal.codec import Event
from maos_testing.crash import ack
from tests.backup.records import TYPES

NOTES = 4


async def main(database: str, location: str, restored: str) -> None:
    async with maos.open(database, types=TYPES) as m:
        for number in range(NOTES):
            await m.journal.append("notes/1", Event("note", {"text": f"{number}"}), key=f"note-{number}")
            head = await m.backups.ship(location)
            ack(f"shipped {head.position}")
    await maos.restore(location, restored)
    ack("restored")


if __name__ == "__main__":
    shipper.LEASE_S = 0.5  # the lease of the process that was killed runs out soon
    asyncio.run(main(*sys.argv[1:]))
