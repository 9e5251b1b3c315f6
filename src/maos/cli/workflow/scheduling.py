"""`maos workflow schedule` and `maos workflow serve`: workflows that begin by themselves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from maos.cli import documents as shared
from maos.cli.commands import LazyCommand, LazyGroup, json_lines_option, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.documents import Document, time
from maos.cli.workflow.arguments import named_value, value

if TYPE_CHECKING:
    from datetime import datetime

    from maos.app import Maos
    from maos.model.schedule import Schedule
    from maos.workflows.definition import Workflow

    Upcoming = tuple[Schedule, datetime | None]


@click.group(
    cls=LazyGroup,
    lazy={
        "add": (
            "maos.cli.workflow.scheduling:add",
            "Have a workflow begin when CRON says: minute, hour, day of the month, month, day of the week.",
        ),
        "list": ("maos.cli.workflow.scheduling:list_", "List what begins by itself, and when next."),
        "remove": ("maos.cli.workflow.scheduling:remove", "Have a workflow begin no more; what has begun goes on."),
    },
    examples=["maos workflow schedule add nightly '0 3 * * *' nightly.py:nightly Berlin"],
)
def schedule() -> None:
    """Have workflows begin at times that come again; `maos workflow serve` begins them."""


@click.command(
    cls=LazyCommand,
    examples=[
        "maos workflow schedule add nightly '0 3 * * *' nightly.py:nightly Berlin --zone Europe/Berlin",
        "maos workflow schedule add bills @monthly jobs.billing:bill",
    ],
)
@click.argument("name")
@click.argument("cron")
@click.argument("target", metavar="TARGET")
@click.argument("args", metavar="[ARGUMENT]...", nargs=-1)
@click.option("--arg", "named", multiple=True, metavar="NAME=VALUE", help="An argument by name. Can be repeated.")
@click.option("--zone", default="UTC", show_default=True, help="The time zone that CRON is meant in.")
@json_option
@click.pass_obj
def add(
    database: DatabaseTarget,
    name: str,
    cron: str,
    target: str,
    args: tuple[str, ...],
    named: tuple[str, ...],
    zone: str,
    as_json: bool,
) -> None:
    """Have a workflow begin when CRON says: minute, hour, day of the month, month, day of the week.

    A schedule of that NAME is replaced.
    """
    from maos.workflows import loader

    definition = loader.load(target)

    async def work(m: Maos) -> list[Upcoming]:
        words, by_name = list(map(value, args)), dict(named_value(each) for each in named)
        await m.workflows.schedule_with(name, cron, definition, words, by_name, zone=zone)
        return [each for each in await m.workflows.upcoming() if each[0].name == name]

    _show(database.write(work, create=True), as_json=as_json)


@click.command("list", cls=LazyCommand, examples=["maos workflow schedule list"])
@json_option
@click.pass_obj
def list_(database: DatabaseTarget, as_json: bool) -> None:
    """List what begins by itself, and when next."""

    async def work(m: Maos) -> list[Upcoming]:
        return await m.workflows.upcoming()

    _show(database.read(work), as_json=as_json)


@click.command(cls=LazyCommand, examples=["maos workflow schedule remove nightly"])
@click.argument("name")
@json_option
@click.pass_obj
def remove(database: DatabaseTarget, name: str, as_json: bool) -> None:
    """Have a workflow begin no more; what has begun goes on."""

    async def work(m: Maos) -> None:
        await m.workflows.unschedule(name)

    database.write(work)
    if as_json:
        shared.show({"removed": name})
        return
    from maos.cli import render

    render.line(f"removed {name}")


@click.command(cls=LazyCommand, examples=["maos workflow serve nightly.py jobs.billing"])
@click.argument("targets", metavar="[TARGET]...", nargs=-1)
@json_lines_option
@click.pass_obj
def serve(database: DatabaseTarget, targets: tuple[str, ...], as_json: bool) -> None:
    """Begin what is due, and go on with workflows that nobody runs, until Ctrl+C.

    TARGET are files or modules with workflows; those of schedules are found by themselves, also of schedules that are
    added later. What is wrong with one is told, and the others are served. Any number of processes may serve one
    database: each time begins one workflow.
    """
    from maos.cli.failures import note
    from maos.cli.signals import heard
    from maos.workflows import loader

    for each in targets:
        loader.load_all(each)

    async def work(m: Maos) -> None:
        def load(known: Schedule) -> Workflow[..., Any]:
            return loader.load_recorded(known.workflow, known.definition, known.where)

        tell = (lambda text: shared.show_line({"told": text})) if as_json else note
        serving = asyncio.create_task(m.workflows.serve(tell=tell, load=load))
        tell("serving; Ctrl+C lets go of everything, and it can be gone on with")
        with heard(interrupted=lambda: _stop(serving), sent_away=lambda _signal: _stop(serving)):
            await asyncio.wait([serving])
        if not serving.cancelled():
            serving.result()

    database.write(work, create=True)


def _stop(serving: asyncio.Task[Any]) -> None:
    serving.cancel()


def _show(found: list[Upcoming], *, as_json: bool) -> None:
    from maos.clock import to_us

    def document(each: Schedule, due: datetime | None) -> Document:
        return {
            "name": each.name, "cron": each.cron, "zone": each.zone, "workflow": each.workflow,
            "version": each.definition, "arguments": each.arguments, **time(to_us(due) if due else None, "next"),
        }  # fmt: skip

    if as_json:
        shared.show({"schedules": [document(*each) for each in found]})
        return
    from maos.cli import render

    if not found:
        render.line("nothing begins by itself; `maos workflow schedule add` changes that")
        return
    columns = (
        render.Column("name", style="bold"), render.Column("when"), render.Column("zone"), render.Column("workflow"),
        render.Column("next"),
    )  # fmt: skip
    rows = [
        (each.name, each.cron, each.zone, each.workflow, render.when(to_us(due)) if due else "") for each, due in found
    ]
    render.table(columns, rows)
