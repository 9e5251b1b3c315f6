"""One reader of the journal for everybody in this engine: whoever is addressed hears of what came into their inbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from maos.journal.journal import Journal, Record
from maos.model.attempt import inbox

PREFIX = inbox("")


class Post:
    """Brings what comes into inboxes to those who registered for it."""

    def __init__(self, journal: Journal, *, rest_s: float = 0.0) -> None:
        self._journal = journal
        self._rest_s = rest_s
        self._addressees: dict[str, Callable[[Record], None]] = {}
        self._reader: asyncio.Task[None] | None = None
        self._beginning = asyncio.Lock()

    async def register(self, name: str, deliver: Callable[[Record], None], *, after: int) -> None:
        """Deliver everything in an inbox after a version, and then whatever comes: in order, some of it perhaps twice.

        What comes while the earlier is still read waits: who remembers only the newest version would forget the rest.
        """
        early: list[Record] = []
        self._addressees[name] = early.append
        async with self._beginning:  # else two who register at once would begin two readers
            if self._reader is None:
                self._reader = asyncio.create_task(self._read(await self._journal.head()))
        async for record in self._journal.read(inbox(name), after=after):
            deliver(record)
        for record in early:
            deliver(record)
        self._addressees[name] = deliver

    def forget(self, name: str) -> None:
        """Deliver no more."""
        self._addressees.pop(name, None)

    async def close(self) -> None:
        """Stop reading."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
            self._reader = None

    async def _read(self, after: int) -> None:
        async for record in self._journal.follow(after=after, prefix=PREFIX, rest_s=self._rest_s):
            deliver = self._addressees.get(record.stream.removeprefix(PREFIX))
            if deliver is not None:
                deliver(record)
