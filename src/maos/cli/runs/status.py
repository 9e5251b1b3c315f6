"""`maos orchestration status` and `pause`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli import render
from maos.cli.agent import words
from maos.cli.commands import LazyCommand, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.runs import documents, page
from maos.cli.runs.options import id_argument
from maos.cli.runs.page import MESSAGES_SHOWN_MAX
from maos.cli.runs.travel import point
from maos.errors import InvalidInput

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.bus.history import SentMessage
    from maos.cli.documents import Document
    from maos.model.run import Run
    from maos.runs.feed import Feed
    from maos.runs.status import RunStatus

FRAME_S = 0.125
"""The shortest time between two frames, however much happens."""
LOOK_EVERY_S = 1.0
"""How often to look whether the engine is alive; that it exits is not recorded."""


@click.command(
    cls=LazyCommand,
    examples=[
        "maos orchestration status r-1a2b3c",
        "maos orchestration status 1a2b --tasks --messages",
        "maos orchestration status r-1a2b3c --watch",
        "maos orchestration status r-1a2b3c --at before-refactoring --tasks",
    ],
)
@id_argument
@click.option("--messages", is_flag=True, help="Also what the agents told each other.")
@click.option("--tasks", is_flag=True, help="Also every task.")
@click.option("--at", metavar="MOMENT", help="As it was then: a checkpoint, a version, @POSITION, or a time.")
@click.option("--watch", is_flag=True, help="Go on as things happen, until it has ended or is paused.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead; with --watch, one per line.")
@click.pass_obj
def status(
    database: DatabaseTarget, id: str, messages: bool, tasks: bool, at: str | None, watch: bool, as_json: bool
) -> None:
    """Show a run's status.

    How far it is, who does what, what went wrong, what it asks you, and how to go on. With --watch this is drawn again
    whenever something happens, whichever process carries the run out; Ctrl+C ends only the watching. With --at it is
    shown as it was at an earlier moment.
    """

    if at and watch:
        raise InvalidInput("what is over does not change, so there is nothing to watch", hint="leave --watch out")

    async def work(m: Maos) -> None:
        run = await m.runs.find(id)
        if watch:
            await _watch(m, run, tasks=tasks, messages=messages, as_json=as_json)
            return
        if at:
            now, past = await m.runs.status_at(await point(m, run, at))
            said = past if messages else None
        else:
            now = await m.runs.status_of(run)
            said = await _said(m, run.id, as_json=as_json) if messages else None
        if as_json:
            shared.show(document(now, tasks=tasks, said=said))
        else:
            page.show(now, tasks=tasks, messages=said)

    database.read(work)


async def _said(m: Maos, id: str, *, as_json: bool) -> list[SentMessage]:
    """The messages of a run: the newest for people, all for programs."""
    return await m.runs.messages(id, newest=0 if as_json else MESSAGES_SHOWN_MAX)


def document(now: RunStatus, *, tasks: bool, said: list[SentMessage] | None) -> Document:
    """What is printed of a run as JSON."""

    found = documents.whole(now)
    if tasks:
        found["tasks"] = [documents.task(each, now.run) for each in now.run.tasks.values()]
    if said is not None:
        found["messages"] = [documents.said(each) for each in said]
    return found


# --- watching ----------------------------------------------------------------------------------------------------


async def _watch(m: Maos, run: Run, *, tasks: bool, messages: bool, as_json: bool) -> None:
    """Render the status of a run whenever it changes, until the run has ended or is paused."""
    terminal = None
    if not as_json and render.coloured(sys.stdout):
        from maos.cli.terminal import LiveTerminal

        terminal = LiveTerminal()
        terminal.start()
    last = ""
    try:
        async for now in _statuses(m, run):
            said = await _said(m, run.id, as_json=as_json) if messages else None
            if as_json:
                shared.show_line(document(now, tasks=tasks, said=said))
            elif terminal is not None:
                last = _page(now, tasks=tasks, said=said)
                terminal.draw_ansi(last)
            elif (line := _line(now)) != last:
                last = line
                render.line(f"{render.when(now.at_us)}  {line}")
                sys.stdout.flush()
    finally:
        if terminal is not None:
            await terminal.stop()
            sys.stdout.write(last)


async def _statuses(m: Maos, run: Run) -> AsyncIterator[RunStatus]:
    """Yield the status of a run now, and whenever something is recorded or the engine exits, until the run is over."""
    from maos.runs.status import is_executing

    changed = asyncio.Event()

    async def read(feed: Feed) -> None:
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
                        await asyncio.wait_for(changed.wait(), LOOK_EVERY_S)
            reading.result()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


def _page(now: RunStatus, *, tasks: bool, said: list[SentMessage] | None) -> str:
    with render.console().capture() as printed:
        page.show(now, tasks=tasks, messages=said)
    return printed.get()


def _line(now: RunStatus) -> str:
    """A line for each change: a file is not drawn over."""
    doing = now.now.error or now.now.activity
    return f"{now.now.progress:>3} %  {page.spoken(now)}  {words.one_line(doing, 200)}".rstrip()


@click.command(cls=LazyCommand, examples=["maos orchestration pause r-1a2b3c", "maos orchestration pause 1a2b --json"])
@id_argument
@json_option
@click.pass_obj
def pause(database: DatabaseTarget, id: str, as_json: bool) -> None:
    """Pause a run; `maos resume` continues it.

    Its agents are stopped, and this waits until they have. Whichever process carries the run out does it, and then
    ends. If none does, agents of the run that still work are stopped all the same. Messages and questions are kept.
    """

    async def work(m: Maos) -> RunStatus:
        run = await m.runs.find(id)
        return await m.runs.status_of(await m.runs.pause_and_wait(run.id))

    now = database.write(work)
    if as_json:
        shared.show(documents.summary(now))
        return

    what = "is paused" if now.run.status == "paused" else f"is {page.spoken(now)}, and none of its agents works"
    render.line((now.run.id, "bold"), f" {what if now.run.is_open else 'had ended before: ' + now.run.status}")
    if now.go_on:
        render.line(("to go on: ", "dim"), (now.go_on, "bold"))
