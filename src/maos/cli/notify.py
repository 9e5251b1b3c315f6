"""`maos admin notify`: test notifications, and list those that were sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents, render
from maos.cli.commands import LazyCommand, LazyGroup, json_lines_option, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.failures import FAILED
from maos.cli.plain import clean
from maos.cli.runs.options import check_addresses
from maos.errors import InvalidInput

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.runs.status import NoticeInfo


@click.group(
    cls=LazyGroup,
    lazy={
        "test": ("maos.cli.notify:test", "Send a test notification to every address."),
        "list": ("maos.cli.notify:list_", "List notifications, and whether each was sent."),
    },
    examples=["maos admin notify test json://127.0.0.1:8080", "maos admin notify list"],
)
def notify() -> None:
    """Test notifications, and list those that were sent.

    A run notifies you when it needs you or has ended, at the addresses in MAOS_NOTIFY and --notify, by apprise: mail,
    chats, push messages.
    """


@click.command(
    cls=LazyCommand, examples=["maos admin notify test", "maos admin notify test json://127.0.0.1:8080 --json"]
)
@click.argument("urls", metavar="[URL]...", nargs=-1)
@json_option
@click.pass_context
def test(ctx: click.Context, urls: tuple[str, ...], as_json: bool) -> None:
    """Send a test notification to every address.

    The addresses are those in MAOS_NOTIFY, and each URL. Exits with 1 if one of them could not be reached.
    """
    from maos.runs import notify as notices

    found = check_addresses(urls)
    if not found:
        raise InvalidInput("there is no address to send to", hint="export MAOS_NOTIFY='mailto://…', or give a URL")
    tested = []
    for address in found:
        tested.append(notices.test(address))
        if not as_json:
            said = ("sent", "green") if tested[-1].sent else ("not sent", "bold red")
            why = tested[-1].why
            render.line(f"address {address.name}  ", said, f"  {clean(why)}" if why else "")
    failed = not all(each.sent for each in tested)
    if as_json:
        documents.show({"ok": not failed, "addresses": documents.of(tested)})
    if failed:
        ctx.exit(FAILED)


@click.command("list", cls=LazyCommand, examples=["maos admin notify list", "maos admin notify list --json"])
@json_lines_option
@click.pass_obj
def list_(database: DatabaseTarget, as_json: bool) -> None:
    """List notifications, and whether each was sent.

    `unknown` is one that was about to be sent when its process died: it is not sent again.
    """

    async def work(m: Maos) -> list[NoticeInfo]:
        return await m.notices()

    found = database.read(work)
    for each in found:
        if as_json:
            documents.show_line(documents.of(each))
            continue
        states = ", ".join(f"{address} {state}" for address, state in each.addresses.items())
        render.line((render.when(each.time_us), "dim"), f"  {clean(each.title)}  ", (states, "dim"))
    if not found and not as_json:
        render.line(("no notifications", "dim"))
