"""One reader of the journal for all who receive in this process; each hears of what came into its own inbox."""

from __future__ import annotations

import asyncio
from typing import Protocol

from maos.errors import MaosError, StoreUnavailable
from maos.journal.journal import Journal, Record
from maos.model.message import inbox

PREFIX = inbox("")
PAUSE_S = 0.5


class Listener(Protocol):
    """Somebody who receives."""

    def offer(self, record: Record) -> None:
        """Something new in the inbox."""
        ...

    def fail(self, error: MaosError) -> None:
        """Nothing more can be read, and why."""
        ...


class Reader:
    """Reads on from where the journal was when the first one came to listen."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._listeners: dict[str, list[Listener]] = {}
        self._task: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()

    async def add(self, name: str, listener: Listener) -> None:
        """Tell somebody of everything that comes into an inbox after this returns."""
        self._listeners.setdefault(inbox(name), []).append(listener)
        if self._task is None or self._task.done():
            self._begun.clear()
            self._task = asyncio.create_task(self._read())
        await self._begun.wait()

    def remove(self, name: str, listener: Listener) -> None:
        """Tell no more."""
        listeners = self._listeners.get(inbox(name), [])
        if listener in listeners:
            listeners.remove(listener)
        if not listeners:
            self._listeners.pop(inbox(name), None)

    async def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _read(self) -> None:
        after = -1
        while True:
            try:
                if after < 0:
                    after = await self._journal.head()
                    self._begun.set()
                async for record in self._journal.follow(after=after, prefix=PREFIX):
                    after = record.position
                    for listener in self._listeners.get(record.stream, ()):
                        listener.offer(record)
            except StoreUnavailable:
                await asyncio.sleep(PAUSE_S)  # nothing is lost meanwhile; it reads on from where it was
            except MaosError as error:
                self._begun.set()
                for listeners in self._listeners.values():
                    for listener in listeners:
                        listener.fail(error)
                return
