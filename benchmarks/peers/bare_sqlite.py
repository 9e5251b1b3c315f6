"""A bare SQLite file at full durability: what every SQLite row is measured against."""

from __future__ import annotations

from pathlib import Path

import apsw


def connect(path: Path, table: str) -> apsw.Connection:
    """A database with one table, a write-ahead log, and an fsync before every acknowledgement."""
    db = apsw.Connection(str(path))
    assert db.pragma("journal_mode", "wal") == "wal"
    db.pragma("synchronous", "full")
    db.execute(table)
    return db
