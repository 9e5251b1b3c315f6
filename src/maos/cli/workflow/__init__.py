"""`maos workflow`: workflows that survive a crash, as functions and as plan files."""

from __future__ import annotations

import click

from maos.cli.commands import LazyGroup

_LIST = ("maos.cli.workflow.status:list_", "List workflow runs, of functions and of files; open ones first.")
_SHOW = ("maos.cli.workflow.status:show", "Show a workflow run: its steps, their outcomes, and what it waits for.")


@click.group(
    cls=LazyGroup,
    lazy={
        "run": ("maos.cli.workflow.runs:run", "Run a workflow: a plan file, or a function as FILE.py:FUNCTION."),
        "resume": ("maos.cli.workflow.runs:resume", "Resume a paused or interrupted workflow run."),
        "validate": ("maos.cli.workflow.files:validate", "Check plan files; problems are named by line and column."),
        "graph": ("maos.cli.workflow.files:graph", "Show which tasks of a plan file can run together."),
        "schema": ("maos.cli.workflow.files:schema", "Print the JSON Schema of plan files, for editors."),
        "list": _LIST,
        "show": _SHOW,
        "signal": ("maos.cli.workflow.runs:signal", "Send a workflow run a signal that it waits for, or will."),
        "resolve": ("maos.cli.workflow.runs:resolve", "Resolve a step whose outcome is unknown."),
        "pause": ("maos.cli.workflow.runs:pause", "Pause a workflow run after its current steps finish."),
        "cancel": ("maos.cli.workflow.runs:cancel", "Cancel a workflow run after its current steps finish."),
        "schedule": ("maos.cli.workflow:schedule", "Schedule workflows (cron); `maos workflow serve` starts them."),
        "serve": ("maos.cli.workflow.runs:serve", "Run due schedules, and resume interrupted workflow runs."),
        "state": ("maos.cli.workflow:state", "Show stored workflow runs, and clean up old ones."),
    },
    aliases={"settle": "maos.cli.workflow.runs:resolve"},
    examples=[
        "maos workflow run release.yaml --var version=1.2",
        "maos workflow run nightly.py:nightly Berlin --id nightly-1",
        "maos workflow show nightly-1",
        "maos workflow resume nightly-1",
    ],
)
def workflow() -> None:
    """Run workflows that survive a crash.

    ID is the id of a workflow run, or a unique prefix of it.
    """


@click.group(
    cls=LazyGroup,
    lazy={
        "add": ("maos.cli.workflow.runs:add", "Start a workflow at times that a cron expression gives."),
        "list": ("maos.cli.workflow.runs:list_schedules", "List schedules and their next run times."),
        "remove": ("maos.cli.workflow.runs:remove", "Remove a schedule; workflow runs that it started continue."),
    },
    examples=["maos workflow schedule add nightly '0 3 * * *' nightly.py:nightly Berlin"],
)
def schedule() -> None:
    """Schedule workflows (cron); `maos workflow serve` starts them."""


@click.group(
    cls=LazyGroup,
    lazy={
        "list": _LIST,
        "show": _SHOW,
        "cleanup": (
            "maos.cli.workflow.runs:cleanup",
            "Remove the steps of workflow runs that ended long ago; results stay.",
        ),
    },
    examples=["maos workflow state list", "maos workflow state cleanup --retention-days 30 --dry-run"],
)
def state() -> None:
    """Show stored workflow runs, and clean up old ones."""
