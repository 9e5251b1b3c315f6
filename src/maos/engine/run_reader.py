"""Runs as the journal has them: a journal is all it takes to read them, from any process."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

from maos.engine.types import RUN
from maos.errors import NotFound
from maos.ids import only
from maos.journal.journal import Journal
from maos.model.run import Run, stream

ID = "r-"
"""How the ids of runs begin; a person may leave it out."""
HINT = "`maos ps --all` lists runs"


def new_id() -> str:
    """An id for a run."""
    return f"{ID}{secrets.token_hex(3)}"


class RunReader:
    """Finds runs by their ids."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def get(self, id: str) -> Run:
        """A run by its id."""
        found = await RUN.load(self._journal, id)
        if found is None:
            raise NotFound(f"there is no run {id!r}", hint=HINT)
        return found

    async def all(self) -> AsyncIterator[Run]:
        """All runs that were not removed, by id."""
        async for id in self.ids():
            found = await RUN.load(self._journal, id)
            if found is not None and not found.removed_us:
                yield found

    async def ids(self, prefix: str = "") -> AsyncIterator[str]:
        """The ids of all runs that begin with a prefix; the runs are not read."""
        async for name in self._journal.streams(stream(prefix)):
            yield name.removeprefix(stream(""))

    async def find(self, given: str) -> Run:
        """A run by its id or a unique prefix of it, with or without `r-`.

        Example::

            run = await m.runs.find("r-1")
        """
        found = await self.matching(given)
        others = [] if found else [id async for id in self.ids()]
        return await self.get(only(given, found, "run", hint=HINT, others=others))

    async def matching(self, given: str) -> list[str]:
        """The ids of runs that a person may mean; a whole id alone, whichever longer ones there are."""
        for prefix in (given, ID + given):
            found = [id async for id in self.ids(prefix)] if prefix else []
            if found:
                return [prefix] if prefix in found else found
        return []
