"""What people said in conversations about runs (`maos chat`), recorded before anything follows from it."""

from __future__ import annotations

from typing import Any, NamedTuple

from maos.bus import history
from maos.bus.history import SentMessage
from maos.clock import Clock
from maos.engine import attempt_spec
from maos.journal.journal import Journal, Record
from maos.model import run
from maos.model.events.records import ChatSaid


class Unplanned(NamedTuple):
    """A conversation about a request of which there is no run."""

    id: str
    request: str
    at_us: int


class Conversations:
    """The conversations about runs, by the ids of the runs."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock

    async def record(self, id: str, text: str, **more: Any) -> None:
        """Keep what a person said, without keys and passwords that were pasted."""
        said = ChatSaid(text=attempt_spec.without_secrets(text, {}), at_us=self._clock.now_us(), **more)
        await self._journal.append(run.chat_stream(id), said)

    async def read(self, id: str) -> list[Record | SentMessage]:
        """Return what a person said, what happened to the run, and its messages, in the order of the journal."""
        found: list[Record | SentMessage] = [each async for each in history.read(self._journal, id, history.Filter())]
        for name in (run.chat_stream(id), run.stream(id)):
            found += [record async for record in self._journal.read(name)]
        return sorted(found, key=lambda each: each.position)

    async def unplanned(self, beginning: str = "") -> Unplanned | None:
        """The newest conversation without a run whose id begins like this; not one whose plan was refused."""
        newest: Unplanned | None = None
        async for name in self._journal.streams(run.chat_stream(beginning)):
            id = name.removeprefix(run.chat_stream(""))
            if await self._journal.version(run.stream(id)):
                continue
            request, at_us, refused = "", 0, False
            async for record in self._journal.read(name):
                request = record.data.get("request", request)
                refused = record.data.get("refused", False)
                at_us = record.data["at_us"]
            if request and not refused and (newest is None or at_us > newest.at_us):
                newest = Unplanned(id, request, at_us)
        return newest
