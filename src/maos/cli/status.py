"""`maos status`: everything that runs or waits, those who need a person first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli import effects, questions, render
from maos.cli.agent import status as agents
from maos.cli.agent import words
from maos.cli.commands import LazyCommand, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.runs import documents, page
from maos.cli.runs import list as listing
from maos.cli.runs.page import STYLES
from maos.cli.workflow import listing as workflows
from maos.cli.workflow import showing

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.runs.status import RunView
    from maos.views.overview import Overview


@click.command(cls=LazyCommand, examples=["maos status", "maos status --messages --json"])
@click.option("--messages", is_flag=True, help="Also the newest messages between agents.")
@json_option
@click.pass_obj
def status(database: DatabaseTarget, messages: bool, as_json: bool) -> None:
    """Show everything that runs or waits now, and what needs you first.

    That is: what somebody asks you, runs that are blocked, interrupted or failed in the last week, runs that go on,
    and agents that run by themselves. `maos orchestration list` and `maos agent list` show the others too.
    """

    async def work(m: Maos) -> Overview:
        return await m.overview()

    found = database.read(work)
    if as_json:
        _show_document(found, messages=messages)
    else:
        _show(found, messages=messages)


def _show_document(found: Overview, *, messages: bool) -> None:

    document = {
        "questions": questions.documents_of(found.questions),
        "waiting_for_user": [each.run.id for each in found.runs if each.now.needs_person],
        "blocked": [each.run.id for each in found.runs if each.now.state == "blocked"],
        "failed": [each.run.id for each in found.runs if each.now.state == "failed"],
        "interrupted": [each.run.id for each in found.runs if each.now.state == "interrupted"],
        "orchestrations": [documents.summary(each) for each in found.runs],
        "agents": shared.of(found.agents),
        "workflows": [showing.summary(each) for each in found.flows],
        "unknown": shared.of(found.unknown),
        "failed_before": found.failed_before,
    }
    if messages:
        document["messages"] = [documents.said(each) for each in found.messages]
    shared.show(document)


def _show(found: Overview, *, messages: bool) -> None:

    needy = [each for each in found.runs if each.now.state in ("blocked", "failed", "interrupted")]
    if found.questions:
        questions.show_open(found.questions, found.questions)
    for each in needy:
        trouble(each)
    stopped = [each for each in found.flows if showing.go_on(each)]
    for flow in stopped:
        showing.trouble(flow)
    effects.warn(found.unknown)
    if (found.questions or needy or found.unknown or stopped) and (found.runs or found.agents or found.flows):
        render.line()
    if found.runs:
        listing.table(found.runs)
    if found.agents:
        if found.runs:
            render.line()
        agents.show_list(found.agents)
    if found.flows:
        if found.runs or found.agents:
            render.line()
        workflows.table([workflows.Listed.of(each) for each in found.flows])
    if not found.runs and not found.agents and not found.questions and not found.flows:
        render.line("nothing runs and nobody waits")
    if messages:
        render.line()
        page.message_table(found.messages, len(found.messages))
    if found.failed_before:
        many = render.many(found.failed_before, "orchestration")
        render.line((f"{many} failed before (`maos orchestration list --status failed`)", "dim"))


def trouble(each: RunView) -> None:
    """A run that does not go on by itself, why, and what to do."""

    run, now = each.run, each.now
    why = words.one_line(now.error or run.why, render.room_for_value(30))
    render.line(("! ", "bold red"), (run.id, "bold"), " is ", (now.state, STYLES[now.state]), f": {why}")
    if now.to_do and now.state != "interrupted":
        render.line(("  to do: ", "dim"), words.one_line(now.to_do, None))
    render.line(("  to go on: ", "dim"), (each.go_on, "bold"))
