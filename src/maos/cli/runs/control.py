"""Commands to a run, whichever process executes it, or none, and what a run or an agent did, does and changed.

`maos logs`, `attach`, `diff` and `merge` become commands of `maos agent` when the id names an agent. `maos admin pin`,
`cleanup` and `save-interval` decide what is kept of runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from maos.cli import commands, documents, render, words
from maos.cli.agent.status import log_options, show_files, show_merge
from maos.cli.commands import LINES, dry_run_option, forward, id_argument, json_command, run_argument, yes_option
from maos.cli.database import DatabaseTarget, ask, need_yes
from maos.cli.render import Column, Listing, clean
from maos.cli.runs import page
from maos.cli.runs.travel import point
from maos.errors import InvalidInput, NotFound
from maos.ids import AGENT, RUN, TASK, WORKFLOW, Target

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.cleanup import Statistics
    from maos.model.run import Run
    from maos.runs.cleanup import Cleanup, Removal
    from maos.runs.status import Blocked, Conflicted, Merged, RunView
    from maos.travel.points_in_time import ChangedField, Difference, PointInTime

CHANGES_SHOWN_MAX = 50
FIRST_VERSION = "1"

newest_argument = click.argument("id", metavar="[ID]", required=False, default="", shell_complete=commands.complete_ids)


@json_command("maos pause r-1a2b3c", "maos pause 1a2b --json")
@id_argument
def pause(database: DatabaseTarget, id: str, as_json: bool) -> int:
    """Pause a run; `maos resume` continues it.

    Its agents are stopped, and this waits until they have ended. The engine that executes the run stops them; if there
    is none, agents of the run that still work are stopped all the same. Messages and questions are kept.
    """

    def said(now: RunView) -> str:
        if not now.run.is_open:
            return f" had ended before: {now.run.status}"
        return " is paused" if now.run.status == "paused" else f" is {page.spoken(now)}, and none of its agents works"

    return _request(
        database,
        id,
        lambda m, each: m.runs.pause_and_wait(each.id),
        said,
        workflow="maos.cli.workflow.runs:pause",
        tasks=False,
        as_json=as_json,
    )


@json_command("maos cancel r-1a2b3c", "maos cancel r-1a2b3c/api --json")
@id_argument
@click.option("--why", default="cancelled", help="The reason; shown with the run.")
def cancel(database: DatabaseTarget, id: str, why: str, as_json: bool) -> int:
    """Cancel a run, or one task of it.

    ID is RUN or RUN/TASK. Agents are stopped, and what is left is not started. A cancelled run can be resumed; a
    cancelled task counts as failed until it is retried or skipped.
    """

    return _request(
        database,
        id,
        lambda m, each: m.runs.cancel(each.run or each.id, task=each.task, why=why),
        lambda now: f" is {page.spoken(now)}",
        workflow="maos.cli.workflow.runs:cancel",
        as_json=as_json,
    )


@json_command("maos retry r-1a2b3c", "maos retry r-1a2b3c/api --json")
@id_argument
def retry(database: DatabaseTarget, id: str, as_json: bool) -> int:
    """Retry the failed tasks of a run, or one of them.

    ID is RUN or RUN/TASK. The engine that executes the run retries them; if there is none, `maos resume` does.
    """

    return _request(
        database,
        id,
        lambda m, each: m.runs.retry(each.run or each.id, tasks=[each.task] if each.task else ()),
        lambda now: f": will be retried; the run is {page.spoken(now)}",
        as_json=as_json,
    )


@json_command("maos skip r-1a2b3c/deploy --why 'deployed by hand'", "maos skip r-1a2b3c/deploy --json")
@id_argument
@click.option("--why", default="", help="The reason; shown with the task.")
def skip(database: DatabaseTarget, id: str, why: str, as_json: bool) -> int:
    """Skip a task, so that tasks that need it can start.

    ID is RUN/TASK. The task counts as done, without a result; its agent is stopped.
    """

    def work(m: Maos, target: Target) -> Awaitable[Run]:
        if not target.task:
            raise InvalidInput(f"{target.id} is a run", hint=f"name the task: `maos skip {target.id}/TASK`")
        return m.runs.skip(target.run, target.task, reason=why)

    return _request(database, id, work, lambda now: f": is skipped; the run is {page.spoken(now)}", as_json=as_json)


def _request(
    database: DatabaseTarget,
    id: str,
    work: Callable[[Maos, Target], Awaitable[Run]],
    said: Callable[[RunView], str],
    *,
    as_json: bool,
    workflow: str = "",
    tasks: bool = True,
) -> int:
    """Send a command to a run, or a task of it, and print the status of the run then; return the exit code.

    `workflow` is where the command for a workflow run is, if there is one.
    """

    async def applied(m: Maos) -> RunView | Target:
        target = await m.ids.find(id, RUN, *([AGENT] if tasks else []), *([WORKFLOW] if workflow else []))
        if target.kind not in (RUN, TASK):
            return target
        return await m.runs.status_of(await work(m, target))

    now = database.write(applied)
    if isinstance(now, Target) and now.kind == WORKFLOW:
        return forward(workflow, now.id, as_json=as_json)
    if isinstance(now, Target):
        raise InvalidInput(f"{now.id} is an agent of no run", hint=f"`maos agent stop {now.id}` stops it")
    if as_json:
        documents.show(page.summary(now))
    else:
        render.line((now.run.id, "bold"), said(now))
        if now.resumable:
            render.line(("resume with: ", "dim"), (now.resumable, "bold"))
    return 0


@json_command("maos rm r-1a2b3c --dry-run", "maos rm r-1a2b3c --yes --json")
@run_argument
@dry_run_option
@yes_option
def rm(database: DatabaseTarget, id: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove a run from lists, and its worktrees from the disk.

    The run must not be executed, and no worktree may have changes that no checkpoint has. Its history stays in the
    journal, and its commits in the repository.
    """
    if not dry_run:
        need_yes(f"removing {id} removes its worktrees", yes=yes, as_json=as_json)

    async def preview(m: Maos) -> Removal:
        return await m.runs.remove((await m.runs.find(id)).id, dry_run=True)

    found = database.read(preview)
    if not as_json:
        for each in found.worktrees:
            render.line(f"worktree {clean(each.tree)}, ", (render.size(each.bytes), "dim"))
        for kept in found.blocked:
            render.line(("in the way", "yellow"), f" {clean(kept.tree)}: {clean(kept.why)}")
        if found.unmerged:
            render.line(("not merged", "yellow"), f" commit {found.unmerged[:12]}: maos merge {found.run}")
    if not dry_run:
        if not yes:
            ask(f"Remove {found.run}?")
        found = database.write(lambda m: m.runs.remove(found.run))
    done = " would be removed" if dry_run else " is removed"
    render.show({"dry_run": dry_run, **documents.of(found)}, (found.run, "bold"), done, as_json=as_json)


