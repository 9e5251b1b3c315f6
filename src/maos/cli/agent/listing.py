"""`maos agent list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli.agent import documents, standing, words
from maos.cli.commands import LazyCommand, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.plain import clean
from maos.clock import MICROSECONDS, SystemClock

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.cli.agent.standing import AgentStanding

RECENT_US = 86_400 * MICROSECONDS


@click.command("list", cls=LazyCommand, examples=["maos agent list", "maos agent list --all --json"])
@click.option("--all", "everything", is_flag=True, help="Also those that ended more than a day ago.")
@json_option
@click.pass_obj
def list_(database: DatabaseTarget, everything: bool, as_json: bool) -> None:
    """List the agents that run, and those that ran.

    Beside running, done, failed and stopped, an agent can be detached (it works and nobody records it; `maos agent
    attach` takes it up) or interrupted (it is gone and nobody concluded it; `maos agent resume` goes on).
    """

    async def work(m: Maos) -> list[AgentStanding]:
        found = []
        async for attempt in m.attempts.all():
            before = await m.attempts.history(attempt.agent) if attempt.number > 1 else [attempt]
            found.append(standing.of_attempts(before))
        return found

    found = database.read(work)
    since_us = 0 if everything else SystemClock().now_us() - RECENT_US
    shown = [each for each in found if each.attempt.is_open or each.attempt.ended_us >= since_us]
    shown.sort(key=lambda each: (not each.attempt.is_open, -_since_us(each)))
    if as_json:
        shared.show({"agents": [documents.summary(each) for each in shown], "older": len(found) - len(shown)})
        return
    show(shown, older=len(found) - len(shown))


def show(found: list[AgentStanding], *, older: int = 0) -> None:
    """Agents, one a line, and what to do about those that nobody records."""
    from maos.cli import render

    if found:
        columns = (
            render.Column("agent", style="bold", yields=1),
            render.Column("kind", yields=1),
            render.Column("status"),
            render.Column("since"),
            render.Column("cost", right=True),
            render.Column("tokens", right=True),
            render.Column("doing", style="dim", yields=2),
        )
        render.table(columns, [_row(each) for each in found])
    elif not older:
        render.line("no agents; `maos agent run -- COMMAND` runs one")
    for each in found:
        if each.status in (standing.DETACHED, standing.INTERRUPTED):
            render.line(
                (clean(each.attempt.agent), "bold"), f" is {each.status}: ", (each.go_on, "bold"), " goes on with it"
            )
    if older:
        render.line((f"{render.many(older, 'agent')} ended more than a day ago (--all shows them)", "dim"))


def _row(each: AgentStanding) -> tuple[str, ...]:
    from maos.cli import render

    attempt = each.attempt
    total = words.tokens(each.tokens)
    doing = attempt.activity if attempt.is_open else words.ending(
        {"status": attempt.status, "failure": attempt.failure, "message": attempt.message}
    ).partition(": ")[2] or attempt.result or attempt.last_text  # fmt: skip
    return (
        attempt.agent,
        attempt.kind,
        each.status,
        render.when(_since_us(each)),
        words.money(each.cost_usd) if each.cost_usd else "",
        words.count(total) if total else "",
        words.one_line(doing, 60),
    )


def _since_us(each: AgentStanding) -> int:
    attempt = each.attempt
    return attempt.ended_us or attempt.started_us or attempt.planned_us
