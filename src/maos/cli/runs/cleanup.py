"""`maos admin pin` and `maos admin cleanup`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli import render
from maos.cli.commands import LazyCommand, dry_run_option, json_option
from maos.cli.completion import run_argument
from maos.cli.database import DatabaseTarget
from maos.cli.render import clean
from maos.errors import InvalidInput

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.cleanup import Statistics
    from maos.model.run import Run
    from maos.runs.cleanup import Cleanup


@click.command(
    cls=LazyCommand,
    examples=[
        "maos admin pin r-1a2b3c --why 'what we shipped in March'",
        "maos admin pin r-1a2b3c --undo",
    ],
)
@run_argument
@click.option("--why", default="", metavar="TEXT", help="The reason; shown with the run.")
@click.option("--undo", is_flag=True, help="Unpin it: cleanup treats it like any other run again.")
@json_option
@click.pass_obj
def pin(database: DatabaseTarget, id: str, why: str, undo: bool, as_json: bool) -> None:
    """Exempt a run from cleanup.

    Neither the policies of the settings nor `maos admin cleanup --older-than` remove anything of a pinned run. Any run
    can be pinned, also one that is executed. The pin belongs to this database: an exported copy of the run is not
    pinned.
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

    said = "is not pinned" if undo else "is pinned: no cleanup removes anything of it"
    render.line((clean(run.id), "bold"), f" {said}" if changed else f" {said}, as before")
    if not undo:
        render.line(("to undo this: ", "dim"), f"maos admin pin {run.id} --undo")


@click.command(
    cls=LazyCommand,
    examples=[
        "maos admin cleanup --dry-run",
        "maos admin cleanup --older-than 7 --json",
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

    By age, number or size, as the settings in [cleanup] say; engines do it by themselves, once a day by default. The
    history stays, and so do the checkpoints of the agents' files, which are in your repository. A worktree stays when
    something in it is saved nowhere else, when its agent runs, when its run can be resumed, and when its run is pinned
    (`maos admin pin`).
    """

    async def work(m: Maos) -> tuple[Cleanup, Statistics]:
        done = await m.runs.clean_up(older_than_days=days, dry_run=dry_run)
        return done, await m.runs.cleaned_up()

    done, known = database.write(work)
    if as_json:
        total = {"worktrees": known.worktrees, "bytes": known.bytes}
        shared.show({"dry_run": dry_run, **shared.of(done), "bytes": done.bytes, "total": total})
        return

    for gone in done.removed:
        verb = "would remove" if dry_run else "removed"
        render.line(f"{verb} {clean(gone.tree)}, ", (f"{render.size(gone.bytes)}, by {gone.why}", "dim"))
    for kept in done.kept:
        render.line(("kept", "yellow"), f" {clean(kept.tree)}: {clean(kept.why)}")
    verb = "would be removed" if dry_run else "removed"
    render.line(
        f"{render.many(len(done.removed), 'worktree')} of {render.many(done.runs, 'completed run')} {verb}, "
        f"{render.size(done.bytes)}"
    )
    if known.worktrees > len(done.removed):
        render.line((f"{known.worktrees} so far, {render.size(known.bytes)}", "dim"))
