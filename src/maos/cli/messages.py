"""`maos message`: what agents tell each other, and what could not be delivered."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from maos.cli import completion, documents, render
from maos.cli.arguments import DURATION, JSON_OBJECT, WHEN
from maos.cli.commands import LazyCommand, LazyGroup, full_option, json_lines_option, json_option
from maos.cli.console import Field, Listing
from maos.cli.database import DatabaseTarget
from maos.cli.plain import clean, shorten
from maos.clock import MICROSECONDS
from maos.errors import InvalidInput
from maos.model.message import TYPES

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.bus.letters import Letter
    from maos.model.message import Message
    from maos.views.messages import MessageInfo

LAST = 50

LETTERS: Listing[Letter] = Listing(
    "letters",
    (
        Field("agent", lambda each: each.name, style="bold", yields=1),
        Field("number", lambda each: str(each.version), right=True),
        Field("since", lambda each: render.when(each.parked_us)),
        Field("from", lambda each: each.message.sender, yields=1),
        Field("why", lambda each: shorten(each.why, 60), yields=2),
        Field("text", lambda each: shorten(each.message.text, 60), style="dim", yields=3),
    ),
)


@click.group(
    cls=LazyGroup,
    lazy={
        "list": (
            "maos.cli.messages:list_",
            "Show messages in the order in which they were sent, with who has not acknowledged them.",
        ),
        "send": (
            "maos.cli.messages:send",
            "Send a message to an agent, to a topic, or to all agents of an orchestration.",
        ),
        "dead": ("maos.cli.messages:dead", "List what could not be delivered, and why; or send one of them again."),
    },
    examples=[
        "maos message list --agent reviewer",
        "maos message send fixer 'Leave the old parser alone'",
        "maos message dead",
    ],
)
def messages() -> None:
    """Read and send messages of agents."""


@click.command(
    "list",
    cls=LazyCommand,
    examples=[
        "maos message list",
        "maos message list --run r-1 --type discovery --since 2h",
        "maos message list --agent reviewer --full",
    ],
)
@click.option("--run", metavar="ID", shell_complete=completion.runs, help="Only messages of this orchestration.")
@click.option("--agent", default="", metavar="NAME", shell_complete=completion.agents,
              help="Only messages to or from this agent.")  # fmt: skip
@click.option("--type", "types", multiple=True, type=click.Choice(TYPES), help="Only of this type. Can be repeated.")
@click.option("--since", type=WHEN, help="Only messages at or after a time: ISO 8601, or 15m, 2h, 3d ago.")
@click.option("--before", type=WHEN, help="Only messages before a time.")
@click.option("--last", type=click.IntRange(min=1), default=LAST, metavar="N", show_default=True, help="How many.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new messages as they are sent; Ctrl+C ends it.")
@full_option
@json_lines_option
@click.pass_obj
def list_(
    database: DatabaseTarget,
    run: str | None,
    agent: str,
    types: tuple[str, ...],
    since: int | None,
    before: int | None,
    last: int,
    follow: bool,
    full: bool,
    as_json: bool,
) -> None:
    """Show messages in the order in which they were sent, with who has not acknowledged them.

    A message that some of its receivers have yet to acknowledge is waiting; one that could not be delivered to some of
    them is dead, and `maos message dead` says why.
    """

    if follow and before is not None:
        raise InvalidInput("new messages are never before a time", hint="leave out --follow or --before")

    async def work(m: Maos) -> None:
        page = await m.messages.newest(
            run=run, agent=agent, types=types, since_us=since or 0, before_us=before or 0, last=last
        )
        for each in page.messages:
            _show(each, full=full, as_json=as_json)
        if not as_json and page.earlier:
            render.line((f"{page.earlier} earlier not shown (--last shows more)", "dim"))
        if not as_json and not page.messages and not follow:
            render.line(("no messages", "dim"))
        if follow:
            new = m.messages.follow(run=run, agent=agent, types=types, since_us=since or 0, after=page.position)
            async for each in new:
                _show(each, full=full, as_json=as_json)
                sys.stdout.flush()

    database.read(work)


@click.command(
    cls=LazyCommand,
    examples=[
        "maos message send fixer 'Leave the old parser alone'",
        "maos message send --topic releases 'The branch is frozen' --type coordination",
        "git log -1 | maos message send fixer -",
    ],
)
@click.argument("to", metavar="TO", shell_complete=completion.tasks)
@click.argument("text", metavar="TEXT")
@click.option("--topic", is_flag=True, help="TO is a topic: it goes to everybody who has joined it.")
@click.option("--all", "everybody", is_flag=True, help="TO is an orchestration: it goes to all its agents.")
@click.option("--type", "kind", type=click.Choice(TYPES), default="info", show_default=True, help="What it is.")
@click.option("--sender", default="person", show_default=True, help="In whose name; others than a person are quoted.")
@click.option("--metadata", type=JSON_OBJECT, help="A JSON object that goes with it.")
@click.option("--ttl", type=DURATION, help="After which time nobody wants it any more: 15m, 2h, 3d.")
@json_option
@click.pass_obj
def send(
    database: DatabaseTarget,
    to: str,
    text: str,
    topic: bool,
    everybody: bool,
    kind: str,
    sender: str,
    metadata: dict[str, Any] | None,
    ttl: int | None,
    as_json: bool,
) -> None:
    """Send a message to an agent, to a topic, or to all agents of an orchestration.

    It is on disk when the command ends, and given to each receiver as soon as it can take one. TEXT is - for standard
    input.
    """
    if topic and everybody:
        raise InvalidInput("TO cannot be a topic and an orchestration", hint="give one of --topic and --all")
    text = (sys.stdin.read() if text == "-" else text).removesuffix("\n")
    if not text.strip():
        raise InvalidInput("the message is empty", hint="say something")
    ttl_s = None if ttl is None else ttl / MICROSECONDS

    async def work(m: Maos) -> Message:
        send = m.bus.publish if topic else m.bus.broadcast if everybody else m.bus.send
        return await send(sender, to, text, type=kind, metadata=metadata, ttl_s=ttl_s)

    sent = database.write(work)
    if as_json:
        documents.show({"id": sent.id, "to": list(sent.to)})
        return
    names = ", ".join(clean(name) for name in sent.to) or "nobody"
    render.line("message ", (sent.id, "bold"), f" for {names}")


@click.command(cls=LazyCommand, examples=["maos message dead", "maos message dead --agent fixer --json"])
@click.option("--agent", metavar="NAME", help="Only those that were for this agent.")
@click.option("--again", type=click.IntRange(min=1), metavar="N", help="Send letter N of --agent again.")
@json_option
@click.pass_obj
def dead(database: DatabaseTarget, agent: str | None, again: int | None, as_json: bool) -> None:
    """List what could not be delivered, and why; or send one of them again."""
    if again is not None and agent is None:
        raise InvalidInput("letters have numbers of their own at each agent", hint="name the agent with --agent")

    async def work(m: Maos) -> list[Letter]:
        if again is not None and agent is not None:
            await m.bus.revive(agent, again)
        return [each async for each in m.bus.dead(agent)]

    found = database.write(work)
    if as_json:
        rows = [
            {
                "agent": each.name,
                "number": each.version,
                "why": each.why,
                "tries": each.tries,
                **documents.time(each.parked_us),
                "message": _document(each.message),
            }
            for each in found
        ]
        documents.show({"letters": rows})
        return
    if again is not None:
        render.line(f"letter {again} for ", (clean(agent or ""), "bold"), " was sent again")
    elif not found:
        render.line(("no dead letters", "dim"))
    else:
        LETTERS.table(found)


# --- showing -----------------------------------------------------------------------------------------------------


def _document(said: Message) -> dict[str, Any]:
    data = said.data()
    data.pop("at_us")
    return {**data, **documents.time(said.at_us)}


def _show(each: MessageInfo, *, full: bool, as_json: bool) -> None:
    said = each.message
    if as_json:
        documents.show_line({**_document(said), "receivers": each.receivers})
        return
    to = clean(said.topic or ", ".join(said.to) or "nobody")
    pending = f"  {', '.join(each.pending)}" if each.pending else ""
    render.line(
        (render.when(said.at_us), "dim"), "  ", (clean(said.sender), "bold"), f" → {to}  ", (said.type, "cyan"),
        (pending, "yellow"), (f"  {said.id}", "dim"),
    )  # fmt: skip
    lines = said.text.splitlines() or [""]
    for text in lines if full else lines[:1]:
        render.line("    ", clean(text) if full else shorten(clean(text), render.room_for_value(4)))
    if len(lines) > 1 and not full:
        render.line((f"    … {render.many(len(lines) - 1, 'more line')} (--full shows them)", "dim"))
