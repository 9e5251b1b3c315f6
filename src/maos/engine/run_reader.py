"""Runs as the journal has them: a journal is all it takes to read them, from any process."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

from maos.engine.types import RUN
from maos.errors import NotFound
from maos.journal.journal import Journal
from maos.model.run import Run, stream


def new_id() -> str:
    """An id for a run."""
    return f"r-{secrets.token_hex(3)}"


class RunReader:
    """Finds runs by their ids."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def get(self, id: str) -> Run:
        """A run by its id."""
        found = await RUN.load(self._journal, id)
        if found is None:
            raise NotFound(f"there is no orchestration {id!r}", hint="`maos orchestration list` shows them")
        return found

    async def all(self) -> AsyncIterator[Run]:
        """All runs, by id."""
        async for id in self.ids():
            found = await RUN.load(self._journal, id)
            if found is not None:
                yield found

    async def ids(self, prefix: str = "") -> AsyncIterator[str]:
        """The ids of all runs that begin with a prefix; the runs are not read."""
        async for name in self._journal.streams(stream(prefix)):
            yield name.removeprefix(stream(""))
