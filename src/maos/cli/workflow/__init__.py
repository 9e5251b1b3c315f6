"""`maos workflow`: what people wrote themselves, run, looked at and gone on with."""

from __future__ import annotations

import click

from maos.cli.commands import LazyGroup


@click.group(
    cls=LazyGroup,
    lazy={
        "run": (
            "maos.cli.workflow.running:run",
            "Run a workflow: a plan file (.yaml, .toml, .json), or a function as FILE.py:FUNCTION or MODULE:FUNCTION.",
        ),
        "resume": (
            "maos.cli.workflow.resuming:resume",
            "Go on with a workflow that was paused or interrupted, or with a file whose run failed.",
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
        "list": ("maos.cli.workflow.listing:list_", "List workflows, functions and files, those that may go on first."),
        "show": (
            "maos.cli.workflow.showing:show",
            "Show a workflow: its calls with their outcomes, what it waits for, and what nobody knows.",
        ),
        "signal": ("maos.cli.workflow.telling:signal", "Send a workflow a signal that it waits for, or will."),
        "settle": (
            "maos.cli.workflow.telling:settle",
            "Say what became of a step that was interrupted, of which nobody knows whether it took effect.",
        ),
        "pause": ("maos.cli.workflow.telling:pause", "Have a workflow let go of, when the steps that run have ended."),
        "cancel": (
            "maos.cli.workflow.telling:cancel",
            "End a workflow for good, when the steps that run have ended; one that nobody runs, at once.",
        ),
        "schedule": (
            "maos.cli.workflow.scheduling:schedule",
            "Have workflows begin at times that come again; `maos workflow serve` begins them.",
        ),
        "serve": (
            "maos.cli.workflow.scheduling:serve",
            "Begin what is due, and go on with workflows that nobody runs, until Ctrl+C.",
        ),
        "state": ("maos.cli.workflow.states:state", "Look at what is kept of workflows, and remove what is old."),
    },
    examples=[
        "maos workflow run release.yaml --var version=1.2",
        "maos workflow run nightly.py:nightly Berlin --id nightly-1",
        "maos workflow show nightly-1",
        "maos workflow resume nightly-1",
    ],
)
def workflow() -> None:
    """Run workflows that survive a crash.

    ID is that of a workflow, or as much of its beginning as tells it from the others.
    """
