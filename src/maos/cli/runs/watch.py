"""Watching a run from any process: drawn again when the journal has something new of it, until it has ended."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from maos.cli import documents as shared
from maos.cli import render
from maos.cli.agent import words
from maos.cli.runs import page, status
from maos.runs.status import is_executing

if TYPE_CHECKING:
    from rich.live import Live

    from maos.app import Maos
    from maos.bus.history import SentMessage
    from maos.model.run import Run
    from maos.runs.feed import RunFeed
    from maos.runs.status import RunView

DRAW_EVERY_S = 0.125
"""The shortest time between two drawings, however much happens."""
LOOK_EVERY_S = 1.0
"""How often to see whether the process that executes it is alive; its end is not recorded in the journal."""


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

    async def follow(self) -> None:
        """Show it as it is, and again whenever something has happened, until it has ended or is paused."""

        if render.terminal() and not self._as_json:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(), auto_refresh=False, vertical_overflow="visible")
        async with self._m.runs.follow(self._run.id) as feed:
            reader = asyncio.create_task(self._read(feed))
            try:
                if self._live is not None:
                    self._live.start()
                await self._until_ended(feed, reader)
            finally:
                if self._live is not None:
                    self._live.stop()
                reader.cancel()
                await asyncio.gather(reader, return_exceptions=True)

    async def _until_ended(self, feed: RunFeed, reader: asyncio.Task[None]) -> None:
        while True:
            self._news.clear()
            is_over = not feed.run.is_going  # before the status is read, which takes a while
            was_executing = is_executing(feed.run)
            await self._show(await self._m.runs.status_of(feed.run))
            if is_over:
                return
            await asyncio.sleep(DRAW_EVERY_S)
            while not self._news.is_set() and is_executing(feed.run) == was_executing:
                try:
                    await asyncio.wait_for(self._news.wait(), LOOK_EVERY_S)
                except TimeoutError:
                    pass
                if reader.done():
                    reader.result()

    async def _read(self, feed: RunFeed) -> None:
        async for _update in feed:
            self._news.set()

    async def _said(self, id: str) -> list[SentMessage]:
        return await self._m.runs.messages(id, newest=status.shown_max(as_json=self._as_json))

    async def _show(self, now: RunView) -> None:
        said = await self._said(now.run.id) if self._messages else None
        if self._as_json:
            await asyncio.to_thread(shared.show_line, status.document(now, tasks=self._tasks, said=said))
        elif self._live is None:
            self._show_lines(now)
        else:
            from rich.text import Text

            with render.console().capture() as drawn:
                page.show(now, tasks=self._tasks, messages=said)
            self._live.update(Text.from_ansi(drawn.get(), no_wrap=True, overflow="ellipsis"), refresh=True)

    def _show_lines(self, now: RunView) -> None:
        """A line for each change: what goes into a file should not be drawn over and over."""

        doing = now.now.error or now.now.activity
        text = f"{now.now.progress:>3} %  {page.spoken(now)}  {words.one_line(doing, 200)}".rstrip()
        if text != self._last:
            self._last = text
            render.line(f"{render.when(now.at_us)}  {text}")
            sys.stdout.flush()
