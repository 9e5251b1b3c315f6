"""`maos logs`, `attach`, `diff` and `merge`: what a run or an agent did, does, and changed.

Each of them is also a command of `maos agent`, which it becomes when the id names an agent.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from maos.cli import documents, render, words
from maos.cli.agent.status import log_options, show_files, show_merge
from maos.cli.commands import LINES, complete_ids, forward, id_argument, json_command
from maos.cli.database import DatabaseTarget
from maos.cli.documents import Document
from maos.cli.render import Column, Listing, clean
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

newest_argument = click.argument("id", metavar="[ID]", required=False, default="", shell_complete=complete_ids)


@json_command(
    "maos logs", "maos logs r-1a2b3c", "maos logs r-1a2b3c/api -f", "maos logs nightly --since 10m --json", json=LINES
)
@newest_argument
@log_options
def logs(database: DatabaseTarget, /, id: str, **given: Any) -> int:
    """Print what a run or an agent did, in order.

    ID is RUN, RUN/TASK, an agent, or a unique prefix of one; without it, the newest run. Of a run it prints what the
    live view printed: tasks that start and end, questions, messages and discoveries. Of an agent it prints all output,
    over all its attempts. Ctrl+C ends only the printing.
    """

    async def work(m: Maos) -> Target | None:
        target = await _find(m, id)
        if target.kind == RUN and not (given["number"] or given["since"] or given["raw"]):
            from maos.cli.runs.live import print_run

            await print_run(m, target.id, follow=given["follow"], live=False, as_json=given["as_json"])
            return None
        return target

    target = database.read(work)
    if target is None:
        return 0
    if target.kind == RUN:
        raise InvalidInput("--attempt, --since and --raw are for one agent", hint=f"name a task: {target.id}/TASK")
    return forward("maos.cli.agent.live:logs", target.id, **given)


@json_command("maos attach", "maos attach r-1a2b3c", "maos attach r-1a2b3c/api --json", json=LINES)
@newest_argument
def attach(database: DatabaseTarget, id: str, as_json: bool) -> int:
    """Follow a run or an agent until it ends.

    ID is RUN, RUN/TASK, an agent, or a unique prefix of one; without it, the newest run. A run is shown as by the
    engine that executes it. An agent that no engine records is attached to: its output since then comes first, and is
    recorded. Ctrl+C detaches; the run continues.
    """

    async def work(m: Maos) -> Target | None:
        from maos.cli.runs.live import print_run
        from maos.runs.status import is_executing

        target = await _find(m, id)
        if target.kind != RUN:
            return target
        run = await m.runs.get(target.id)
        if not is_executing(run):
            status = await m.runs.status_of(run)
            hint = f"`{status.resumable}` resumes it" if status.resumable else f"`maos status {run.id}` shows it"
            raise InvalidInput(f"no engine executes {run.id}", hint=hint)
        await print_run(m, run.id, follow=True, live=True, as_json=as_json)
        return None

    target = database.read(work)
    return 0 if target is None else forward("maos.cli.agent.lifecycle:attach", target.id, as_json=as_json)


async def _find(m: Maos, id: str) -> Target:
    return await m.find(id, RUN, AGENT) if id else Target(RUN, (await m.runs.newest()).id)


def _changed(noun: str) -> Listing[ChangedField]:
    return Listing(
        f"{noun}s",
        (
            Column(noun, lambda each: each.name, style="bold", yields=1),
            Column("before", lambda each: each.before or "-"),
            Column("after", lambda each: each.after or "-"),
            Column("said before", lambda each: words.one_line(each.said_before, 80), style="dim", yields=3),
            Column("says after", lambda each: words.one_line(each.said_after, 80), style="dim", yields=2),
        ),
    )


TASKS, QUESTIONS = _changed("task"), _changed("question")


@json_command(
    "maos diff r-1a2b3c",
    "maos diff r-1a2b3c/api --patch",
    "maos diff r-1a2b3c --from before-refactoring --to 20",
    "maos diff r-1a2b3c r-4d5e6f",
)
@id_argument
@click.argument("first", metavar="[OTHER]", required=False)
@click.argument("second", metavar="", required=False)
@click.option("--from", "start", metavar="POINT", help="The earlier point in time.  [default: the start of the run]")
@click.option("--to", "end", metavar="POINT", help="The later point in time.  [default: now]")
@click.option("--patch", is_flag=True, help="Also the changes of files, line by line.")
def diff(database: DatabaseTarget, /, id: str, patch: bool, as_json: bool, **points: str | None) -> int:
    """Show what a run or an agent changed, or compare two runs.

    ID is RUN, RUN/TASK, an agent, or a unique prefix of one. Of a run: tasks and their results, questions, findings,
    messages, and merged files. POINT is a checkpoint's name, a version, @POSITION or a time. With OTHER, another run,
    this shows what is different in that one.
    """
    start, end = points["start"] or points["first"], points["end"] or points["second"]

    async def work(m: Maos) -> Comparison | Target:
        target = await m.find(id, RUN, AGENT)
        if target.kind != RUN:
            return target
        run = await m.runs.get(target.id)
        one, other = await _points(m, run, start or FIRST_VERSION, end)
        return await m.travel.diff(run.id, one, other, other=other.run, patch=patch)

    found = database.read(work)
    if isinstance(found, Target):
        if start or end:
            raise InvalidInput("points in time are those of a run", hint=f"`maos diff {id}` shows its files")
        return forward("maos.cli.agent.status:diff", found.id, patch=patch, as_json=as_json)
    if as_json:
        documents.show(_difference(*found))
    else:
        _show_difference(*found)
    return 0


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
    show_files(found.files or ())
    if found.patch:
        click.echo(clean(found.patch, lines=True), nl=False)
    if not (found.tasks or found.questions or any(found.findings) or any(found.messages) or found.files):
        render.line("no difference")


def _difference(one: Side, other: Side, found: Difference) -> Document:
    from maos.model.branch import digest

    before, after = (
        {**documents.of(side.point), "commit": commit or None, "state": digest(side.run)}
        for side, commit in zip((one, other), found.commits, strict=True)
    )
    return {"before": before, "after": after, **documents.of(found)}


@json_command("maos merge r-1a2b3c", "maos merge r-1a --message 'New parser' --json", "maos merge fixer")
@id_argument
@click.option("--into", type=click.Path(exists=True, file_okay=False),
              help="The folder.  [default: that of the run; the current one for an agent]")  # fmt: skip
@click.option("--message", default="", help="The message of the commit.  [default: the request, or the agent's task]")
def merge(database: DatabaseTarget, id: str, into: str | None, message: str, as_json: bool) -> int:
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

    found = database.write(work)
    if isinstance(found, Target):
        return forward("maos.cli.agent.status:merge", found.id, into=into or ".", message=message, as_json=as_json)
    run, done = found
    by_hand = (
        f"merge by hand: the work is commit {run.commit[:12]}, its files are in {run.options['workspace']['tree']}"
    )
    return show_merge("run", run.id, done, by_hand, as_json=as_json)
