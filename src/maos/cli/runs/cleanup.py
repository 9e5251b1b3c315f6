"""`maos orchestration keep` and `cleanup`, which is also `maos recover cleanup`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli import render
from maos.cli.commands import LazyCommand, dry_run_option, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.plain import clean
from maos.cli.runs.options import id_argument
from maos.errors import InvalidInput

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.cleanup import Statistics
    from maos.model.run import Run
    from maos.runs.cleanup import Cleanup


@click.command(
    cls=LazyCommand,
    examples=[
        "maos orchestration keep r-1a2b3c --why 'what we shipped in March'",
        "maos orchestration keep r-1a2b3c --undo",
    ],
)
@id_argument
@click.option("--why", default="", metavar="TEXT", help="What it is kept for; shown with the run.")
@click.option("--undo", is_flag=True, help="Have it cleaned up like any other again.")
@json_option
@click.pass_obj
def keep(database: DatabaseTarget, id: str, why: str, undo: bool, as_json: bool) -> None:
    """Make a run permanent: no cleanup ever takes anything of it.

    Neither the policies of the settings nor `maos orchestration cleanup --older-than` do. It can be said of any run,
    also of one that is carried out. It is a note of this database: a copy of the run elsewhere is not permanent by it.
    """
    if undo and why:
        raise InvalidInput("--undo needs no reason", hint="leave --why out")

    async def work(m: Maos) -> tuple[Run, bool]:
        run = await m.runs.find(id)
        return run, await (m.runs.unkeep(run.id) if undo else m.runs.keep(run.id, why))

    run, changed = database.write(work)
    if as_json:
        shared.show({"id": run.id, "permanent": not undo, "why": why or None, "changed": changed})
        return

    said = "is cleaned up like any other" if undo else "is permanent: no cleanup takes anything of it"
    render.line((clean(run.id), "bold"), f" {said}" if changed else f" {said}, as before")
    if not undo:
        render.line(("to undo this: ", "dim"), f"maos orchestration keep {run.id} --undo")


@click.command(
    cls=LazyCommand,
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
def cleanup(database: DatabaseTarget, days: float | None, dry_run: bool, as_json: bool) -> None:
    """Remove the worktrees of runs that were completed long ago.

    By age, number or size, as the settings in [cleanup] say; engines do it by themselves, once a day unless set
    otherwise. History stays, and so do the checkpoints of the agents' files, which are in your repository. A worktree
    stays when something in it is saved nowhere else, when its agent runs, when its run failed or is paused and can go
    on, and when its run is permanent (`maos orchestration keep`).
    """

    async def work(m: Maos) -> tuple[Cleanup, Statistics]:
        done = await m.runs.clean_up(older_than_days=days, dry_run=dry_run)
        return done, await m.runs.cleaned_up()

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
