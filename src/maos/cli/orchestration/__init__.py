"""`maos orchestration`: runs of many agents, to look at and to answer for."""

from __future__ import annotations

import click

from maos.cli.commands import LazyGroup


@click.group(
    cls=LazyGroup,
    lazy={
        "list": "maos.cli.orchestration.listing:list_",
        "status": "maos.cli.orchestration.showing:status",
        "pause": "maos.cli.orchestration.pausing:pause",
        "resume": "maos.cli.orchestrate.resuming:resume",
        "merge": "maos.cli.orchestrate.merging:merge",
        "checkpoint": "maos.cli.orchestration.checkpoints:checkpoint",
        "checkpoints": "maos.cli.orchestration.checkpoints:checkpoints",
        "save-interval": "maos.cli.orchestration.checkpoints:save_interval",
        "rollback": "maos.cli.orchestration.travelling:rollback",
        "fork": "maos.cli.orchestration.travelling:fork",
        "diff": "maos.cli.orchestration.comparing:diff",
        "join": "maos.cli.orchestration.joining:join",
        "keep": "maos.cli.orchestration.cleaning:keep",
        "cleanup": "maos.cli.orchestration.cleaning:cleanup",
    },
    examples=[
        "maos orchestration list",
        "maos orchestration status r-1a2b3c --watch",
        "maos orchestration pause r-1a2b3c",
    ],
)
def orchestration() -> None:
    """Look at runs, pause them, and go on with them.

    ID is that of a run, or as much of its beginning as tells it from the others.
    """
