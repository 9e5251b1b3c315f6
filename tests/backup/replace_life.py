"""The program that crash tests kill: replaces a database by one that is restored from its backup.

python -m tests.backup.replace_life DATABASE LOCATION
"""

import asyncio
import sys

import maos

if __name__ == "__main__":
    asyncio.run(maos.restore(sys.argv[2], sys.argv[1], position=2, replace=True))
