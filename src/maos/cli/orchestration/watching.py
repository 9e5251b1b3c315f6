"""Watching a run from any process: drawn again when the journal has something new of it, until it has ended."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from maos.cli import documents as shared
from maos.cli.agent import words
from maos.cli.agent.standing import is_unattended
from maos.cli.orchestration import page, showing, standing
from maos.model.attempt import inbox
from maos.model.message import history
from maos.model.run import agent_name, stream
from maos.model.tool_calls import stream as tools_stream

if TYPE_CHECKING:
    from rich.live import Live

    from maos.app import Maos
    from maos.cli.orchestration.standing import RunStanding
    from maos.journal.journal import Record
    from maos.model.run import Run

DRAW_EVERY_S = 0.125
"""The shortest time between two drawings, however much happens."""
LOOK_EVERY_S = 1.0
"""How often to see whether the process that carries it out still lives; nobody would write that into the journal."""


class Watch:
    """One run, watched."""

    def __init__(self, m: Maos, run: Run, *, tasks: bool, messages: bool, as_json: bool) -> None:
        self._m = m
        self._run = run
        self._tasks = tasks
        self._messages = messages
        self._as_json = as_json
        self._news = asyncio.Event()
        self._live: Live | None = None
        self._last = ""
        agents = agent_name(run.id, "")
        self._streams = (stream(run.id), inbox(run.id), history(run.id))
        self._prefixes = (f"attempt/{agents}", tools_stream(agents), inbox(agents))

    async def follow(self) -> None:
        """Show it as it is, and again whenever something has happened, until it has ended or is paused."""
        from maos.cli import render

        if render.terminal() and not self._as_json:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(), auto_refresh=False, vertical_overflow="visible")
        head = await self._m.journal.head()
        self._run = await self._m.runs.get(self._run.id)  # after the head: what is read twice is taken once
        reader = asyncio.create_task(self._read(head))
        try:
            if self._live is not None:
                self._live.start()
            await self._until_ended(reader)
        finally:
            if self._live is not None:
                self._live.stop()
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _until_ended(self, reader: asyncio.Task[None]) -> None:
        was_alive = True
        while True:
            self._news.clear()
            over = self._run.status not in ("planning", "running")  # before: it goes on while we look
            now = await standing.of_run(self._m, self._run)
            await self._show(now)
            if over:
                return
            was_alive = now.now.state != "interrupted"
            await asyncio.sleep(DRAW_EVERY_S)
            while not self._news.is_set():
                try:
                    await asyncio.wait_for(self._news.wait(), LOOK_EVERY_S)
                except TimeoutError:
                    if is_unattended(self._run.owner) == was_alive:
                        break
                if reader.done():
                    reader.result()

    async def _read(self, after: int) -> None:
        async for record in self._m.journal.follow(after=after):
            if record.stream in self._streams or record.stream.startswith(self._prefixes):
                self._take(record)

    def _take(self, record: Record) -> None:
        if record.stream == self._streams[0] and record.version == self._run.version + 1:
            self._run.apply(record.type, record.data)
        self._news.set()

    async def _show(self, now: RunStanding) -> None:
        said = await showing.told(self._m, now.run.id, everything=self._as_json) if self._messages else None
        if self._as_json:
            await asyncio.to_thread(shared.show_line, showing.document(now, tasks=self._tasks, said=said))
        elif self._live is None:
            self._show_lines(now)
        else:
            from rich.text import Text

            from maos.cli import render

            with render.console().capture() as drawn:
                page.show(now, tasks=self._tasks, messages=said)
            self._live.update(Text.from_ansi(drawn.get(), no_wrap=True, overflow="ellipsis"), refresh=True)

    def _show_lines(self, now: RunStanding) -> None:
        """A line for each change: what goes into a file should not be drawn over and over."""
        from maos.cli import render

        doing = now.now.error or now.now.activity
        text = f"{now.now.progress:>3} %  {page.spoken(now)}  {words.one_line(doing, 200)}".rstrip()
        if text != self._last:
            self._last = text
            render.line(f"{render.when(now.at_us)}  {text}")
            sys.stdout.flush()
