"""Bare apsw, the change of each update as one row: no merge, no version check, no chain, no compression."""

from __future__ import annotations

from pathlib import Path

import msgspec

from benchmarks.peers.bare_sqlite import connect
from benchmarks.workload import Message, State

TABLE = "CREATE TABLE IF NOT EXISTS deltas (version INTEGER PRIMARY KEY, agent TEXT NOT NULL, data BLOB NOT NULL)"
INSERT = "INSERT INTO deltas (agent, data) VALUES (?, ?)"


class BareDelta:
    """The changes of one agent's state, a durable row each."""

    def __init__(self, directory: Path, state: State) -> None:
        self._db = connect(directory / "deltas.db", TABLE)
        self._db.execute(INSERT, ("reviewer", msgspec.json.encode(state)))

    def grow(self, messages: list[Message]) -> None:
        """One durable update per message."""
        encode = msgspec.json.Encoder().encode
        for step, message in enumerate(messages, 1):
            change = {"status": "busy", "step": step, "messages": [message]}
            self._db.execute(INSERT, ("reviewer", encode(change)))

    def close(self) -> None:
        """Close the file."""
        self._db.close()
