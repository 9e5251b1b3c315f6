"""`maos orchestration join`: bring two runs of one origin together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import completing, render
from maos.cli import documents as shared
from maos.cli.agent import words
from maos.cli.commands import LazyCommand, dry_run_option, json_option
from maos.cli.failures import CONFLICT
from maos.cli.plain import clean
from maos.cli.runs.status import id_argument

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.travel.join import Union


@click.command(
    cls=LazyCommand,
    examples=[
        "maos orchestration join r-1a2b3c r-4d5e6f --dry-run",
        "maos orchestration join r-1a2b3c r-4d5e6f",
        "maos orchestration join r-1a2b3c r-4d5e6f --theirs",
    ],
)
@id_argument
@click.argument("other", metavar="OTHER", shell_complete=completing.runs)
@click.option("--ours", "policy", flag_value="ours", help="Where both changed something, take it from ID.")
@click.option("--theirs", "policy", flag_value="theirs", help="Take it from OTHER.")
@click.option("--newest", "policy", flag_value="newest", help="Take what came last.")
@dry_run_option
@json_option
@click.pass_context
def join(ctx: click.Context, id: str, other: str, policy: str | None, dry_run: bool, as_json: bool) -> None:
    """Bring what a fork has done into a run, or the other way round.

    Both come from one run. Tasks that only OTHER has done or planned become part of ID, and the files are merged from
    where the two parted. OTHER is not touched. Where both changed the same, --ours, --theirs or --newest decides;
    without one of them you are asked, by questions like those of any run, and nothing is joined before `maos answer`
    has settled them and this is repeated. (`maos orchestration merge` is another thing: it brings a run's files into
    your branch.)
    """

    async def work(m: Maos) -> Union:
        from maos.runs.status import is_executing

        run, theirs = await m.runs.find(id), await m.runs.find(other)
        if not dry_run and is_executing(run):
            await m.runs.pause_and_wait(run.id)
        return await m.travel.join(run.id, theirs.id, policy=policy or "", dry_run=dry_run)

    done: Union = ctx.obj.read(work) if dry_run else ctx.obj.write(work)
    if as_json:
        shared.show(
            {
                "dry_run": dry_run,
                "id": done.run,
                "other": done.other,
                "base": done.base._asdict(),
                "joined": not (done.open or dry_run),
                "undo": done.undo,
                "taken": list(done.taken),
                "added": list(done.added),
                "conflicts": [
                    {"id": each.id, "kind": each.kind, "name": each.name or None, "ours": each.ours,
                     "theirs": each.theirs, "files": list(each.files), "chosen": done.chosen.get(each.id)}
                    for each in done.conflicts
                ],
                "questions": [each.ref for each in done.asked],
                "commit": done.commit or None,
            }
        )  # fmt: skip
    else:
        _show(done, dry_run=dry_run)
    if done.open and not dry_run:
        ctx.exit(CONFLICT)


def _show(done: Union, *, dry_run: bool) -> None:

    render.line((f"{done.run} and {done.other} parted at version {done.base.version} of {done.base.run}", "dim"))
    for title, names in (("taken from it: ", done.taken), ("new: ", done.added)):
        if names:
            render.line((title, "dim"), clean(", ".join(names)))
    for each in done.conflicts:
        chosen = done.chosen.get(each.id)
        render.line(("conflict: ", "yellow"), clean(each.id), f", {chosen} counts" if chosen else "")
        render.line(("  ours    ", "dim"), words.one_line(each.ours, render.room_for_value(10)))
        render.line(("  theirs  ", "dim"), words.one_line(each.theirs, render.room_for_value(10)))
    if dry_run:
        return
    if done.open:
        render.line((f"nothing was joined: {render.many(len(done.open), 'conflict')} left", "bold red"))
        for question in done.asked:
            render.line(("answer with: ", "dim"), (f"maos answer {clean(question.ref)} ours|theirs", "bold"))
        render.line(("then: ", "dim"), f"maos orchestration join {done.run} {done.other}")
        return
    files = f", merged as commit {done.commit[:12]}" if done.commit else ""
    render.line((clean(done.run), "bold"), f" has what {clean(done.other)} has done{files}")
    render.line(("to undo this: ", "dim"), f"maos orchestration rollback {done.run} --to {done.undo}")
