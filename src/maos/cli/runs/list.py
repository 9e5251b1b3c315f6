"""`maos orchestration list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli import render
from maos.cli.agent import words
from maos.cli.commands import LazyCommand, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.runs import documents, page

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.runs.status import RunView

STATUSES = ("planning", "running", "paused", "completed", "failed")
STATES = (
    "initializing", "idle", "working", "waiting_for_user", "waiting_for_tasks", "blocked", "interrupted",
)  # fmt: skip


@click.command(
    "list",
    cls=LazyCommand,
    examples=["maos orchestration list", "maos orchestration list --status running --agents --json"],
)
@click.option(
    "--status",
    "wanted",
    type=click.Choice([*STATUSES, *STATES]),
    metavar="STATUS",
    help=f"Only those of a status ({', '.join(STATUSES)}) or in a state ({', '.join(STATES)}).",
)
@click.option("--agents", is_flag=True, help="Also the agents that are at work.")
@json_option
@click.pass_obj
def list_(database: DatabaseTarget, wanted: str | None, agents: bool, as_json: bool) -> None:
    """List all runs, those that may go on first.

    A run that should be running while nobody carries it out is interrupted; `maos resume` goes on with it.
    """

    async def work(m: Maos) -> list[RunView]:
        return await m.runs.list()

    everything = database.read(work)
    found = [each for each in everything if wanted in (None, each.run.status, each.now.state)]
    if as_json:
        shown = [documents.summary(each) | ({"agents": documents.agents(each)} if agents else {}) for each in found]
        shared.show({"orchestrations": shown})
        return
    _show(found, agents=agents, others=len(everything) - len(found))


def _show(found: list[RunView], *, agents: bool, others: int) -> None:

    if not found:
        other = f"; {render.many(others, 'orchestration')} of other states" if others else ""
        render.line(f"no orchestrations{other}" if others else "no orchestrations; `maos orchestrate` begins one")
        return
    table(found)
    for each in found if agents else ():
        if each.attempts:
            render.line()
            render.line((each.run.id, "bold"))
            page.agents(each)


def table(found: list[RunView]) -> None:
    """Runs, one a line."""

    columns = (
        render.Column("id", style="bold"),
        render.Column("status"),
        render.Column("done", right=True),
        render.Column("tasks", right=True),
        render.Column("cost", right=True),
        render.Column("begun"),
        render.Column("request", yields=2),
        render.Column("doing", style="dim", yields=3),
    )
    rows = [
        (
            each.run.id,
            page.spoken(each) + ("" if each.permanent is None else ", permanent"),
            f"{each.now.progress} %",
            f"{each.run.done}/{len(each.run.tasks)}",
            words.money(each.run.cost_usd) if each.run.cost_usd else "",
            render.when(each.run.created_us),
            words.one_line(each.run.request, 60),
            words.one_line(each.now.error or each.now.activity, 80),
        )
        for each in found
    ]
    render.table(columns, rows)
