"""`maos message`: messages between agents and people, and those that could not be delivered."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from maos.cli import commands, documents, remote, render
from maos.cli.commands import LINES, WHEN, LazyGroup, forward, json_command, seconds
from maos.cli.database import DatabaseTarget
from maos.cli.render import Column, Listing, clean, shorten
from maos.errors import InvalidInput
from maos.model.message import TYPES

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.bus.acknowledgements import DeadLetter
    from maos.model.message import Message
    from maos.views.messages import MessageInfo
    from maos.web.documents import MessageEntry

LAST = 50
NO_RECEIVERS = "no receivers"


def _document(said: Message) -> documents.Document:
    data = said.data
    data.pop("at_us", None)
    return {**data, **documents.time(said.at_us)}


def _letter(each: DeadLetter) -> documents.Document:
    known = {"agent": each.name, "number": each.version, "why": each.why, "tries": each.tries}
    return {**known, **documents.time(each.since_us), "message": _document(each.message)}


LETTERS: Listing[DeadLetter] = Listing(
    "letters",
    (
        Column("agent", lambda each: each.name, style="bold", yields=1),
        Column("number", lambda each: str(each.version), right=True),
        Column("since", lambda each: render.when(each.since_us)),
        Column("from", lambda each: each.message.sender, yields=1),
        Column("why", lambda each: shorten(each.why, 60), yields=2),
        Column("text", lambda each: shorten(each.message.text, 60), style="dim", yields=3),
    ),
    empty="no dead letters",
    of=_letter,
)


@click.group(
    cls=LazyGroup,
    lazy={
        "list": ("maos.cli.messages:list_", "List messages, and which receivers have yet to acknowledge them."),
        "send": ("maos.cli.messages:send", "Send a message to an agent, to a topic, or to all agents of a run."),
        "dead": ("maos.cli.messages:dead", "List messages that could not be delivered, or requeue one."),
    },
    examples=[
        "maos message list --agent reviewer",
        "maos message send fixer 'Leave the old parser alone'",
        "maos message dead",
    ],
)
def messages() -> None:
    """Read and send messages of agents."""


@json_command(
    "maos message list",
    "maos message list --run r-1 --type discovery --since 2h",
    "maos message list --agent reviewer --full",
    json=LINES,
)
@click.option("--run", metavar="ID", shell_complete=commands.complete_runs, help="Only messages of this run.")
@click.option("--agent", default="", metavar="NAME", shell_complete=commands.complete_agents,
              help="Only messages to or from this agent.")  # fmt: skip
@click.option("--type", "types", multiple=True, type=click.Choice(TYPES), help="Only of this type. Can be repeated.")
@click.option("--since", type=WHEN, help="Only messages at or after a time: ISO 8601, or 15m, 2h, 3d ago.")
@click.option("--before", type=WHEN, help="Only messages before a time.")
@click.option("--last", type=click.IntRange(min=1), default=LAST, metavar="N", show_default=True, help="How many.")
@click.option("-f", "--follow", is_flag=True, help="Follow new messages as they are sent; Ctrl+C ends it.")
@commands.full_option
def list_(
    database: DatabaseTarget,
    /,
    since: int | None,
    before: int | None,
    last: int,
    follow: bool,
    full: bool,
    as_json: bool,
    **filters: Any,
) -> None:
    """List messages, and which receivers have yet to acknowledge them.

    A message that some of its receivers have yet to acknowledge is waiting; one that could not be delivered to some of
    them is dead, and `maos message dead` says why.
    """
    if follow and before is not None:
        raise InvalidInput("new messages are never before a time", hint="leave out --follow or --before")
    filters["since_us"] = since or 0

    async def work(m: Maos) -> None:
        page = await m.messages.newest(before_us=before or 0, last=last, **filters)
        for each in page.messages:
            _show(each, full=full, as_json=as_json)
        if not as_json and page.earlier:
            render.line((f"{page.earlier} earlier not shown (--last shows more)", "dim"))
        if not as_json and not page.messages and not follow:
            render.line("no messages")
        if follow:
            async for each in m.messages.follow(after=page.position, **filters):
                _show(each, full=full, as_json=as_json)
                sys.stdout.flush()

    if database.is_remote:
        remote.refuse(types="--type", since="--since", before="--before", follow="--follow")
        chosen = {"run": filters["run"] or "", "agent": filters["agent"], "limit": last}
        for entry in remote.call(lambda client: client.messages(**chosen)).messages:
            _show(_info(entry), full=full, as_json=as_json)
        return
    database.read(work, waits=follow)


def _info(entry: MessageEntry) -> MessageInfo:
    """A message of a server as one of the database."""
    from maos.model.message import Message
    from maos.views.messages import DeliveryStatus, MessageInfo

    names = ("id", "sender", "text", "type", "run", "topic", "reply_to", "at_us", "by")
    message = Message(**{name: getattr(entry, name) for name in names}, to=tuple(entry.to))
    return MessageInfo(message, {name: DeliveryStatus(status) for name, status in entry.receivers.items()})


@json_command(
    "maos message send fixer 'Leave the old parser alone'",
    "maos message send --topic releases 'The branch is frozen' --type coordination",
    "git log -1 | maos message send fixer -",
)
@click.argument("to", metavar="TO", shell_complete=commands.complete_tasks)
@click.argument("text", metavar="TEXT")
@click.option("--topic", is_flag=True, help="TO is a topic: it goes to all agents that have joined it.")
@click.option("--all", "to_all", is_flag=True, help="TO is a run: it goes to all its agents.")
@click.option("--type", type=click.Choice(TYPES), default="info", show_default=True, help="What it is.")
@click.option("--sender", help="The name it goes under: you by default; text of agents is quoted.")
@click.option("--metadata", type=commands.JSON_OBJECT, help="A JSON object that goes with it.")
@click.option("--ttl", type=commands.DURATION, help="After this time it becomes a dead letter: 15m, 2h, 3d.")
def send(
    database: DatabaseTarget,
    /,
    to: str,
    text: str,
    topic: bool,
    to_all: bool,
    sender: str | None,
    ttl: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Send a message to an agent, to a topic, or to all agents of a run.

    It is on disk when the command ends, and delivered to each receiver as soon as it can accept one. TEXT is - for
    standard input.
    """
    if topic and to_all:
        raise InvalidInput("TO cannot be a topic and a run", hint="give one of --topic and --all")
    text = commands.message_text(text)
    if database.is_remote:
        given = {"topic": "--topic", "to_all": "--all", "sender": "--sender", "type": "--type", "ttl": "--ttl"}
        remote.refuse(**given, metadata="--metadata")
        forward("maos.cli.agent.lifecycle:send", to, text=text, as_json=as_json)
        return

    async def work(m: Maos) -> Message:
        send = m.bus.publish if topic else m.bus.broadcast if to_all else m.bus.send
        return await send(sender or m.principal.sender, to, text, ttl_s=seconds(ttl), **options)

    sent = database.write(work)
    for_ = f" for {clean(', '.join(sent.to)) or NO_RECEIVERS}"
    render.show({"id": sent.id, "to": list(sent.to)}, "message ", (sent.id, "bold"), for_, as_json=as_json)


