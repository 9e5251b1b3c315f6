"""`maos agent run`, `attach`, `resume`, `stop`, `send` and `answer`: starting agents, and commands to them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from maos.cli import commands, documents, remote, render
from maos.cli.agent.status import ending, on_agent, remote_agent
from maos.cli.commands import LINES, FiniteRange, LazyCommand, agent_argument, is_given, json_command, options, seconds
from maos.cli.database import DatabaseTarget, agree_to_settings
from maos.cli.failures import note
from maos.cli.permissions import show_given
from maos.cli.render import clean
from maos.clock import MICROSECONDS
from maos.errors import InvalidInput
from maos.model.status import AgentState

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.cli.agent.live import Begin
    from maos.model.read_models import AgentStatus
    from maos.views.agents import Attachment
    from maos.web.client import Client

DASHES = "maos.cli.agent.dashes"
WORKSPACE = ("setup", "copy_ignored", "include_uncommitted", "env", "project_settings")
GRACE_US = 10 * MICROSECONDS

limit_options = options(
    click.option("--turns", "turns_max", type=click.IntRange(min=1), metavar="N", help="End it after so many turns."),
    click.option(
        "--budget", "budget_usd", type=FiniteRange(min=0, min_open=True), metavar="USD",
        help="End it when it has cost so much.",
    ),
)  # fmt: skip
env_option = click.option(
    "--env", multiple=True, metavar="NAME[=VALUE]",
    help="One more variable for it: NAME passes yours on. Can be repeated.",
)  # fmt: skip


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


@json_command(
    "maos agent run -- make test",
    "maos agent run 'make lint && make test'",
    "maos agent run --name nightly --time-limit 2h --json -- ./nightly.sh --all",
    "maos agent run --kind claude --budget 2 'Fix the failing test in tests/api'",
    "maos agent run --kind 'acp:opencode acp' 'Write the missing docstrings'",
    "maos agent run --kind python jobs:nightly 'everything since Monday'",
    json=LINES,
    cls=RunCommand,
)
@click.argument("words", metavar="TASK | -- COMMAND...", nargs=-1, required=True)
@click.option("--kind", default="shell", show_default=True, help="What it is; `maos agent kinds` lists them.")
@click.option("--name", default="", help="Its name.  [default: made up]")
@click.option("--model", default="", help="The model its program should use.")
@click.option("--instructions", type=commands.TEXT, default="", help="A role or rules for it, or @FILE.")
@click.option(
    "--time-limit", type=commands.DURATION, default=commands.TIME_LIMIT, show_default=True,
    help="End it after so long; 0s: never.",
)  # fmt: skip
@limit_options
@click.option(
    "--allow", "tools_allowed", multiple=True, metavar="TOOL", help="A tool it may use without asking. Can be repeated."
)
@click.option(
    "--permission", type=click.Choice(commands.PERMISSIONS), default=commands.PERMISSIONS[0], show_default=True,
    help="What happens to other tools: ask a person, let it edit files of its workspace, or deny them.",
)  # fmt: skip
@click.option("--cwd", type=click.Path(exists=True, file_okay=False), default=".", help="The folder to work in.")
@click.option("--in-place", is_flag=True, help="Work in the folder itself, not in a git worktree of its own.")
@commands.workspace_options
@commands.detach_option
@click.option("--input", "takes_input", is_flag=True, help="Let a command read messages from its standard input.")
def run(
    database: DatabaseTarget,
    /,
    words: tuple[str, ...],
    kind: str,
    time_limit: int,
    detach: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Run an agent and follow its output; it keeps running if maos exits.

    Words after -- are a program and its arguments; a single TASK is a line for the shell, or the task of the agent
    (- reads it from standard input). A task for the kind python stands after its function, module:name.

    --detach: the server (`maos serve`) records what it does; without one, nothing is started.

    Ctrl+C stops the agent, a second Ctrl+C kills it. If this process dies or its terminal is closed, the agent keeps
    running: `maos agent list` shows it as detached, and `maos agent attach` attaches to it with nothing lost.
    """
    task, argv = _order(kind, words, dashes=click.get_current_context().meta[DASHES])
    agree_to_settings(database, as_json=as_json)
    prepared = commands.workspace_given(given)
    options = {name: value for name, value in given.items() if value is not None and name not in WORKSPACE}
    given = {**options, **prepared}
    if is_given("time_limit"):
        given["time_limit_s"] = seconds(time_limit)

    async def begin(m: Maos) -> Attachment:
        from maos.views.agents import Attachment

        given.setdefault("time_limit_s", m.settings.values.agent.time_limit_s)
        running = await m.agents.start(task, kind=kind, argv=argv, **given)
        return Attachment(running.attempt.agent, running.attempt.id, 0, running)

    async def hand_over(m: Maos) -> int:
        """Start the agent, and leave it to the server, which attaches to it when this process has exited."""
        server = await m.supervisor.check_server()
        name = (await begin(m)).agent
        document = {"kind": "handed_over", "agent": name, "server": server.url}
        commands.show_handed_over(document, name, f"maos attach {name}", as_json=as_json)
        return 0

    if detach:
        return database.write(hand_over)
    return _in_foreground(database, begin, as_json=as_json, create=True)


