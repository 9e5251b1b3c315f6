"""`maos workflow list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli.commands import Command, json_option
from maos.cli.database import Target

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.flow import Flow

STATUSES = ("running", "paused", "changed", "completed", "failed", "cancelled")


@click.command("list", cls=Command, examples=["maos workflow list", "maos workflow list --status running --json"])
@click.option("--status", type=click.Choice(STATUSES), help="Only those.")
@json_option
@click.pass_obj
def list_(database: Target, status: str | None, as_json: bool) -> None:
    """List workflows, those that may go on first."""
    from maos.cli.workflow import showing

    async def work(m: Maos) -> list[Flow]:
        return [flow async for flow in m.workflows.all() if status in (None, flow.status)]

    found = sorted(database.read(work), key=lambda each: (not each.is_open, -each.changed_us))
    if as_json:
        shared.show({"workflows": [showing.summary(each) for each in found]})
        return
    from maos.cli import render

    if not found:
        render.line("no workflows; `maos workflow run` begins one")
        return
    columns = (
        render.Column("id", style="bold"), render.Column("workflow"), render.Column("status"),
        render.Column("calls", right=True), render.Column("changed"), render.Column("doing", style="dim", yields=2),
    )  # fmt: skip
    rows = [
        (each.id, each.name, showing.spoken(each), str(each.done), render.when(each.changed_us), showing.doing(each))
        for each in found
    ]
    render.table(columns, rows)
