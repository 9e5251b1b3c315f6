"""`maos agent send`, `answer`, `logs`, `diff` and `merge`: what an agent is told, says, and does to the files."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from maos.cli import documents, render
from maos.cli.agent import words
from maos.cli.arguments import WHEN
from maos.cli.commands import LazyCommand, json_lines_option, json_option
from maos.cli.completion import agent_argument
from maos.cli.database import DatabaseTarget
from maos.cli.failures import CONFLICT, report
from maos.cli.plain import clean
from maos.errors import InvalidInput
from maos.model.question import yes_or_no

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.question import Open
    from maos.views.agents import AgentFiles, AgentMerge

SIGNS = {"added": ("+", "green"), "deleted": ("-", "red")}


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

    async def work(m: Maos) -> tuple[str, int, bool]:
        name = await m.agents.find(agent)
        return name, *await m.agents.tell(name, text.removesuffix("\n"))

    name, number, running = database.write(work)
    if as_json:
        documents.show({"agent": name, "message": number, "running": running})
    elif running:
        render.line(f"message {number} for ", (clean(name), "bold"), "; it gets it as soon as it can take one")
    else:
        render.line(
            f"message {number} for ", (clean(name), "bold"), ", which does not run; it gets it with ",
            (f"maos agent resume {name}", "bold"),
        )  # fmt: skip


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
    allow = yes_or_no(what[-1])
    if len(what) > 2 or allow is None:
        raise click.UsageError("say yes or no, and before it at most which request is meant")

    async def work(m: Maos) -> Open:
        name = await m.agents.find(agent)
        return await m.questions.answer_permission(name, allow, request="".join(what[:-1]), why=why)

    question = database.write(work)
    tool = words.tool(question.tool, question.input)
    if as_json:
        documents.show({"agent": question.owner, "allow": allow, "tool": tool})
    else:
        render.line((clean(question.owner), "bold"), f" may {'' if allow else 'not '}use {tool}")


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
        from maos.cli.agent.live import printer  # loads asyncio

        show = printer(as_json=as_json, raw=raw)
        name = await m.agents.find(agent)
        async for event in m.agents.output(name, attempt=number, follow=follow):
            if event.at_us >= (since or 0):
                await show(event)

    database.read(work)


@click.command(
    cls=LazyCommand,
    examples=["maos agent diff fixer", "maos agent diff fixer --patch | less", "maos agent diff fixer --json"],
)
@agent_argument
@click.option("--patch", is_flag=True, help="Show the changes themselves, as a patch that git can apply.")
@json_option
@click.pass_obj
def diff(database: DatabaseTarget, agent: str, patch: bool, as_json: bool) -> None:
    """Show which files an agent has changed, up to its last checkpoint."""

    async def work(m: Maos) -> AgentFiles:
        return await m.agents.diff(await m.agents.find(agent), patch=patch)

    found = database.read(work)
    if as_json:
        documents.show(documents.of(found))
    elif found.patch is not None:
        sys.stdout.write(clean(found.patch, lines=True) if sys.stdout.isatty() else found.patch)
    elif not found.files:
        render.line((clean(found.agent), "bold"), " has changed no files")
    for each in found.files if not as_json and not patch else ():
        sign, style = SIGNS.get(each.kind, ("~", "yellow"))
        counts = "binary" if each.added is None else f"+{each.added} -{each.removed}"
        render.line((f"{sign} ", style), clean(each.path), (f"  {counts}", "dim"))


@click.command(
    cls=LazyCommand, examples=["maos agent merge fixer", "maos agent merge fixer --message 'Fix the parser' --json"]
)
@agent_argument
@click.option("--into", type=click.Path(exists=True, file_okay=False), default=".", help="The folder to merge into.")
@click.option("--message", default="", help="The message of the commit.  [default: the agent's task]")
@json_option
@click.pass_context
def merge(ctx: click.Context, agent: str, into: str, message: str, as_json: bool) -> None:
    """Merge what an agent did into the branch checked out here.

    As one commit, all of it or nothing: files that both sides changed are named, and so are changes of yours that are
    in the way.
    """

    async def work(m: Maos) -> AgentMerge:
        return await m.agents.merge(await m.agents.find(agent), into=into, message=message)

    done = ctx.obj.write(work)
    if as_json:
        documents.show(documents.of(done))
    else:
        _show_merge(done)
    if done.outcome != "merged":
        ctx.exit(CONFLICT)


def _show_merge(done: AgentMerge) -> None:
    name = done.agent
    if done.outcome == "blocked":
        report(f"{done.why}: {', '.join(done.files)}" if done.files else done.why, done.hint)
    elif done.outcome == "conflicted":
        report(
            f"both sides changed {', '.join(done.files)}; nothing was merged",
            f"commit yours, then `maos agent resume {name}` and tell it what changed, or take its patch: "
            f"`maos agent diff {name} --patch`",
        )
    elif not done.files:
        render.line("nothing to merge: everything is there already")
    else:
        files = render.many(len(done.files), "file")
        render.line((clean(name), "bold"), f": {files} merged as commit {done.commit[:12]}")
