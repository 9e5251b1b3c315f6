"""`maos notify`: whether a person can be told elsewhere about runs, and what they were told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from maos.cli import documents as shared
from maos.cli.agent import words
from maos.cli.commands import LazyCommand, LazyGroup, json_lines_option, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.failures import FAILED
from maos.cli.orchestrate.options import notify_addresses
from maos.cli.plain import clean
from maos.errors import InvalidInput

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.engine.notify import Address
    from maos.model.notice import Notice
    from maos.model.run import Run

TITLE, BODY = "maos: a test", "If you can read this, maos can tell you when a run needs you."


@click.group(
    cls=LazyGroup,
    lazy={"test": "maos.cli.notify:test", "list": "maos.cli.notify:list_"},
    examples=["maos notify test json://127.0.0.1:8080", "maos notify list"],
)
def notify() -> None:
    """Be told elsewhere when a run needs you or has ended.

    At the addresses in MAOS_NOTIFY and after --notify, by apprise: mail, chats, push messages.
    """


@click.command(cls=LazyCommand, examples=["maos notify test", "maos notify test json://127.0.0.1:8080 --json"])
@click.argument("urls", metavar="[URL]...", nargs=-1)
@json_option
@click.pass_context
def test(ctx: click.Context, urls: tuple[str, ...], as_json: bool) -> None:
    """Send a test to every address.

    To those in MAOS_NOTIFY, and each URL. Exits with 1 if one of them does not take it.
    """
    from maos.engine.notify import send

    found = notify_addresses(urls)
    if not found:
        raise InvalidInput("there is no address to send to", hint="export MAOS_NOTIFY='mailto://…', or give a URL")
    outcomes: list[tuple[Address, str]] = []
    for address in found:
        why = send(address, TITLE, BODY)
        outcomes.append((address, why))
        if not as_json:
            from maos.cli import render

            said = ("sent", "green") if not why else ("not sent", "bold red")
            render.line(f"address {address.name}  ", said, f"  {clean(why)}" if why else "")
    failed = any(why for _address, why in outcomes)
    if as_json:
        sent = [{"address": address.name, "sent": not why, "why": why or None} for address, why in outcomes]
        shared.show({"ok": not failed, "addresses": sent})
    if failed:
        ctx.exit(FAILED)


@click.command("list", cls=LazyCommand, examples=["maos notify list", "maos notify list --json"])
@json_lines_option
@click.pass_obj
def list_(database: DatabaseTarget, as_json: bool) -> None:
    """Show what you were told about runs, and what became of it.

    `unknown` is what was about to be sent when the process that did it died: it is not sent again.
    """

    async def work(m: Maos) -> list[tuple[Run, Notice]]:
        from maos.engine.notify import load

        return [(run, each) async for run in m.runs.all() for each in (await load(m.journal, run.id)).by_id.values()]

    found = sorted(database.read(work), key=lambda pair: pair[1].at_us)
    for run, notice in found:
        _show(run, notice, as_json)
    if not found and not as_json:
        from maos.cli import render

        render.line(("nobody was told anything", "dim"))


def _show(run: Run, notice: Notice, as_json: bool) -> None:
    from maos.cli.orchestrate.interrupted import is_carried_out
    from maos.model.notice import PLANNED, UNKNOWN

    open_ = "being sent" if is_carried_out(run) else UNKNOWN
    became: dict[str, Any] = {
        each: open_ if notice.status(each) == PLANNED else notice.status(each) for each in notice.addresses
    }
    if as_json:
        document = {"run": run.id, "id": notice.id, "what": notice.what, "title": notice.title}
        shared.show_line({**document, "addresses": became, "why": notice.why, **shared.time(notice.at_us)})
        return
    from maos.cli import render

    states = ", ".join(f"{each} {state}" for each, state in became.items())
    render.line((words.when(notice.at_us), "dim"), f"  {clean(notice.title)}  ", (states, "dim"))
