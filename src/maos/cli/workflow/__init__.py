"""`maos workflow`: what people wrote themselves, run, looked at and gone on with."""

from __future__ import annotations

import click

from maos.cli.commands import LazyGroup


@click.group(
    cls=LazyGroup,
    lazy={
        "run": "maos.cli.workflow.running:run",
        "resume": "maos.cli.workflow.resuming:resume",
        "validate": "maos.cli.workflow.files:validate",
        "graph": "maos.cli.workflow.files:graph",
        "schema": "maos.cli.workflow.files:schema",
        "list": "maos.cli.workflow.listing:list_",
        "show": "maos.cli.workflow.showing:show",
        "signal": "maos.cli.workflow.telling:signal",
        "settle": "maos.cli.workflow.telling:settle",
        "pause": "maos.cli.workflow.telling:pause",
        "cancel": "maos.cli.workflow.telling:cancel",
        "schedule": "maos.cli.workflow.scheduling:schedule",
        "serve": "maos.cli.workflow.scheduling:serve",
        "state": "maos.cli.workflow.states:state",
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