@json_command("maos message dead", "maos message dead --agent fixer --json")
@click.option("--agent", metavar="NAME", help="Only those for this agent.")
@click.option("--again", type=click.IntRange(min=1), metavar="N", help="Requeue dead letter N of --agent.")
def dead(database: DatabaseTarget, agent: str | None, again: int | None, as_json: bool) -> None:
    """List messages that could not be delivered, or requeue one."""
    if again is not None and agent is None:
        raise InvalidInput("each agent numbers its dead letters itself", hint="name the agent with --agent")

    async def work(m: Maos) -> list[DeadLetter]:
        if again is not None and agent is not None:
            await m.bus.requeue(agent, again)
        return [each async for each in m.bus.dead_letters(agent)]

    found = database.write(work)
    if again is not None and not as_json:
        render.line(f"requeued dead letter {again} for ", (clean(agent or ""), "bold"))
    else:
        LETTERS.show(found, as_json=as_json)


def _show(each: MessageInfo, *, full: bool, as_json: bool) -> None:
    message = each.message
    if as_json:
        documents.show_line({**_document(message), "receivers": each.receivers})
        return
    to = clean(message.topic or ", ".join(message.to) or NO_RECEIVERS)
    pending = f"  {', '.join(each.pending)}" if each.pending else ""
    render.line(
        (render.when(message.at_us), "dim"), "  ", (clean(message.sender), "bold"), f" → {to}  ",
        (message.type, "cyan"), (pending, "yellow"), (f"  {message.id}", "dim"),
    )  # fmt: skip
    first, *more = message.text.splitlines() or [""]
    render.line("    ", clean(first) if full else shorten(clean(first), render.room_for_value(4)))
    for text in more if full else ():
        render.line("    ", clean(text))
    if more and not full:
        render.line((f"    … {render.many(len(more), 'more line')} (--full shows them)", "dim"))
