"""`maos orchestration`: runs of many agents, to look at and to answer for."""

from __future__ import annotations

import click

from maos.cli.commands import LazyGroup


@click.group(
    cls=LazyGroup,
    lazy={
        "list": ("maos.cli.runs.list:list_", "List all runs, those that may go on first."),
        "status": ("maos.cli.runs.status:status", "Show a run's status."),
        "pause": ("maos.cli.runs.status:pause", "Pause a run; `maos resume` continues it."),
        "resume": ("maos.cli.runs.resume:resume", "Resume a run, and add work to it."),
        "merge": ("maos.cli.runs.merge:merge", "Merge what the tasks of a run have done into your branch."),
        "checkpoint": ("maos.cli.runs.checkpoints:checkpoint", "Give the present state of a run a name."),
        "checkpoints": ("maos.cli.runs.checkpoints:checkpoints", "List the checkpoints of a run."),
        "save-interval": ("maos.cli.runs.checkpoints:save_interval", "Set or show how often files are saved."),
        "rollback": ("maos.cli.runs.travel:rollback", "Make a run what it was at an earlier moment."),
        "fork": ("maos.cli.runs.travel:fork", "Begin a second run from any moment of a run."),
        "diff": ("maos.cli.runs.travel:diff", "Show how a run differs between two moments, or from another run."),
        "join": ("maos.cli.runs.travel:join", "Bring what a fork has done into a run, or the other way round."),
        "keep": ("maos.cli.runs.cleanup:keep", "Make a run permanent: no cleanup ever takes anything of it."),
        "cleanup": ("maos.cli.runs.cleanup:cleanup", "Remove the worktrees of runs that were completed long ago."),
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
