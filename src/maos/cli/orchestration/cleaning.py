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
    from maos.model.cleaning import Statistics


@click.command(
    cls=Command,
    examples=[
        "maos orchestration cleanup --dry-run",
        "maos orchestration cleanup --older-than 7 --json",
    ],
)
@click.option(
    "--older-than", "days", type=click.FloatRange(min=0), metavar="DAYS",
    help="All runs that were completed longer ago than this.  [default: as the settings say]",
)  # fmt: skip
@dry_run_option
@json_option
@click.pass_obj
def cleanup(database: Target, days: float | None, dry_run: bool, as_json: bool) -> None:
    """Remove the worktrees of runs that were completed long ago.

    By age, number or size, as the settings in [cleanup] say; engines do it by themselves, once a day unless set
    otherwise. History stays, and so do the checkpoints of the agents' files, which are in your repository. A worktree
    stays when something in it is saved nowhere else, when its agent runs, and when its run failed or is paused and can
    go on.
    """

    async def work(m: Maos) -> tuple[Cleanup, Statistics]:
        from maos.clock import SystemClock
        from maos.engine import cleanup as cleaning

        clock = SystemClock()
        policies = m.settings.values.cleanup
        rule_of = cleaning.by_policy(policies, clock.now_us())
        if days is not None:
            rule_of = cleaning.older_than(days, clock.now_us())
        done = await cleaning.cleanup(m.journal, clock, m.runs, m.attempts, rule_of, by="person", dry_run=dry_run)
        return done, await cleaning.statistics(m.journal)

    done, known = database.write(work)
    if as_json:
        shared.show(
            {
                "dry_run": dry_run,
                "runs": done.runs,
                "removed": [each._asdict() for each in done.removed],
                "kept": [each._asdict() for each in done.kept],
                "bytes": done.bytes,
                "total": {"worktrees": known.worktrees, "bytes": known.bytes},
            }
        )
        return
    from maos.cli import render

    for gone in done.removed:
        verb = "would remove" if dry_run else "removed"
        render.line(f"{verb} {clean(gone.tree)}, ", (f"{render.size(gone.bytes)}, by {gone.why}", "dim"))
    for kept in done.kept:
        render.line(("kept", "yellow"), f" {clean(kept.tree)}: {clean(kept.why)}")
    verb = "would be removed" if dry_run else "removed"
    render.line(
        f"{render.many(len(done.removed), 'worktree')} of {render.many(done.runs, 'completed orchestration')} {verb}, "
        f"{render.size(done.bytes)}"
    )
    if known.worktrees > len(done.removed):
        render.line((f"{known.worktrees} so far, {render.size(known.bytes)}", "dim"))
