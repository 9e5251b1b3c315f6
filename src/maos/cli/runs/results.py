"""`maos diff` and `maos merge`: what a run or an agent changed, compared, and merged into your branch."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from maos.cli import completion, render
from maos.cli import documents as shared
from maos.cli.agent import words
from maos.cli.commands import LazyCommand, forward, json_option
from maos.cli.console import Field, Listing
from maos.cli.documents import Document
from maos.cli.failures import CONFLICT, report
from maos.cli.plain import clean
from maos.cli.runs.travel import point
from maos.errors import InvalidInput, NotFound
from maos.ids import AGENT, RUN, Target

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.run import Run
    from maos.runs.status import Blocked, Conflicted, Merged
    from maos.travel.points_in_time import ChangedField, Difference, PointInTime, Side
    from maos.travel.service import Comparison

CHANGES_SHOWN_MAX = 50
FIRST_VERSION = "1"

id_argument = click.argument("id", metavar="ID", shell_complete=completion.ids)


def _changed(noun: str) -> Listing[ChangedField]:
    return Listing(
        f"{noun}s",
        (
            Field(noun, lambda each: each.name, style="bold", yields=1),
            Field("before", lambda each: each.before or "-"),
            Field("after", lambda each: each.after or "-"),
            Field("said before", lambda each: words.one_line(each.said_before, 80), style="dim", yields=3),
            Field("says after", lambda each: words.one_line(each.said_after, 80), style="dim", yields=2),
        ),
    )


TASKS, QUESTIONS = _changed("task"), _changed("question")


@click.command(
    cls=LazyCommand,
    examples=[
        "maos diff r-1a2b3c",
        "maos diff r-1a2b3c/api --patch",
        "maos diff r-1a2b3c --from before-refactoring --to 20",
        "maos diff r-1a2b3c r-4d5e6f",
    ],
)
@id_argument
@click.argument("first", metavar="[OTHER]", required=False)
@click.argument("second", metavar="", required=False)
@click.option("--from", "start", metavar="POINT", help="The earlier point in time.  [default: the start of the run]")
@click.option("--to", "end", metavar="POINT", help="The later point in time.  [default: now]")
@click.option("--patch", is_flag=True, help="Also the changes of files, line by line.")
@json_option
@click.pass_context
def diff(
    ctx: click.Context,
    id: str,
    first: str | None,
    second: str | None,
    start: str | None,
    end: str | None,
    patch: bool,
    as_json: bool,
) -> None:
    """Show what a run or an agent changed, or compare two runs.

    ID is RUN, RUN/TASK, an agent, or a unique prefix of one. Of a run: tasks and their results, questions, findings,
    messages, and merged files. POINT is a checkpoint's name, a version, @POSITION or a time. With OTHER, another run,
    this shows what is different in that one.
    """

    async def work(m: Maos) -> Comparison | Target:
        target = await m.find(id, RUN, AGENT)
        if target.kind != RUN:
            return target
        run = await m.runs.get(target.id)
        one, other = await _points(m, run, start or first or FIRST_VERSION, end or second)
        return await m.travel.diff(run.id, one, other, other=other.run, patch=patch)

    found = ctx.obj.read(work)
    if isinstance(found, Target):
        if start or end or first:
            raise InvalidInput("points in time are those of a run", hint=f"`maos diff {id}` shows its files")
        forward(ctx, "agent diff", found.id, *(["--patch"] if patch else []), *(["--json"] if as_json else []))
    elif as_json:
        shared.show(_difference(*found))
    else:
        _show_difference(*found)


async def _points(m: Maos, run: Run, first: str, second: str | None) -> tuple[PointInTime, PointInTime]:
    """The two points in time to compare: of one run, or now in two runs."""
    if second is not None:
        return await point(m, run, first), await point(m, run, second)
    now = await m.travel.point(run.id)
    try:
        return await point(m, run, first), now
    except (InvalidInput, NotFound):
        with suppress(NotFound):
            return now, await m.travel.point((await m.runs.find(first)).id)
        raise


def _show_difference(one: Side, other: Side, found: Difference) -> None:
    sides = [f"{each.run.id}, {each.point.spoken}" for each in (one, other)]
    render.line((" → ".join(sides), "bold"))
    for listing, changed in ((TASKS, found.tasks), (QUESTIONS, found.questions)):
        if changed:
            listing.table(changed, shown_max=CHANGES_SHOWN_MAX)
    messages = [[(each.sender, each.text) for each in side] for side in found.messages]
    for noun, (gone, new) in (("finding", found.findings), ("message", messages)):
        for sign, style, rows in (("-", "red", gone), ("+", "green", new)):
            for who, text in rows[:CHANGES_SHOWN_MAX]:
                render.line((f"{sign} {noun} ", style), f"{clean(who)}: {words.one_line(text, 80)}")
            if len(rows) > CHANGES_SHOWN_MAX:
                render.line((f"… and {len(rows) - CHANGES_SHOWN_MAX} more (--json prints all)", "dim"))
    for each in found.files or ():
        counts = "" if each.added is None else f"  +{each.added} -{each.removed}"
        render.line((f"{each.kind:<12} ", "dim"), clean(each.path), (counts, "dim"))
    if found.patch:
        click.echo(clean(found.patch, lines=True), nl=False)
    if not (found.tasks or found.questions or any(found.findings) or any(found.messages) or found.files):
        render.line("no difference")


def _difference(one: Side, other: Side, found: Difference) -> Document:
    from maos.model.branch import digest

    before, after = (
        {**shared.of(side.point), "commit": commit or None, "state": digest(side.run)}
        for side, commit in zip((one, other), found.commits, strict=True)
    )
    return {"before": before, "after": after, **shared.of(found)}


# --- merge -------------------------------------------------------------------------------------------------------


@click.command(
    cls=LazyCommand,
    examples=["maos merge r-1a2b3c", "maos merge r-1a --message 'New parser' --json", "maos merge fixer"],
)
@id_argument
@click.option("--into", type=click.Path(exists=True, file_okay=False),
              help="The folder.  [default: that of the run; the current one for an agent]")  # fmt: skip
@click.option("--message", default="", help="The message of the commit.  [default: the request, or the agent's task]")
@json_option
@click.pass_context
def merge(ctx: click.Context, id: str, into: str | None, message: str, as_json: bool) -> None:
    """Merge the work of a run or an agent into your branch.

    ID is RUN, RUN/TASK, an agent, or a unique prefix of one. It becomes one commit, all of it or nothing: files that
    both sides changed are named, and so are uncommitted changes that are in the way. It can be repeated when the run
    has done more.
    """

    async def work(m: Maos) -> tuple[Run, Merged | Conflicted | Blocked] | Target:
        target = await m.find(id, RUN, AGENT)
        if target.kind != RUN:
            return target
        run = await m.runs.get(target.id)
        told = message or words.one_line(run.request, 70) or f"Work of {run.id}"
        return run, await m.runs.merge(run, into=Path(into or run.folder), message=told)

    found = ctx.obj.write(work)
    if isinstance(found, Target):
        given = {"--into": into, "--message": message}
        options = [part for name, value in given.items() if value for part in (name, value)]
        forward(ctx, "agent merge", found.id, *options, *(["--json"] if as_json else []))
        return
    run, done = found
    kind = type(done).__name__.lower()
    if as_json:
        shared.show({"run": run.id, "outcome": kind, **done._asdict()})
    else:
        _show_merge(run, done)
    if kind != "merged":
        ctx.exit(CONFLICT)


def _show_merge(run: Run, done: Merged | Conflicted | Blocked) -> None:
    from maos.runs.status import Blocked, Merged

    if isinstance(done, Merged):
        if not done.files:
            render.line("nothing to merge: your branch has everything already")
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
