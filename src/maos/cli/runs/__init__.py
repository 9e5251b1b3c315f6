"""Runs on the command line. `maos orchestration` is a hidden group of older names of these commands."""

from __future__ import annotations

import click

from maos.cli.commands import LazyGroup


@click.group(
    cls=LazyGroup,
    lazy={},
    aliases={
        "list": "maos.cli.status:ps --all",
        "status": "maos.cli.status:status",
        "pause": "maos.cli.runs.control:pause",
        "resume": "maos.cli.runs.start:resume",
        "merge": "maos.cli.runs.results:merge",
        "checkpoint": "maos.cli.runs.travel:checkpoint",
        "checkpoints": "maos.cli.runs.travel:checkpoint --list",
        "rollback": "maos.cli.runs.travel:rollback",
        "fork": "maos.cli.runs.travel:fork",
        "join": "maos.cli.runs.travel:join",
        "diff": "maos.cli.runs.results:diff",
        "cleanup": "maos.cli.runs.control:cleanup",
        "keep": "maos.cli.runs.control:pin",
        "save-interval": "maos.cli.runs.control:save_interval",
    },
    examples=["maos ps"],
)
def orchestration() -> None:
    """Older names of `maos ps`, `status`, `resume`, `pause`, `merge`, `diff`, `checkpoint`, `rollback` and `fork`."""
