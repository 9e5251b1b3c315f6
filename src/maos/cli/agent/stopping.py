"""`maos agent stop`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli.agent import documents, names, standing, words
from maos.cli.agent.options import grace_option, seconds
from maos.cli.commands import LazyCommand, agent_argument, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.plain import clean

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.cli.agent.standing import AgentStanding


@click.command(cls=LazyCommand, examples=["maos agent stop nightly", "maos agent stop nightly --grace 1m --json"])
@agent_argument
@grace_option
@json_option
@click.pass_obj
def stop(database: DatabaseTarget, agent: str, grace: int, as_json: bool) -> None:
    """End an agent so that it can be resumed, and wait until it has ended.

    It is asked to end (TERM), whichever process runs it, and killed with everything it has started when it takes too
    long. One that nobody runs is taken up for this.
    """
    was_open = False

    async def work(m: Maos) -> AgentStanding:
        nonlocal was_open
        name = await names.find(m, agent)
        before = await m.attempts.get(name)
        was_open = before.is_open
        if was_open:
            from maos.engine.stopping import end

            await end(m.attempts, before, seconds(grace) or 0.0)
        return await standing.of_agent(m, name)

    now = database.write(work)
    if as_json:
        shared.show(documents.summary(now))
        return
    from maos.cli import render

    attempt = now.attempt
    how = words.ending({"status": attempt.status, "failure": attempt.failure, "message": attempt.message})
    name_ = (clean(attempt.agent), "bold")
    if not was_open:
        render.line(name_, f" had ended already: {how}")
        return
    render.line(name_, f" {how}" if attempt.status == "stopped" else f" ended before it was stopped: {how}")
    if now.go_on:
        render.line(("to go on: ", "dim"), now.go_on)
