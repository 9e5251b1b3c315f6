"""`maos pause`, `cancel`, `retry`, `skip` and `rm`: commands to a run, whichever process executes it, or none.

`maos admin pin`, `cleanup` and `save-interval` decide what is kept of runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from maos.cli import documents, render
from maos.cli.commands import dry_run_option, forward, id_argument, json_command, run_argument, yes_option
from maos.cli.database import DatabaseTarget, ask, need_yes
from maos.cli.render import clean
from maos.cli.runs import page
from maos.errors import InvalidInput
from maos.ids import AGENT, RUN, TASK, WORKFLOW, Target

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.cleanup import Statistics
    from maos.model.run import Run
    from maos.runs.cleanup import Cleanup, Removal
    from maos.runs.status import RunView


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
        target = await m.find(id, RUN, *([AGENT] if tasks else []), *([WORKFLOW] if workflow else []))
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
