"""`maos orchestration status` and `pause`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli import render
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
    from maos.runs.status import RunView


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
            from maos.cli.runs.watch import Watch

            await Watch(m, run, tasks=tasks, messages=messages, as_json=as_json).follow()
            return
        if at:
            now, past = await m.runs.status_at(await point(m, run, at))
            said = past if messages else None
        else:
            now = await m.runs.status_of(run)
            said = await m.runs.messages(run.id, newest=shown_max(as_json=as_json)) if messages else None
        if as_json:
            shared.show(document(now, tasks=tasks, said=said))
        else:
            page.show(now, tasks=tasks, messages=said)

    database.read(work)


def shown_max(*, as_json: bool) -> int:
    """How many messages are shown: the newest to people, all (0) to programs."""

    return 0 if as_json else MESSAGES_SHOWN_MAX


def document(now: RunView, *, tasks: bool, said: list[SentMessage] | None) -> Document:
    """What is printed of a run as JSON."""

    found = documents.whole(now)
    if tasks:
        found["tasks"] = [documents.task(each, now.run) for each in now.run.tasks.values()]
    if said is not None:
        found["messages"] = [documents.said(each) for each in said]
    return found


@click.command(cls=LazyCommand, examples=["maos orchestration pause r-1a2b3c", "maos orchestration pause 1a2b --json"])
@id_argument
@json_option
@click.pass_obj
def pause(database: DatabaseTarget, id: str, as_json: bool) -> None:
    """Pause a run; `maos resume` continues it.

    Its agents are stopped, and this waits until they have. Whichever process carries the run out does it, and then
    ends. If none does, agents of the run that still work are stopped all the same. Messages and questions are kept.
    """

    async def work(m: Maos) -> RunView:
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
