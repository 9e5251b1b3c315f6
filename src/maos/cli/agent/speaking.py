"""`maos agent send` and `answer`: what is said to an agent, from anywhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli.agent import names, words
from maos.cli.commands import LazyCommand, agent_argument, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.plain import clean
from maos.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.attempt import Attempt


@click.command(
    cls=LazyCommand,
    examples=["maos agent send fixer 'Leave the old parser alone'", "git diff | maos agent send fixer -"],
)
@agent_argument
@click.argument("text", metavar="TEXT")
@json_option
@click.pass_obj
def send(database: DatabaseTarget, agent: str, text: str, as_json: bool) -> None:
    """Send a message to an agent.

    It is recorded at once, and given to the agent as soon as it can take one: in the midst of its work if its program
    can, after its turn, or when it is resumed. TEXT is - for standard input.
    """
    text = sys.stdin.read() if text == "-" else text
    if not text.strip():
        raise InvalidInput("the message is empty", hint="say something")

    async def work(m: Maos) -> tuple[Attempt, int]:
        attempt = await m.attempts.get(await names.find(m, agent))
        check_listens(attempt)
        return attempt, await m.attempts.send(attempt.agent, text.removesuffix("\n"))

    attempt, number = database.write(work)
    if as_json:
        shared.show({"agent": attempt.agent, "message": number, "running": attempt.is_open})
        return
    from maos.cli import render

    if attempt.is_open:
        render.line(f"message {number} for ", (clean(attempt.agent), "bold"), "; it gets it as soon as it can take one")
    else:
        render.line(
            f"message {number} for ", (clean(attempt.agent), "bold"), ", which does not run; it gets it with ",
            (f"maos agent resume {attempt.agent}", "bold"),
        )  # fmt: skip


def check_listens(attempt: Attempt) -> None:
    """InvalidInput when an agent is a command that hears nothing."""
    if attempt.kind == "shell" and not attempt.order.get("takes_input"):
        raise InvalidInput(
            f"agent {attempt.agent!r} is a command that was started without input",
            hint="start it with `maos agent run --input`",
        )


@click.command(
    cls=LazyCommand,
    examples=["maos agent answer fixer yes", "maos agent answer fixer toolu_01 no --why 'Use git mv instead'"],
)
@agent_argument
@click.argument("what", metavar="[REQUEST] yes|no", nargs=-1, required=True)
@click.option("--why", default="", help="A reason that the agent is told.")
@json_option
@click.pass_obj
def answer(database: DatabaseTarget, agent: str, what: tuple[str, ...], why: str, as_json: bool) -> None:
    """Answer what an agent asks to be allowed to do.

    REQUEST may be left out while the agent waits for one answer only; `maos agent show` lists what it asks.
    """
    if len(what) > 2 or what[-1].lower() not in ("yes", "y", "no", "n"):
        raise click.UsageError("say yes or no, and before it at most which request is meant")
    allow = what[-1].lower() in ("yes", "y")

    async def work(m: Maos) -> tuple[str, str]:
        attempt = await m.attempts.get(await names.find(m, agent))
        request = _request(attempt, what[:-1])
        await m.attempts.answer(attempt.agent, request, allow=allow, why=why)
        return attempt.agent, words.tool(
            attempt.permissions[request].get("tool", ""), attempt.permissions[request].get("input")
        )

    name, tool = database.write(work)
    if as_json:
        shared.show({"agent": name, "allow": allow, "tool": tool})
        return
    from maos.cli import render

    render.line((clean(name), "bold"), f" may {'' if allow else 'not '}use {tool}")


def _request(attempt: Attempt, given: Sequence[str]) -> str:
    """The request that is meant: the only one there is, or the one whose id begins like this."""
    waiting = [id for id, asked in attempt.permissions.items() if "answer" not in asked]
    if not waiting:
        raise NotFound(f"agent {attempt.agent!r} asks for nothing", hint="somebody may have answered already")
    found = [id for id in waiting if not given or id.startswith(given[0])]
    if len(found) == 1 or (given and given[0] in found):
        return given[0] if given and given[0] in found else found[0]
    shown = ", ".join(clean(each) for each in waiting)
    if found:
        raise InvalidInput(f"agent {attempt.agent!r} asks for {len(waiting)} things", hint=f"name one of {shown}")
    raise NotFound(f"agent {attempt.agent!r} does not ask {given[0]!r}", hint=f"it asks {shown}")
