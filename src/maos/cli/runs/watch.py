"""`--watch`: the status of a run in the live terminal, kept up to date whichever process executes the run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from maos.cli import documents, render
from maos.cli.agent import words
from maos.cli.runs import page
from maos.cli.runs.live import FRAME_S
from maos.runs.status import is_executing

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.bus.history import SentMessage
    from maos.model.run import Run
    from maos.runs.feed import RunFeed
    from maos.runs.status import RunStatus

LOOK_EVERY_S = 1.0
"""How often to look whether the engine is alive; that it exits is not recorded."""


async def watch(m: Maos, run: Run, *, tasks: bool, messages: bool, as_json: bool) -> None:
    """Render the status of a run whenever it changes, until the run has ended or is paused."""
    terminal = None
    if not as_json and render.coloured(sys.stdout):
        from maos.cli.terminal import LiveTerminal

        terminal = LiveTerminal()
        terminal.start()
    shown_max = 0 if as_json else page.MESSAGES_SHOWN_MAX
    last = ""
    try:
        async for now in _statuses(m, run):
            said = await m.runs.messages(run.id, newest=shown_max) if messages else None
            if as_json:
                documents.show_line(page.document(now, tasks=tasks, messages=said))
            elif terminal is not None:
                last = _page(now, tasks=tasks, said=said)
                await terminal.draw_ansi(last)
            elif (line := _line(now)) != last:
                last = line
                render.line(f"{render.when(now.at_us)}  {line}")
                sys.stdout.flush()
    finally:
        if terminal is not None:
            await terminal.stop()
            sys.stdout.write(last)
            sys.stdout.flush()


async def _statuses(m: Maos, run: Run) -> AsyncIterator[RunStatus]:
    """Yield the status of a run now, and whenever something is recorded or the engine exits, until the run is over."""
    changed = asyncio.Event()

    async def read(feed: RunFeed) -> None:
        async for _update in feed:
            changed.set()

    async with m.runs.follow(run.id) as feed:
        reading = asyncio.create_task(read(feed))
        try:
            while not reading.done():
                changed.clear()
                is_over = not feed.run.is_going  # before the status is read, which takes a while
                was_executing = is_executing(feed.run)
                yield await m.runs.status_of(feed.run)
                if is_over:
                    return
                await asyncio.sleep(FRAME_S)
                while not (changed.is_set() or reading.done()) and is_executing(feed.run) == was_executing:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_EVERY_S):
                            await changed.wait()
            reading.result()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


def _page(now: RunStatus, *, tasks: bool, said: Sequence[SentMessage] | None) -> str:
    with render.console().capture() as printed:
        page.show(now, tasks=tasks, messages=said)
    return printed.get()


def _line(now: RunStatus) -> str:
    """A line for each change: a file is not drawn over."""
    doing = now.now.error or now.now.activity
    return f"{now.now.progress:>3} %  {page.spoken(now)}  {words.one_line(doing, 200)}".rstrip()
