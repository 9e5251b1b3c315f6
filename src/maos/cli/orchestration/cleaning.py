"""`maos orchestration cleanup`, which is also `maos recover cleanup`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli.commands import Command, dry_run_option, json_option
from maos.cli.database import Target
from maos.cli.plain import clean

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.engine.cleanup import Cleanup

DAY_US = 86_400 * 1_000_000


@click.command(
    cls=Command,
    examples=[
        "maos orchestration cleanup --older-than 30 --dry-run",
        "maos orchestration cleanup --older-than 7 --json",
    ],
)
@click.option(
    "--older-than", "days", type=click.FloatRange(min=0), required=True, metavar="DAYS",
    help="Only runs that were completed longer ago than this.",
)  # fmt: skip
@dry_run_option
@json_option
@click.pass_obj
def cleanup(database: Target, days: float, dry_run: bool, as_json: bool) -> None:
    """Remove the worktrees of runs that were completed long ago.

    History stays, and so do the checkpoints of the agents' files, which are in your repository. A worktree stays when
    something in it is saved nowhere else, when its agent runs, and when its run failed or is paused and can go on.
    """

    async def work(m: Maos) -> Cleanup:
        from maos.clock import SystemClock
        from maos.engine import cleanup as cleaning

        before_us = SystemClock().now_us() - int(days * DAY_US)
        return await cleaning.cleanup(m.runs, m.attempts, before_us=before_us, dry_run=dry_run)

    done = database.write(work)
    total = sum(each.bytes for each in done.removed)
    if as_json:
        shared.show(
            {
                "dry_run": dry_run,
                "runs": done.runs,
                "removed": [each._asdict() for each in done.removed],
                "kept": [each._asdict() for each in done.kept],
                "bytes": total,
            }
        )
        return
    from maos.cli import render

    for gone in done.removed:
        render.line(
            f"{'would remove' if dry_run else 'removed'} {clean(gone.tree)}, ", (render.size(gone.bytes), "dim")
        )
    for kept in done.kept:
        render.line(("kept", "yellow"), f" {clean(kept.tree)}: {clean(kept.why)}")
    verb = "would be removed" if dry_run else "removed"
    render.line(
        f"{render.many(len(done.removed), 'worktree')} of {render.many(done.runs, 'completed orchestration')} {verb}, "
        f"{render.size(total)}"
    )
