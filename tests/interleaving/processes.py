"""Real processes that share one journal, and the place they share."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from signal import Signals
from typing import Any

from maos.clock import Clock, SystemClock
from maos.store.postgres import PostgresDatabase
from maos.store.sql_store import SqlStore
from maos.store.sqlite import SqliteDatabase

LINE_BYTES_MAX = 1 << 24
ANSWER_S_MAX = 60.0
"""How long a process may take for one line; only a test that fails waits so long."""


class Place:
    """Where a journal is, for this process and for others."""

    def __init__(self, url: str, mark: Path) -> None:
        self.url, self.mark = url, mark
        self.on_postgres = url.startswith("postgresql://")
        self._opened: list[SqlStore] = []

    async def open(self, clock: Clock | None = None) -> SqlStore:
        clock = clock or SystemClock()
        if self.on_postgres:
            store = await SqlStore.open(PostgresDatabase(self.url, clock=clock, mark_path=self.mark))
        else:
            store = await SqlStore.open(SqliteDatabase(Path(self.url), clock=clock))
        self._opened.append(store)
        return store

    async def close(self) -> None:
        """Close all that was opened here."""
        for store in self._opened:
            await store.close()


class Puppet:
    """Another process with a store of its own; see puppet.py for what it can do."""

    def __init__(self, process: asyncio.subprocess.Process, name: str) -> None:
        self._process = process
        self.name = name
        self.incarnation = ""

    @classmethod
    async def start(cls, name: str) -> Puppet:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(Path(__file__).with_name("puppet.py")),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
        )
        puppet = cls(process, name)
        puppet.incarnation = (await puppet.hear())["ready"]
        return puppet

    async def tell(self, task: str, **arguments: object) -> None:
        """Give it something to do."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": task, **arguments}).encode() + b"\n")
        await self._process.stdin.drain()

    async def hear(self) -> dict[str, Any]:
        """The next thing it says."""
        assert self._process.stdout is not None
        async with asyncio.timeout(ANSWER_S_MAX):
            line = await self._process.stdout.readline()
        assert line, f"process {self.name} ended with {await self._process.wait()}"
        return json.loads(line)  # type: ignore[no-any-return]

    async def finish(self) -> list[dict[str, Any]]:
        """All it says until what it was told is done."""
        said = []
        while "done" not in (answer := await self.hear()):
            assert "failed" not in answer, answer["failed"]
            said.append(answer)
        return said

    async def open(self, place: Place, **arguments: object) -> None:
        await self.tell("open", place=place.url, mark=str(place.mark), **arguments)
        await self.finish()

    def signal(self, signal: Signals) -> None:
        self._process.send_signal(signal)

    async def kill(self) -> None:
        self._process.kill()
        await self._process.wait()

    async def end(self) -> None:
        """Let it close its store and end; by force if the test has failed and it hangs."""
        if self._process.returncode is None:
            assert self._process.stdin is not None
            self.signal(Signals.SIGCONT)
            self._process.stdin.close()
            try:
                async with asyncio.timeout(60):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
