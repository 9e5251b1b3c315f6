"""What a person can tell a workflow, whoever runs it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from maos.cli import documents as shared
from maos.cli.commands import LazyCommand, json_option
from maos.cli.database import DatabaseTarget
from maos.errors import InvalidInput

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.workflows.status import Status

id_argument = click.argument("id", metavar="ID")
why_option = click.option("--why", default="", help="A reason, as shown with it.")


@click.command(
    cls=LazyCommand,
    examples=["maos workflow signal order-7 paid '{\"amount\": 7}'", "maos workflow signal order-7 go --key go-1"],
)
@id_argument
@click.argument("name")
@click.argument("value", metavar="[JSON]", required=False)
@click.option("--key", help="Repeating the command with the same key sends nothing more.")
@json_option
@click.pass_obj
def signal(database: DatabaseTarget, id: str, name: str, value: str | None, key: str | None, as_json: bool) -> None:
    """Send a workflow a signal that it waits for, or will."""
    sent = _json(value)
    _tell(database, id, lambda m, whole: m.workflows.signal(whole, name, sent, key=key), f"sent {name!r}", as_json)


@click.command(
    cls=LazyCommand,
    examples=[
        "maos workflow settle order-7 3 done --value '{\"receipt\": 12}'",
        "maos workflow settle order-7 3 again",
        "maos workflow settle order-7 3 failed --why 'the card was not charged'",
    ],
)
@id_argument
@click.argument("call")
@click.argument("outcome", type=click.Choice(["done", "failed", "again"]))
@click.option("--value", metavar="JSON", help="With done: what the step returned.")
@why_option
@json_option
@click.pass_obj
def settle(
    database: DatabaseTarget, id: str, call: str, outcome: str, value: str | None, why: str, as_json: bool
) -> None:
    """Say what became of a step that was interrupted, of which nobody knows whether it took effect."""
    result = _json(value)

    async def work(m: Maos, whole: str) -> None:
        open_ = (await m.workflows.status(whole)).unknown
        if call not in open_:
            there = f"unknown are: {', '.join(open_)}" if open_ else "no call of it is unknown"
            raise InvalidInput(f"the outcome of call {call!r} of {whole} is not unknown", hint=there)
        await m.workflows.settle(whole, call, outcome, value=result, why=why)

    _tell(database, id, work, f"settled call {call}: {outcome}", as_json)


@click.command(cls=LazyCommand, examples=["maos workflow pause order-7"])
@id_argument
@why_option
@json_option
@click.pass_obj
def pause(database: DatabaseTarget, id: str, why: str, as_json: bool) -> None:
    """Have a workflow let go of, when the steps that run have ended."""
    _tell(database, id, lambda m, whole: m.workflows.pause(whole, why=why), "asked for a pause", as_json)


@click.command(cls=LazyCommand, examples=["maos workflow cancel order-7 --why 'not needed any more'"])
@id_argument
@why_option
@json_option
@click.pass_obj
def cancel(database: DatabaseTarget, id: str, why: str, as_json: bool) -> None:
    """End a workflow for good, when the steps that run have ended; one that nobody runs, at once.

    Its definition is not needed: it may be gone, or have changed.
    """
    _tell(database, id, lambda m, whole: m.workflows.cancel(whole, why=why), "asked to cancel it", as_json)


def _tell(
    database: DatabaseTarget, id: str, act: Callable[[Maos, str], Awaitable[None]], said: str, as_json: bool
) -> None:
    async def work(m: Maos) -> Status:
        from maos.cli.workflow import finding
        from maos.model.run import Run

        flow = await finding.by_id(m, id)
        if isinstance(flow, Run):
            raise InvalidInput(
                f"{flow.id} was made from a file, and is told things as any orchestration is",
                hint=f"`maos pause {flow.id}`, `maos answer`, `maos agent send`",
            )
        await act(m, flow.id)
        return await m.workflows.status(flow.id)

    status = database.write(work)
    flow, runs = status.flow, status.name == "running"
    if as_json:
        shared.show({"id": flow.id, "done": said, "running": runs})
        return
    from maos.cli import render

    next_ = f"nobody runs it: maos workflow resume {flow.id}" if flow.is_open else f"it is {flow.status}"
    render.line(f"{flow.id}: {said}" + ("" if runs else f"; {next_}"))


def _json(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"{text!r} is not JSON: {error}", hint="text needs quotes inside: '\"text\"'") from error
