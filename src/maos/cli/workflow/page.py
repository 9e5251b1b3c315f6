"""Workflow runs in a line, and why one has stopped: what `maos status` prints of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maos.cli import render, words
from maos.cli.render import Column, Listing, clean
from maos.cli.runs import page as run_page

if TYPE_CHECKING:
    from maos.model.read_models import WorkflowInfo


def _done(each: WorkflowInfo) -> str:
    return f"{each.steps_done}/{each.steps}" if each.of == "file" else str(each.steps_done)


WORKFLOWS: Listing[WorkflowInfo] = Listing(
    "workflows",
    (
        Column("id", lambda each: each.id, style="bold"),
        Column("workflow", lambda each: each.workflow, yields=1),
        Column("status", lambda each: run_page.STATES.get(each.state, each.state)),
        Column("done", _done, right=True),
        Column("changed", lambda each: render.when(each.changed_us)),
        Column("doing", lambda each: each.activity, style="dim", yields=2),
    ),
    empty="no workflows; `maos workflow run` starts one",
)


def show_stopped(run: WorkflowInfo) -> None:
    """Print why a workflow run has stopped by itself, and the command that resumes it."""
    why = f": {words.one_line(run.why, None)}" if run.why else ""
    render.line(("! ", "bold red"), (clean(run.id), "bold"), " is ", (run.status, "bold red"), why)
    where = [line.strip() for line in (run.error or {}).get("traceback", "").splitlines() if "File " in line]
    if where:
        render.line(("  at: ", "dim"), clean(where[-1]))
    verb, command = ("retry", "retry") if run.status == "failed" else ("resume", "workflow resume")
    render.line((f"  {verb} with: ", "dim"), (f"maos {command} {run.id}", "bold"))
