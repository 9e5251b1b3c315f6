"""`maos orchestration merge`: have what a run did in one's own branch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import completing, render
from maos.cli import documents as shared
from maos.cli.agent import words
from maos.cli.commands import LazyCommand, json_option
from maos.cli.failures import CONFLICT, report
from maos.cli.plain import clean

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.run import Run
    from maos.runs.status import Blocked, Conflicted, Merged


@click.command(
    cls=LazyCommand,
    examples=["maos orchestration merge r-1a2b3c", "maos orchestration merge r-1a --message 'New parser' --json"],
)
@click.argument("id", metavar="ID", shell_complete=completing.runs)
@click.option("--into", type=click.Path(exists=True, file_okay=False), help="The folder.  [default: that of the run]")
@click.option("--message", default="", help="The message of the commit.  [default: what was asked for]")
@json_option
@click.pass_context
def merge(ctx: click.Context, id: str, into: str | None, message: str, as_json: bool) -> None:
    """Merge what the tasks of a run have done into your branch.

    As one commit, all of it or nothing: files that both sides changed are named, and so are changes of yours that are
    in the way. It can be repeated when the run has done more.
    """

    async def work(m: Maos) -> tuple[Run, Merged | Conflicted | Blocked]:
        from pathlib import Path

        run = await m.runs.find(id)
        told = message or words.one_line(run.request, 70) or f"Work of {run.id}"
        return run, await m.runs.merge(run, into=Path(into or run.folder), message=told)

    run, done = ctx.obj.write(work)
    kind = type(done).__name__.lower()
    if as_json:
        shared.show({"run": run.id, "outcome": kind, **done._asdict()})
    else:
        _show(run, done)
    if kind != "merged":
        ctx.exit(CONFLICT)


def _show(run: Run, done: Merged | Conflicted | Blocked) -> None:
    from maos.runs.status import Blocked, Merged

    if isinstance(done, Merged):
        if not done.files:
            render.line("nothing to merge: everything is there already")
            return
        files = render.many(len(done.files), "file")
        render.line((clean(run.id), "bold"), f": {files} merged as commit {done.commit[:12]}")
    elif isinstance(done, Blocked):
        report(f"{done.why}: {', '.join(done.files)}" if done.files else done.why, done.hint)
    else:
        workspace = run.options["workspace"]["tree"]
        report(
            f"both sides changed {', '.join(done.files)}; nothing was merged",
            f"commit yours, then merge by hand: the work is commit {run.commit[:12]}, its files are in {workspace}",
        )
