"""langgraph's SqliteSaver and PostgresSaver, used directly: one `put` of the whole checkpoint per update.

The fastest way to use them: no graph engine around, messages added in place, and `new_versions` names
only the channels that changed, so that PostgresSaver writes only those.
"""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from psycopg import Connection
from psycopg.rows import dict_row

from benchmarks.workload import Message, State

CONFIG: Any = {"configurable": {"thread_id": "reviewer", "checkpoint_ns": ""}}


class Thread:
    """One conversation in a saver: the state of an agent, put as a whole at every step."""

    def __init__(self, saver: SqliteSaver | PostgresSaver, state: State) -> None:
        self._saver: BaseCheckpointSaver[str] = saver
        self.close = saver.conn.close
        self._state = {**state, "messages": list(state["messages"])}
        self._checkpoint: Checkpoint = empty_checkpoint()
        self._config = CONFIG
        self._step = -1
        self._put(list(state))

    def grow(self, messages: list[Message]) -> None:
        """One durable checkpoint per message."""
        for step, message in enumerate(messages, 1):
            self._state["messages"].append(message)
            self._state["status"] = "busy"
            self._state["step"] = step
            self._put(["messages", "status", "step"])

    def _put(self, changed: list[str]) -> None:
        self._step += 1
        versions = dict(self._checkpoint["channel_versions"])
        for channel in changed:
            versions[channel] = self._saver.get_next_version(versions.get(channel), None)  # type: ignore[arg-type]
        self._checkpoint = {
            **self._checkpoint,
            "id": str(uuid6(clock_seq=self._step)),
            "ts": datetime.now(UTC).isoformat(),
            "channel_values": self._state,
            "channel_versions": versions,
            "updated_channels": changed,
        }
        self._config = self._saver.put(
            self._config,
            self._checkpoint,
            {"source": "loop", "step": self._step, "parents": {}},
            {channel: versions[channel] for channel in changed},
        )


def open_sqlite(directory: Path) -> SqliteSaver:
    """SqliteSaver as `from_conn_string` opens it: write-ahead log, synchronous at SQLite's default, FULL."""
    connection = sqlite3.connect(directory / "checkpoints.db", check_same_thread=False)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    return SqliteSaver(connection)


def open_postgres(url: str) -> PostgresSaver:
    """PostgresSaver as `from_conn_string` opens it, with its tables made."""
    connection = Connection.connect(url, autocommit=True, prepare_threshold=0, row_factory=dict_row)
    saver = PostgresSaver(connection)
    saver.setup()
    return saver


def newest(saver: BaseCheckpointSaver[str]) -> State:
    """The newest state of the thread."""
    found = saver.get_tuple(CONFIG)
    assert found is not None
    return found.checkpoint["channel_values"]
