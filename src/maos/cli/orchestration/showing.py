"""`maos orchestration status`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import completing
from maos.cli import documents as shared
from maos.cli.commands import LazyCommand
from maos.cli.database import DatabaseTarget

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.bus.history import SentMessage
    from maos.cli.documents import Document
    from maos.cli.orchestration.standing import RunStanding

id_argument = click.argument("id", metavar="ID", shell_complete=completing.runs)


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
    """Show how it stands with a run.

    How far it is, who does what, what went wrong, what it asks you, and how to go on. With --watch this is drawn again
    whenever something happens, whichever process carries the run out; Ctrl+C ends only the watching. With --at it is
    shown as it was at an earlier moment.
    """
    from maos.cli.orchestration import page, standing
    from maos.errors import InvalidInput

    if at and watch:
        raise InvalidInput("what is over does not change, so there is nothing to watch", hint="leave --watch out")

    async def work(m: Maos) -> None:
        run = await standing.find(m, id)
        if at:
            now, past = await standing.of_past(m, run, at)
            said = past if messages else None
            if as_json:
                shared.show(document(now, tasks=tasks, said=said))
            else:
                page.show(now, tasks=tasks, messages=said)
            return
        if watch:
            from maos.cli.orchestration.watching import Watch

            await Watch(m, run, tasks=tasks, messages=messages, as_json=as_json).follow()
            return
        now = await standing.of_run(m, run)
        said = await told(m, run.id, everything=as_json) if messages else None
        if as_json:
            shared.show(document(now, tasks=tasks, said=said))
        else:
            page.show(now, tasks=tasks, messages=said)

    database.read(work)


async def told(m: Maos, run: str, *, everything: bool) -> list[SentMessage]:
    """What the agents of a run told each other, all of it or the end."""
    from maos.bus.history import SentMessage
    from maos.cli.orchestration.page import MESSAGES_SHOWN_MAX
    from maos.model.message import history, message

    if everything:
        return [each async for each in m.bus.history(run=run)]
    end = await m.journal.version(history(run))
    found = await m.journal.page_back(history(run), before=end + 1, limit=MESSAGES_SHOWN_MAX)
    return [SentMessage(each.position, message(each.data)) for each in sorted(found)]


def document(now: RunStanding, *, tasks: bool, said: list[SentMessage] | None) -> Document:
    """What is printed of a run as JSON."""
    from maos.cli.orchestration import documents

    found = documents.whole(now)
    if tasks:
        found["tasks"] = [documents.task(each, now.run) for each in now.run.tasks.values()]
    if said is not None:
        found["messages"] = [documents.said(each) for each in said]
    return found
