"""Views of the journal for people with other programs: `sqlite3 maos.db "SELECT … FROM messages"` (R-305), or `psql`.

They are statements and nothing else: nothing is stored twice, nothing has to be kept up to date, and maos itself never
reads them. They read the events that are written as plain JSON, and the kept folds of attempts for what is counted all
the time.
"""

from __future__ import annotations

import re
import zlib
from importlib.resources import files

NAMES = ("orchestrations", "tasks", "agents", "sessions", "messages", "checkpoints")


def for_sqlite() -> str:
    """The statements that make the views in a SQLite database, in the place of older ones."""
    return _statements("sqlite.sql")


def for_postgres() -> str:
    """The statements that make the views in a schema of PostgreSQL, in the place of older ones."""
    return _statements("postgres.sql")


def _statements(name: str) -> str:
    """The last of them makes `maos_views`, which tells these from those of another version."""
    text = files(__name__).joinpath(name).read_text(encoding="utf-8")
    names = ["maos_views", *reversed(re.findall(r"^CREATE VIEW (\w+)", text, re.M))]  # those that others need go last
    dropped = "".join(f"DROP VIEW IF EXISTS {name};\n" for name in names)
    return f"{dropped}{text}CREATE VIEW maos_views AS SELECT '{zlib.crc32(text.encode()):08x}' AS version"
