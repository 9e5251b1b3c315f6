"""DBOS with its system database on SQLite: one workflow, one recorded step of 1 KB per update."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dbos import DBOS, DBOSConfig

from benchmarks.workload import Message

_script: list[Message] = []


@DBOS.step()
def update(step: int) -> Message:
    """One update: its result is what DBOS makes durable."""
    return _script[step]


@DBOS.workflow()
def conversation(steps: int) -> int:
    """As many updates as asked for, one after the other."""
    for step in range(steps):
        update(step)
    return steps


class Dbos:
    """A launched DBOS; there is one per process."""

    def __init__(self, directory: Path) -> None:
        config: DBOSConfig = {
            "name": "bench",
            "system_database_url": f"sqlite:///{directory / 'dbos.sqlite'}",
            "log_level": "ERROR",
        }
        DBOS(config=config)
        DBOS.launch()

    def grow(self, messages: list[Message]) -> None:
        """One durable step per message."""
        _script[:] = messages
        with ThreadPoolExecutor(1) as thread:  # a blocking workflow may not run where an event loop does
            thread.submit(conversation, len(messages)).result()

    def close(self) -> None:
        """Stop its threads."""
        DBOS.destroy()