@json_command("maos admin pin r-1a2b3c --why 'what we shipped in March'", "maos admin pin r-1a2b3c --undo")
@run_argument
@click.option("--why", default="", metavar="TEXT", help="The reason; shown with the run.")
@click.option("--undo", is_flag=True, help="Unpin it: cleanup treats it like any other run again.")
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
    found = {"id": run.id, "permanent": not undo, "why": why or None, "changed": changed}
    said = " is not pinned" if undo else " is pinned: no cleanup removes anything of it"
    render.show(found, (clean(run.id), "bold"), said if changed else f"{said}, as before", as_json=as_json)
    if not undo and not as_json:
        render.line(("to undo this: ", "dim"), f"maos admin pin {run.id} --undo")


@json_command("maos admin cleanup --dry-run", "maos admin cleanup --older-than 7 --json")
@click.option(
    "--older-than", "days", type=click.FloatRange(min=0), metavar="DAYS",
    help="All runs that were completed longer ago than this.  [default: as the settings say]",
)  # fmt: skip
@dry_run_option
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
        documents.show({"dry_run": dry_run, **documents.of(done), "bytes": done.bytes, "total": total})
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


@json_command("maos admin save-interval 60", "maos admin save-interval")
@click.argument("seconds", metavar="[SECONDS]", type=float, required=False)
def save_interval(database: DatabaseTarget, seconds: float | None, as_json: bool) -> None:
    """Set or show how often files are saved.

    The interval is kept in the database and counts for all its runs; engines notice a change within seconds. Output,
    messages and decisions are saved at once in any case.
    """
    if seconds is None:
        now = database.read(lambda m: m.runs.save_interval_s())
    else:
        now = database.write(lambda m: m.runs.save_interval_s(seconds), create=True)
    render.show({"save_interval_s": now}, f"files of running agents are saved every {now:g} s", as_json=as_json)


# --- what a run or an agent did -----------------------------------------------------------------------------------


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
    return await m.ids.find(id, RUN, AGENT) if id else Target(RUN, (await m.runs.newest()).id)


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

    async def work(m: Maos) -> Difference | Target:
        target = await m.ids.find(id, RUN, AGENT)
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
        documents.show(_difference(found))
    else:
        _show_difference(found)
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


def _show_difference(found: Difference) -> None:
    sides = [f"{each.run.id}, {each.point.spoken}" for each in (found.before, found.after)]
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


def _difference(found: Difference) -> documents.Document:
    from maos.model.branch import digest

    before, after = (
        {**documents.of(side.point), "commit": commit or None, "state": digest(side.run)}
        for side, commit in zip((found.before, found.after), found.commits, strict=True)
    )
    return {**documents.of(found, *found._fields[2:]), "before": before, "after": after}


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
        target = await m.ids.find(id, RUN, AGENT)
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
