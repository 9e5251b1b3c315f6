"""Following an agent's attempt through the journal, from any process, until it has ended.

Whoever runs the agent and whoever only watches it read the same events the same way. What is shown is on disk, and a
reader who is slow or gone keeps nobody from recording.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from maos.cli import documents as shared
from maos.cli.agent import documents, feed, standing

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.journal.journal import Record

LOOK_EVERY_S = 1.0

Hear = Callable[["Record"], None]


class AgentFollower:
    """Shows what happens to one agent."""

    def __init__(
        self,
        m: Maos,
        agent: str,
        *,
        as_json: bool,
        apart: bool,
        raw: bool = False,
        since_us: int = 0,
        hear: Hear | None = None,
    ) -> None:
        self._m = m
        self._agent = agent
        self._as_json = as_json
        self._raw = raw
        self._since_us = since_us
        self._hear = hear
        self.feed = feed.Feed(apart=apart)
        self._owner: Mapping[str, Any] = {}
        self._told_gone = False

    async def show(self, record: Record) -> None:
        """One event of an attempt. Written by a thread of its own: a terminal that waits makes nobody else wait."""
        if record.type in ("attempt_planned", "attempt_claimed"):
            self._owner, self._told_gone = record.data["owner"], False
        if record.data.get("at_us", record.time_us) < self._since_us:
            pass
        elif self._as_json:
            await asyncio.to_thread(_show_lines, record)
        elif self._raw:
            await asyncio.to_thread(_show_bytes, record)
        else:
            await asyncio.to_thread(self.feed.show, record, await self._messages(record))
        if self._hear is not None:
            self._hear(record)

    async def follow(self, attempt: str, *, after: int = 0, owner: Mapping[str, Any] | None = None) -> None:
        """Line 8/8: everything that happens to an attempt after a version, until it has ended."""
        from maos.model.attempt import stream

        self._owner = owner or {}
        watching = asyncio.create_task(self._watch_owner())
        try:
            async for record in self._m.journal.follow_stream(stream(attempt), after=after):
                await self.show(record)
                if record.type == "attempt_ended":
                    return
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch_owner(self) -> None:
        """Say so when the process that records the agent is gone: nothing will come before another takes it up."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if self._told_gone or not self._owner or not standing.is_unattended(self._owner):
                continue
            self._told_gone = True
            now = await standing.of_agent(self._m, self._agent)
            if now.go_on and not self._as_json and not self._raw:
                self.feed.note(f"{standing.MEANINGS.get(now.status, now.status)}; `{now.go_on}` goes on", "warning")
                self.feed.flush()

    async def _messages(self, record: Record) -> dict[int, str]:
        """The messages that the agent got with this event."""
        from maos.model.attempt import inbox

        found = {}
        for fact in record.data.get("facts", ()):
            if fact["kind"] == "input" and fact["id"].startswith("inbox/"):
                number = feed.place(fact)
                message = await self._m.journal.event(inbox(self._agent), number)
                found[number] = str(message.data.get("text", "")) if message else ""
        return found


def _show_lines(record: Record) -> None:
    for document in documents.events(record):
        shared.show_line(document)


def _show_bytes(record: Record) -> None:
    from maos.model import facts

    output = sys.stdout.buffer
    for fact in record.data.get("facts", ()):
        if fact["kind"] in ("line", "unknown", "text"):
            output.write(facts.raw(fact) + b"\n")
    output.flush()
