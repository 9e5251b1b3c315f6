"""`maos workflow schedule` and `maos workflow serve`: workflows that start by themselves."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import click

from maos.app import Maos
from maos.cli import documents, render
from maos.cli.commands import LazyCommand, json_lines_option, json_option
from maos.cli.console import Field, Listing
from maos.cli.database import DatabaseTarget
from maos.cli.failures import note
from maos.cli.signals import heard
from maos.cli.workflow.runs import arg_option, arguments
from maos.clock import to_us
from maos.model.workflow import Schedule
from maos.workflows import loader
from maos.workflows.definition import Workflow

Upcoming = tuple[Schedule, datetime | None]

SCHEDULES: Listing[Upcoming] = Listing(
    "schedules",
    (
        Field("name", lambda each: each[0].name, style="bold"),
        Field("when", lambda each: each[0].cron),
        Field("zone", lambda each: each[0].zone),
        Field("workflow", lambda each: each[0].workflow),
        Field("next", lambda each: render.when(to_us(each[1])) if each[1] else ""),
    ),
    empty="no schedules; `maos workflow schedule add` makes one",
)


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
@arg_option
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
    """Start a workflow at times that a cron expression gives.

    CRON is minute, hour, day of the month, month, day of the week. A schedule of that NAME is replaced.
    """
    definition = loader.load(target)

    async def work(m: Maos) -> list[Upcoming]:
        await m.workflows.schedule_with(name, cron, definition, *arguments(args, named), zone=zone)
        return [each for each in await m.workflows.upcoming() if each[0].name == name]

    _show(database.write(work, create=True), as_json=as_json)


@click.command("list", cls=LazyCommand, examples=["maos workflow schedule list"])
@json_option
@click.pass_obj
def list_(database: DatabaseTarget, as_json: bool) -> None:
    """List schedules and their next run times."""
    _show(database.read(lambda m: m.workflows.upcoming()), as_json=as_json)


def _show(found: list[Upcoming], *, as_json: bool) -> None:
    if not as_json:
        SCHEDULES.show(found, as_json=False)
        return
    rows = [
        {"name": each.name, "cron": each.cron, "zone": each.zone, "workflow": each.workflow,
         "version": each.definition, "arguments": each.arguments,
         **documents.time(to_us(due) if due else None, "next")}
        for each, due in found
    ]  # fmt: skip
    documents.show({"schedules": rows})


@click.command(cls=LazyCommand, examples=["maos workflow schedule remove nightly"])
@click.argument("name")
@json_option
@click.pass_obj
def remove(database: DatabaseTarget, name: str, as_json: bool) -> None:
    """Remove a schedule; workflow runs that it started continue."""
    database.write(lambda m: m.workflows.unschedule(name))
    if as_json:
        documents.show({"removed": name})
    else:
        render.line(f"removed {name}")


@click.command(cls=LazyCommand, examples=["maos workflow serve nightly.py jobs.billing"])
@click.argument("targets", metavar="[TARGET]...", nargs=-1)
@json_lines_option
@click.pass_obj
def serve(database: DatabaseTarget, targets: tuple[str, ...], as_json: bool) -> None:
    """Run due schedules, and resume interrupted workflow runs.

    Ctrl+C ends it. TARGET are files or modules with workflows; those of schedules are found by themselves, also of
    schedules that are added later. A problem with one is reported, and the others are served. Any number of
    processes may serve one database: each due time starts one workflow run.
    """
    for each in targets:
        loader.load_all(each)

    def load(known: Schedule) -> Workflow[..., Any]:
        return loader.load_recorded(known.workflow, known.definition, known.where)

    async def work(m: Maos) -> None:
        tell = (lambda text: documents.show_line({"told": text})) if as_json else note
        serving = asyncio.create_task(m.workflows.serve(tell=tell, load=load))
        tell("serving; Ctrl+C detaches from everything, and it can be resumed")
        with heard(interrupted=lambda: _stop(serving), sent_away=lambda _signal: _stop(serving)):
            await asyncio.wait([serving])
        if not serving.cancelled():
            serving.result()

    database.write(work, create=True)


def _stop(serving: asyncio.Task[Any]) -> None:
    serving.cancel()