@json_command("maos agent attach nightly", "maos agent attach ni --json", json=LINES)
@agent_argument
def attach(database: DatabaseTarget, agent: str, as_json: bool) -> int:
    """Attach to a detached agent and follow its output.

    What it said meanwhile comes first. While another process runs it, its output is followed as by `maos agent logs
    -f`.
    """

    async def begin(m: Maos) -> Attachment:
        attachment = await m.agents.attach(await m.agents.find(agent))
        if attachment.held:
            note(f"{attachment.held}; following its output")
        return attachment

    return _in_foreground(database, begin, as_json=as_json)


@json_command(
    "maos agent resume nightly",
    "maos agent resume fixer 'The test on line 40 still fails'",
    "maos agent resume fixer --time-limit 1h --budget 5 --json",
    json=LINES,
)
@agent_argument
@click.argument("more", metavar="[MORE]", required=False, default="")
@click.option("--time-limit", type=commands.DURATION, help="End it after so long; 0s for never.  [default: as before]")
@limit_options
@env_option
def resume(
    database: DatabaseTarget, /, agent: str, more: str, time_limit: int | None, as_json: bool, **given: Any
) -> int:
    """Resume a stopped or failed agent and follow its output.

    It resumes its own session if its program can. Its prompt says what happened and what is unknown; MORE is added to
    that. A command is run again. A detached agent, which still works, is attached to as by `maos agent attach`.
    """
    task = _from_stdin(more)

    async def begin(m: Maos) -> Attachment:
        name = await m.agents.find(agent)
        return await m.agents.resume_attached(name, task=task, time_limit_s=seconds(time_limit), **given)

    return _in_foreground(database, begin, as_json=as_json)


def _in_foreground(database: DatabaseTarget, begin: Begin, *, as_json: bool, create: bool = False) -> int:
    async def work(m: Maos) -> int:
        from maos.cli.agent.live import Foreground  # loads asyncio

        return await Foreground(m, as_json=as_json).run(begin)

    return database.write(work, create=create, waits=True)


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


@json_command("maos agent stop nightly", "maos agent stop nightly --grace 1m --json")
@agent_argument
@click.option(
    "--grace", type=commands.DURATION, default=GRACE_US,
    help="How long it may take to end before it is killed.  [default: 10s]",
)  # fmt: skip
def stop(database: DatabaseTarget, agent: str, grace: int, as_json: bool) -> None:
    """Stop an agent and wait until it has ended; it can be resumed.

    Whichever process runs it, it gets SIGTERM, and is killed with everything it has started when it takes too long. A
    detached agent is attached to for this.
    """
    grace_s = seconds(grace) or 0.0
    if database.is_remote:
        remote.refuse(grace="--grace")
        ran, now = remote.call(remote_agent(agent, _stop_remotely))
    else:
        ran, now = database.write(on_agent(agent, lambda m, name: m.agents.stop_and_wait(name, grace_s=grace_s)))
    if as_json:
        documents.show(now)
        return
    how, name = ending(now), (clean(now.agent), "bold")
    if not ran:
        render.line(name, f" had ended already: {how}")
        return
    is_ending = now.is_open or now.status is AgentState.STOPPED
    render.line(name, f" {how}" if is_ending else f" ended before it was stopped: {how}")
    if now.resumable:
        render.line(("resume with: ", "dim"), now.resumable)


async def _stop_remotely(client: Client, name: str) -> tuple[bool, AgentStatus]:
    return (await client.agent(name)).is_open, await client.stop(name)


@json_command("maos agent send fixer 'Leave the old parser alone'", "git diff | maos agent send fixer -")
@agent_argument
@click.argument("text", metavar="TEXT")
def send(database: DatabaseTarget, agent: str, text: str, as_json: bool) -> None:
    """Send a message to an agent.

    It is recorded at once, and delivered as soon as the agent can accept one: during its turn if its program can,
    after its turn, or when it is resumed. TEXT is - for standard input.
    """
    text = commands.message_text(text)

    async def work(m: Maos) -> tuple[str, int, bool]:
        name = await m.agents.find(agent)
        return name, *await m.agents.tell(name, text)

    if database.is_remote:
        sent = remote.call(remote_agent(agent, lambda client, name: client.send(name, text)))
        name, number, running = sent.agent, sent.message, sent.running
    else:
        name, number, running = database.write(work)
    when = "as soon as it can accept one" if running else "when it is resumed: "
    resume = "" if running else f"maos agent resume {name}"
    render.show(
        {"agent": name, "message": number, "running": running}, f"message {number} for ", (clean(name), "bold"),
        f"; delivered {when}", (resume, "bold"), as_json=as_json,
    )  # fmt: skip


@json_command(
    "maos agent answer fixer yes",
    "maos agent answer fixer always --pattern 'pytest *'",
    "maos agent answer fixer toolu_01 no --why 'Use git mv instead'",
)
@agent_argument
@click.argument("what", metavar="[REQUEST] yes|no|always|never", nargs=-1, required=True)
@commands.rule_options
@click.option("--why", default="", help="A reason, which is sent to the agent.")
def answer(
    database: DatabaseTarget, agent: str, what: tuple[str, ...], scope: str, pattern: str, why: str, as_json: bool
) -> None:
    """Answer an agent that asks for permission to use a tool.

    REQUEST may be left out while the agent waits for one answer only; `maos agent show` lists its requests. The answers
    are those of `maos answer`.
    """
    if len(what) > 2:
        raise click.UsageError("say yes, no, always or never, and before it at most which request is meant")
    more = {"request": "".join(what[:-1]), "why": why, "scope": scope, "pattern": pattern}
    given = database.write(on_agent(agent, lambda m, name: m.questions.answer_permission(name, what[-1], **more)))
    show_given(given, as_json=as_json)
