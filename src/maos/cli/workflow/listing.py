"""`maos workflow list`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from maos.cli import documents as shared
from maos.cli.commands import LazyCommand, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.documents import Document
from maos.cli.plain import clean

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.workflow import WorkflowRun
    from maos.runs.status import RunView

STATUSES = ("running", "interrupted", "paused", "changed", "completed", "failed", "cancelled")


@click.command("list", cls=LazyCommand, examples=["maos workflow list", "maos workflow list --status running --json"])
@click.option("--status", type=click.Choice(STATUSES), help="Only those.")
@json_option
@click.pass_obj
def list_(database: DatabaseTarget, status: str | None, as_json: bool) -> None:
    """List workflows, functions and files, those that may go on first."""
    from maos.cli.workflow import finding, showing

    async def work(m: Maos) -> list[WorkflowRun | RunView]:
        flows = [each.flow for each in await m.workflows.list(status or "")]
        runs = [await m.runs.status_of(run) for run in await finding.of_files(m)]
        return [*flows, *(each for each in runs if status in (None, showing.file_status(each)))]

    found = sorted(map(Listed.of, database.read(work)), key=lambda each: (not each.is_open, -each.changed_us))
    if as_json:
        shared.show({"workflows": [each.summary for each in found]})
        return
    from maos.cli import render

    if not found:
        render.line(f"no workflow is {status}" if status else "no workflows; `maos workflow run` begins one")
        return
    table(found)


def table(found: Sequence[Listed]) -> None:
    """Workflows, one to a row."""
    from maos.cli import render

    columns = (
        render.Column("id", style="bold"), render.Column("workflow", yields=1), render.Column("status"),
        render.Column("done", right=True), render.Column("changed"), render.Column("doing", style="dim", yields=2),
    )  # fmt: skip
    rows = [
        (each.summary["id"], each.summary["workflow"], each.spoken, each.done, render.when(each.changed_us), each.doing)
        for each in found
    ]
    render.table(columns, rows)


class Listed(NamedTuple):
    """A row of the list."""

    summary: Document
    is_open: bool
    changed_us: int
    spoken: str
    done: str
    doing: str

    @classmethod
    def of(cls, each: WorkflowRun | RunView) -> Listed:
        """A function, or the run of a file."""
        from maos.cli.runs import page
        from maos.cli.workflow import showing
        from maos.runs.status import RunView

        if not isinstance(each, RunView):
            found = showing.summary(each)
            return cls(found, each.is_open, each.changed_us, showing.spoken(each), str(each.done), showing.doing(each))
        run, now = each.run, each.now
        done = f"{run.done}/{len(run.tasks)}"
        doing = clean(now.error or now.activity)
        return cls(showing.file_summary(each), run.is_open, run.updated_us, page.spoken(each), done, doing)
