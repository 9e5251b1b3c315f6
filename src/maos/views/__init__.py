"""Views of the journal for people with other programs: `sqlite3 maos.db "SELECT … FROM messages"` (R-305), or `psql`.

They are statements and nothing else: nothing is stored twice, nothing has to be kept up to date, and maos itself never
reads them. They read the events that are written as plain JSON, and the kept folds of attempts for what is counted all
the time.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Literal

NAMES = ("orchestrations", "tasks", "agents", "sessions", "messages", "checkpoints", "workflow_runs")


def statements(database: Literal["sqlite", "postgres"]) -> str:
    """The statements that create the views in a database and drop older ones.

    The last of them makes `maos_views`, which tells these from those of another version.
    """
    text = Path(__file__).with_name(f"{database}.sql").read_text(encoding="utf-8")
    names = ["maos_views", *reversed(re.findall(r"^CREATE VIEW (\w+)", text, re.M))]  # those that others need go last
    dropped = "".join(f"DROP VIEW IF EXISTS {name};\n" for name in names)
    return f"{dropped}{text}CREATE VIEW maos_views AS SELECT '{zlib.crc32(text.encode()):08x}' AS version"
