"""`maos status`: everything that runs or waits, those who need a person first."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from maos.cli import documents as shared
from maos.cli.commands import LazyCommand, json_option
from maos.cli.database import DatabaseTarget

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.bus.history import SentMessage
    from maos.cli.agent.standing import AgentStanding as AgentStanding
    from maos.cli.orchestration.standing import RunStanding
    from maos.engine.effects import Effect
    from maos.engine.questions import Open
    from maos.model.workflow import WorkflowRun

RECENT_US = 7 * 86_400 * 1_000_000
"""For how long a run that failed is named here."""


class Overview(NamedTuple):
    """Everything that runs or waits."""

    runs: list[RunStanding]
    agents: list[AgentStanding]
    """Those that belong to no run."""
    questions: list[Open]
    messages: list[SentMessage] | None
    failed_before: int
    """Runs that failed longer ago."""
    flows: list[WorkflowRun]
    """Workflows that have not ended, but for parts of others."""
    unknown: list[Effect]
    """What was begun by somebody who is gone, and may or may not have taken effect."""


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
        return await look(m, messages=messages)

    found = database.read(work)
    if as_json:
        _show_document(found)
    else:
        _show(found)


async def look(m: Maos, *, messages: bool) -> Overview:
    """What there is to see."""
    from maos.cli.agent import standing as agents
    from maos.cli.orchestration import standing
    from maos.engine import questions

    runs = await standing.everything(m)
    asked = [question for each in runs for question in each.questions]
    known = {name for each in runs for name in each.attempts}
    prefixes = tuple(f"{each.run.id}." for each in runs)
    alone = []
    async for attempt in m.attempts.all():
        if attempt.is_open and attempt.agent not in known:
            asked += await questions.of_agent(m.journal, attempt)
            if not attempt.agent.startswith(prefixes):
                alone.append(agents.of_attempts(await m.attempts.history(attempt.agent)))
    flows, unknown = await _flows(m, asked)
    for each in runs:
        unknown += await _unknown(m, each)
    failed = [each for each in runs if each.run.status == "failed"]
    old = [each for each in failed if each.at_us - each.run.ended_us > RECENT_US]
    shown = [each for each in runs if each.run.is_open or (each in failed and each not in old)]
    said = await _newest(m) if messages else None
    return Overview(shown, alone, asked, said, len(old), flows, unknown)


async def _flows(m: Maos, asked: list[Open]) -> tuple[list[WorkflowRun], list[Effect]]:
    """Workflows that have not ended, and what is unknown of them; what they ask is added to what is asked."""
    from maos.engine import effects, ownership, questions

    found: list[WorkflowRun] = []
    unknown: list[Effect] = []
    async for flow in m.workflows.all():
        if flow.is_open:
            asked += await questions.of_workflow(m.journal, flow)
            lives = flow.status == "running" and not ownership.is_gone(flow.owner)
            unknown += [each for each in effects.of_workflow(flow, is_running=lives) if each.outcome == effects.UNKNOWN]
            if not flow.parent:
                found.append(flow)
    return sorted(found, key=lambda each: -each.changed_us), unknown


async def _unknown(m: Maos, standing: RunStanding) -> list[Effect]:
    """What agents of a run that can go on had begun when they, and their engines, went away."""
    from maos.engine import effects, ownership

    found = []
    for name, attempt in standing.attempts.items():
        if standing.run.is_open and not ownership.is_at_work(attempt):
            found += [each async for each in effects.of_agent(m.journal, m.attempts, name)]
    return [each for each in found if each.outcome == effects.UNKNOWN]


async def _newest(m: Maos) -> list[SentMessage]:
    """The newest messages of all runs, the newest last."""
    from maos.cli.orchestration import page, showing

    found: list[SentMessage] = []
    async for name in m.journal.streams("messages/"):
        found += await showing.told(m, name.removeprefix("messages/"), everything=False)
    return sorted(found, key=lambda each: each.position)[-page.MESSAGES_SHOWN_MAX :]


def _show_document(found: Overview) -> None:
    from maos.cli import effects
    from maos.cli.agent import documents as agents
    from maos.cli.orchestration import documents
    from maos.cli.workflow import showing as workflows

    document = {
        "questions": [documents.question(each) for each in found.questions],
        "waiting_for_user": [each.run.id for each in found.runs if each.now.needs_person],
        "blocked": [each.run.id for each in found.runs if each.now.state == "blocked"],
        "failed": [each.run.id for each in found.runs if each.now.state == "failed"],
        "interrupted": [each.run.id for each in found.runs if each.now.state == "interrupted"],
        "orchestrations": [documents.summary(each) for each in found.runs],
        "agents": [agents.summary(each) for each in found.agents],
        "workflows": [workflows.summary(each) for each in found.flows],
        "unknown": [effects.document(each) for each in found.unknown],
        "failed_before": found.failed_before,
    }
    if found.messages is not None:
        document["messages"] = [documents.said(each) for each in found.messages]
    shared.show(document)


def _show(found: Overview) -> None:
    from maos.cli import effects, render
    from maos.cli.agent import listing as agents
    from maos.cli.orchestration import listing, page
    from maos.cli.workflow import listing as workflows
    from maos.cli.workflow import showing

    needy = [each for each in found.runs if each.now.state in ("blocked", "failed", "interrupted")]
    if found.questions:
        page.questions(found.questions, found.questions)
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
        agents.show(found.agents)
    if found.flows:
        if found.runs or found.agents:
            render.line()
        workflows.table([workflows.Listed.of(each) for each in found.flows])
    if not found.runs and not found.agents and not found.questions and not found.flows:
        render.line("nothing runs and nobody waits")
    if found.messages is not None:
        render.line()
        page.message_table(found.messages, len(found.messages))
    if found.failed_before:
        many = render.many(found.failed_before, "orchestration")
        render.line((f"{many} failed before (`maos orchestration list --status failed`)", "dim"))


def trouble(each: RunStanding) -> None:
    """A run that does not go on by itself, why, and what to do."""
    from maos.cli import render
    from maos.cli.agent import words
    from maos.cli.orchestration.standing import STYLES

    run, now = each.run, each.now
    why = words.one_line(now.error or run.why, render.room_for_value(30))
    render.line(("! ", "bold red"), (run.id, "bold"), " is ", (now.state, STYLES[now.state]), f": {why}")
    if now.to_do and now.state != "interrupted":
        render.line(("  to do: ", "dim"), words.one_line(now.to_do, None))
    render.line(("  to go on: ", "dim"), (each.go_on, "bold"))
