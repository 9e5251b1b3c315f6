"""A run as the journal tells of it, whichever process carries it out: shown as it happens, and known by heart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from maos.cli.agent import words
from maos.cli.documents import time
from maos.cli.orchestrate import narrating
from maos.cli.orchestrate.screen import RunScreen
from maos.engine.types import ATTEMPT
from maos.journal.codec import Event
from maos.model import attempt as attempts
from maos.model import message, run

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.journal.journal import Record
    from maos.model.attempt import Attempt
    from maos.model.run import Run

TEXT_WIDTH = 300
CATCH_UP_S = 5.0


class ChatFollower:
    """One run, followed from now on."""

    def __init__(self, m: Maos, screen: RunScreen, *, changed: Callable[[], None]) -> None:
        self._m = m
        self._screen = screen
        self._changed = changed
        self._moved = asyncio.Event()
        self._attempts: dict[str, Attempt] = {}
        self._task: asyncio.Task[None] | None = None
        self.run: Run

    async def start(self, id: str) -> Run:
        """Begin with how it stands now."""
        from maos.cli.orchestration import standing

        head = await self._m.journal.head()
        self.run = await self._m.runs.get(id)  # after the head: what is read twice is taken once
        self._screen.changed(self.run, ())
        for each in (await standing.at_work(self._m, self.run)).values():
            self._attempts[each.id] = each
            self._screen.knows(each)
        self._task = asyncio.create_task(self._follow(head))
        return self.run

    async def caught_up(self, version: int) -> None:
        """Return when everything up to a version of the run was shown."""
        until = asyncio.get_running_loop().time() + CATCH_UP_S
        while self.run.version < version and asyncio.get_running_loop().time() < until:
            self._moved.clear()
            try:
                async with asyncio.timeout(CATCH_UP_S):
                    await self._moved.wait()
            except TimeoutError:
                return

    async def close(self) -> None:
        """Follow no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _follow(self, after: int) -> None:
        id = self.run.id
        own, said, agents = run.stream(id), message.history(id), attempts.stream(run.agent_name(id, ""))
        async for record in self._m.journal.follow(after=after):
            if record.stream == own:
                self._of_run(record)
            elif record.stream == said:
                self._of_message(record)
            elif record.stream.startswith(agents):
                await self._of_agent(record)
            else:
                continue
            self._changed()
            self._moved.set()

    def _of_run(self, record: Record) -> None:
        if record.version == self.run.version + 1:
            self.run.apply(record.type, record.data)
            self._screen.changed(self.run, [Event(record.type, record.data)])

    async def _of_agent(self, record: Record) -> None:
        id = record.stream.removeprefix(attempts.stream(""))
        known = self._attempts.get(id)
        if known is None:
            known = attempts.Attempt(id=id) if record.version == 1 else await ATTEMPT.load(self._m.journal, id)
            assert known is not None
            self._attempts[id] = known
        if record.version == known.version + 1:
            known.apply(record.type, record.data)
        self._screen.heard(known, record.data.get("facts", ()))
        if not known.is_open:
            del self._attempts[id]

    def _of_message(self, record: Record) -> None:
        said = message.message(record.data)
        if said.sender == message.PERSON or said.type == "discovery":
            return  # the one was typed here or elsewhere, the other is seen where it was made
        name = narrating.task_of(self.run.id, said.sender)
        to = ", ".join(narrating.task_of(self.run.id, each) for each in said.to) if not said.topic else "all"
        self._screen.told(name, f"→ {to}: {words.one_line(said.text, TEXT_WIDTH)}")
        self._screen.document({"kind": "message", **record.data, **time(said.at_us)})
