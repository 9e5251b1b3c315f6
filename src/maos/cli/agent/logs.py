"""`maos agent logs`: everything an agent said, over all its attempts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from maos.cli.agent import names
from maos.cli.arguments import WHEN
from maos.cli.commands import LazyCommand, agent_argument, json_lines_option
from maos.cli.database import DatabaseTarget
from maos.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.attempt import Attempt


@click.command(
    cls=LazyCommand,
    examples=[
        "maos agent logs nightly",
        "maos agent logs nightly -f",
        "maos agent logs nightly --since 10m --json",
        "maos agent logs nightly --attempt 1 --raw > nightly.txt",
    ],
)
@agent_argument
@click.option("-f", "--follow", is_flag=True, help="Go on until its attempt has ended, whoever runs it.")
@click.option("--attempt", "number", type=click.IntRange(min=1), metavar="N", help="Only this attempt.")
@click.option("--since", type=WHEN, help="Only what came at or after a time: ISO 8601, or 15m, 2h, 3d ago.")
@click.option("--raw", is_flag=True, help="Exactly the bytes it printed, and nothing else; not for terminals.")
@json_lines_option
@click.pass_obj
def logs(
    database: DatabaseTarget, agent: str, follow: bool, number: int | None, since: int | None, raw: bool, as_json: bool
) -> None:
    """Show what an agent said and did, in order, over all its attempts.

    With -f it goes on as things happen, from any terminal, also while the process that ran the agent is gone and
    another takes over; it ends with the attempt. Ctrl+C ends only the showing.
    """
    if raw and as_json:
        raise InvalidInput("--raw and --json cannot both be", hint="choose one")
    if raw and sys.stdout.isatty():
        raise InvalidInput(
            "raw output could steer your terminal", hint="send it to a file or a pipe: … --raw > output.txt"
        )

    async def work(m: Maos) -> None:
        from maos.cli.agent.following import AgentFollower
        from maos.model.attempt import stream

        name = await names.find(m, agent)
        follower = AgentFollower(m, name, as_json=as_json, apart=False, raw=raw, since_us=since or 0)
        for each in _chosen(await m.attempts.history(name), number):
            if follow and each.is_open:
                await follower.follow(each.id)
                continue
            async for record in m.journal.read(stream(each.id)):
                await follower.show(record)

    database.read(work)


def _chosen(attempts: list[Attempt], number: int | None) -> list[Attempt]:
    chosen = [each for each in attempts if number in (None, each.number)]
    if not chosen:
        newest = attempts[-1]
        raise NotFound(f"agent {newest.agent!r} has no attempt {number}", hint=f"its attempts are 1 to {newest.number}")
    return chosen
