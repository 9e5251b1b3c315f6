"""`maos effects`: what agents and workflows did outside, and what nobody knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli.commands import Command, json_option
from maos.cli.database import Target
from maos.cli.documents import Document, time
from maos.cli.plain import clean
from maos.errors import NotFound

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.engine.effects import Effect


@click.command(cls=Command, examples=["maos effects --unknown", "maos effects r-1a2b3c", "maos effects order-7 --json"])
@click.argument("id", metavar="[ID]", required=False, default="")
@click.option("--unknown", is_flag=True, help="Only those of which nobody knows whether they took effect.")
@json_option
@click.pass_obj
def effects(database: Target, id: str, unknown: bool, as_json: bool) -> None:
    """List what was done outside: tools that agents ran, and steps of workflows.

    ID is a run, an agent or a workflow; without it, everything. Each was recorded before it began and when it had
    ended. One that began and did not end is unknown: it is never repeated without being asked for. An agent that is
    resumed is told which of its tools are; for a step, `maos workflow settle` says what became of it.
    """

    async def work(m: Maos) -> list[Effect]:
        found = await _find(m, id)
        return [each for each in found if not unknown or each.outcome == "unknown"]

    found = database.read(work)
    if as_json:
        shared.show({"effects": [_document(each) for each in found]})
        return
    from maos.cli import render

    if not found:
        render.line("nothing is unknown" if unknown else "nothing was done outside")
        return
    columns = (
        render.Column("by", style="bold", yields=1), render.Column("id", yields=4), render.Column("what"),
        render.Column("outcome"), render.Column("begun"), render.Column("given", style="dim", yields=3),
    )  # fmt: skip
    rows = [
        (each.owner, each.id, each.what, each.outcome, render.when(each.begun_us), _line(each.given)) for each in found
    ]
    render.table(columns, rows)


async def _find(m: Maos, id: str) -> list[Effect]:
    from maos.engine import effects, owner

    found: list[Effect] = []
    names: list[str] = []
    if not id:
        names = [attempt.agent async for attempt in m.attempts.all()]
        flows = [flow async for flow in m.workflows.all()]
    else:
        flows = []
        try:
            run = await m.runs.get(id)
            names = [agent for name in run.tasks for agent in run.agents(name)]
        except NotFound:
            try:
                flows = [await m.workflows.get(id)]
            except NotFound:
                names = [(await m.attempts.get(id)).agent]
    for name in names:
        try:
            found += [each async for each in effects.of_agent(m.journal, m.attempts, name)]
        except NotFound:
            continue  # its task has not begun
    for flow in flows:
        is_running = flow.status == "running" and not owner.is_gone(flow.owner)
        found += effects.of_flow(flow, is_running=is_running)
    return sorted(found, key=lambda each: each.begun_us)


def _line(text: str) -> str:
    return clean(text).replace("\n", " ")


def _document(effect: Effect) -> Document:
    return {
        "by": effect.owner, "id": effect.id, "what": effect.what, "given": effect.given, "outcome": effect.outcome,
        "said": effect.said, **time(effect.begun_us, "begun"), **time(effect.ended_us or None, "ended"),
    }  # fmt: skip
