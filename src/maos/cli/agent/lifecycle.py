"""`maos agent run`, `attach`, `resume` and `stop`: agents begin, are attached to, go on and end."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from maos.cli import documents, render
from maos.cli.agent import status
from maos.cli.arguments import DURATION, TEXT, seconds
from maos.cli.commands import LazyCommand, json_lines_option, json_option
from maos.cli.completion import agent_argument
from maos.cli.database import DatabaseTarget
from maos.cli.failures import note
from maos.cli.plain import clean
from maos.clock import MICROSECONDS
from maos.errors import InvalidInput
from maos.model.agent_state import AgentState

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.cli.agent.live import Begin
    from maos.views.agents import AgentStatus, Attachment

PERMISSIONS = ("ask", "edits", "deny")
TIME_LIMIT = "10m"
DASHES = "maos.cli.agent.dashes"
GRACE_US = 10 * MICROSECONDS

turns_option = click.option("--turns", type=click.IntRange(min=1), metavar="N", help="End it after so many turns.")
budget_option = click.option(
    "--budget", type=click.FloatRange(min=0, min_open=True), metavar="USD", help="End it when it has cost so much."
)
env_option = click.option(
    "--env", "variables", multiple=True, metavar="NAME",
    help="A variable of ours that it may see. Can be repeated; others it does not see.",
)  # fmt: skip
grace_option = click.option(
    "--grace", type=DURATION, default=GRACE_US, help="How long it may take to end before it is killed.  [default: 10s]"
)


class RunCommand(LazyCommand):
    """A command that remembers whether `--` stood before its words: they are then a program and its arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[DASHES] = "--" in args
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if ctx.meta[DASHES]:
                raise
            command = shlex.join(given) if not given[0].startswith("-") else "COMMAND"
            raise InvalidInput(
                f"`maos agent run` has no option {error.option_name!r}",
                hint=f"if it belongs to the command, put -- before that: `maos agent run -- {command}`",
            ) from error


@click.command(
    cls=RunCommand,
    examples=[
        "maos agent run -- make test",
        "maos agent run 'make lint && make test'",
        "maos agent run --name nightly --time-limit 2h --json -- ./nightly.sh --all",
        "maos agent run --kind claude --budget 2 'Fix the failing test in tests/api'",
        "maos agent run --kind 'acp:opencode acp' 'Write the missing docstrings'",
        "maos agent run --kind python jobs:nightly 'everything since Monday'",
    ],
)
@click.argument("words", metavar="TASK | -- COMMAND...", nargs=-1, required=True)
@click.option("--kind", default="shell", show_default=True, help="What it is; `maos agent kinds` lists them.")
@click.option("--name", default="", help="What to call it.  [default: made up]")
@click.option("--model", default="", help="The model its program should use.")
@click.option("--instructions", type=TEXT, default="", help="A role or rules for it, or @FILE.")
@click.option(
    "--time-limit", type=DURATION, default=TIME_LIMIT, show_default=True, help="End it after so long; 0s: never."
)
@turns_option
@budget_option
@click.option("--allow", "tools", multiple=True, metavar="TOOL", help="A tool it may use unasked. Can be repeated.")
@click.option(
    "--permission", type=click.Choice(PERMISSIONS), default=PERMISSIONS[0], show_default=True,
    help="What becomes of other tools: ask a person, let it edit files of its workspace, or deny them.",
)  # fmt: skip
@click.option("--cwd", type=click.Path(exists=True, file_okay=False), default=".", help="The folder to work in.")
@click.option("--in-place", is_flag=True, help="Work in the folder itself, not in a git worktree of its own.")
@env_option
@click.option("--input", "takes_input", is_flag=True, help="Let a command read messages from its standard input.")
@json_lines_option
@click.pass_context
def run(
    ctx: click.Context,
    words: tuple[str, ...],
    kind: str,
    name: str,
    model: str,
    instructions: str,
    time_limit: int,
    turns: int | None,
    budget: float | None,
    tools: tuple[str, ...],
    permission: str,
    cwd: str,
    in_place: bool,
    variables: tuple[str, ...],
    takes_input: bool,
    as_json: bool,
) -> None:
    """Run an agent that survives us, and show what it does.

    Words after -- are a program and its arguments; a single TASK is a line for the shell, or what to tell the agent
    (- reads it from standard input). A task for the kind python stands after its function, module:name.

    Ctrl+C stops the agent, a second Ctrl+C kills it. If this process dies or its terminal is closed, the agent goes on:
    `maos agent list` shows it as detached, `maos agent attach` takes it up again with nothing lost.
    """
    task, argv = _order(kind, words, dashes=ctx.meta[DASHES])
    given = ctx.get_parameter_source("time_limit") is not ParameterSource.DEFAULT

    async def begin(m: Maos) -> Attachment:
        from maos.views.agents import Attachment

        running = await m.agents.start(
            task,
            kind=kind,
            name=name,
            argv=argv,
            cwd=cwd,
            in_place=in_place,
            model=model,
            instructions=instructions,
            time_limit_s=seconds(time_limit) or 0.0 if given else m.settings.values.agent.time_limit_s,
            turns_max=turns or 0,
            budget_usd=budget or 0.0,
            tools_allowed=tools,
            permission=permission,
            takes_input=takes_input,
            pass_variables=variables,
        )
        return Attachment(running.attempt.agent, running.attempt.id, 0, running)

    _in_foreground(ctx, begin, as_json=as_json, create=True)


