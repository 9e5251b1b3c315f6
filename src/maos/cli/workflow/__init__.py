"""`maos workflow`: workflows that survive a crash, as functions and as plan files."""

from __future__ import annotations

import click

from maos.cli.commands import LazyGroup

_LIST = ("maos.cli.workflow.status:list_", "List workflow runs, of functions and of files; open ones first.")
_SHOW = (
    "maos.cli.workflow.status:show",
    "Show a workflow run: its steps with their outcomes, what it waits for, and which outcomes are unknown.",
)


@click.group(
    cls=LazyGroup,
    lazy={
        "run": (
            "maos.cli.workflow.runs:run",
            "Run a workflow: a plan file (.yaml, .toml, .json), or a function as FILE.py:FUNCTION or MODULE:FUNCTION.",
        ),
        "resume": (
            "maos.cli.workflow.runs:resume",
            "Resume a paused or interrupted workflow run, or a failed run of a plan file.",
        ),
        "validate": (
            "maos.cli.workflow.files:validate",
            "Check plan files; every problem is named by file, line and column.",
        ),
        "graph": (
            "maos.cli.workflow.files:graph",
            "Show which tasks of a plan file can run together, and what each needs.",
        ),
        "schema": ("maos.cli.workflow.files:schema", "Print the JSON Schema of plan files, for editors."),
        "list": _LIST,
        "show": _SHOW,
        "signal": ("maos.cli.workflow.runs:signal", "Send a workflow run a signal that it waits for, or will."),
        "resolve": ("maos.cli.workflow.runs:resolve", "Resolve a step whose outcome is unknown."),
        "pause": ("maos.cli.workflow.runs:pause", "Pause a workflow run after its current steps finish."),
        "cancel": (
            "maos.cli.workflow.runs:cancel",
            "Cancel a workflow run after its current steps finish; at once, if no process runs it.",
        ),
        "schedule": ("maos.cli.workflow:schedule", "Schedule workflows (cron); `maos workflow serve` starts them."),
        "serve": (
            "maos.cli.workflow.schedules:serve",
            "Run due schedules and resume interrupted workflow runs, until Ctrl+C.",
        ),
        "state": ("maos.cli.workflow:state", "Look at what is kept of workflow runs, and remove what is old."),
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
        "add": (
            "maos.cli.workflow.schedules:add",
            "Start a workflow whenever CRON says: minute, hour, day of the month, month, day of the week.",
        ),
        "list": ("maos.cli.workflow.schedules:list_", "List schedules and their next run times."),
        "remove": ("maos.cli.workflow.schedules:remove", "Remove a schedule; workflow runs that it started continue."),
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
            "Remove the steps of workflow runs that ended long ago; the runs and their results stay.",
        ),
    },
    examples=["maos workflow state list", "maos workflow state cleanup --retention-days 30 --dry-run"],
)
def state() -> None:
    """Look at what is kept of workflow runs, and remove what is old."""