@click.command(cls=LazyCommand, examples=["maos agent attach nightly", "maos agent attach ni --json"])
@agent_argument
@json_lines_option
@click.pass_context
def attach(ctx: click.Context, agent: str, as_json: bool) -> None:
    """Attach to a detached agent and follow its output.

    What it said meanwhile comes first. While another process runs it, it is only shown, as `maos agent logs -f` does.
    """

    async def begin(m: Maos) -> Attachment:
        attachment = await m.agents.attach(await m.agents.find(agent))
        if attachment.held:
            note(f"{attachment.held}; showing what it does")
        return attachment

    _in_foreground(ctx, begin, as_json=as_json)


@click.command(
    cls=LazyCommand,
    examples=[
        "maos agent resume nightly",
        "maos agent resume fixer 'The test on line 40 still fails'",
        "maos agent resume fixer --time-limit 1h --budget 5 --json",
    ],
)
@agent_argument
@click.argument("more", metavar="[MORE]", required=False, default="")
@click.option("--time-limit", type=DURATION, help="End it after so long; 0s for never.  [default: as before]")
@turns_option
@budget_option
@env_option
@json_lines_option
@click.pass_context
def resume(
    ctx: click.Context,
    agent: str,
    more: str,
    time_limit: int | None,
    turns: int | None,
    budget: float | None,
    variables: tuple[str, ...],
    as_json: bool,
) -> None:
    """Resume a stopped or failed agent and follow its output.

    It goes on in its own session if its program can, and is told what happened and what is unknown; MORE is added to
    that. A command is run again. One that still works without us is only taken up, as by `maos agent attach`.
    """

    async def begin(m: Maos) -> Attachment:
        return await m.agents.resume_attached(
            await m.agents.find(agent),
            task=_from_stdin(more),
            time_limit_s=seconds(time_limit),
            turns_max=turns,
            budget_usd=budget,
            pass_variables=variables,
        )

    _in_foreground(ctx, begin, as_json=as_json)


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

    async def work(m: Maos) -> tuple[bool, AgentStatus]:
        return await m.agents.stop_and_wait(await m.agents.find(agent), grace_s=seconds(grace) or 0.0)

    ran, now = database.write(work)
    if as_json:
        documents.show(documents.of(now))
        return
    how, name = status.ending(now), (clean(now.agent), "bold")
    if not ran:
        render.line(name, f" had ended already: {how}")
        return
    render.line(name, f" {how}" if now.status is AgentState.STOPPED else f" ended before it was stopped: {how}")
    if now.resumable:
        render.line(("to go on: ", "dim"), now.resumable)


def _in_foreground(ctx: click.Context, begin: Begin, *, as_json: bool, create: bool = False) -> None:
    async def work(m: Maos) -> int:
        from maos.cli.agent.live import Foreground  # loads asyncio

        return await Foreground(m, as_json=as_json).run(begin)

    database: DatabaseTarget = ctx.obj
    ctx.exit(database.write(work, create=create))


def _order(kind: str, words: Sequence[str], *, dashes: bool) -> tuple[str, Sequence[str]]:
    """The task and the argument list that the words stand for."""
    if kind == "shell":
        if dashes or len(words) > 1:
            return shlex.join(words), words
        line = _from_stdin(words[0])
        return line, ("sh", "-c", line)
    if kind == "python":
        if len(words) > 2:
            raise InvalidInput("a function takes one task", hint="put the task in quotes")
        return _from_stdin(words[1]) if len(words) > 1 else "", words[:1]
    if len(words) > 1:
        raise InvalidInput(f"the task has {len(words)} parts", hint="put the task in quotes")
    return _from_stdin(words[0]), ()


def _from_stdin(text: str) -> str:
    if text != "-":
        return text
    read = sys.stdin.read().strip() if sys.stdin is not None else ""
    if not read:
        raise InvalidInput("there is no task on standard input", hint="give it as an argument, or pipe it in")
    return read
