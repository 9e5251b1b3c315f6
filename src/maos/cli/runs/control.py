"""`maos pause`, `cancel`, `retry`, `skip` and `rm`: commands to a run, whichever process executes it, or none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from maos.cli import documents, render
from maos.cli.commands import LazyCommand, dry_run_option, forward, json_option, yes_option
from maos.cli.completion import id_argument, run_argument
from maos.cli.database import DatabaseTarget, ask, need_yes
from maos.cli.render import clean
from maos.cli.runs import page
from maos.errors import InvalidInput
from maos.ids import AGENT, RUN, TASK, WORKFLOW, Target

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.run import Run
    from maos.runs.cleanup import Removal
    from maos.runs.status import RunView


@click.command(cls=LazyCommand, examples=["maos pause r-1a2b3c", "maos pause 1a2b --json"])
@id_argument
@json_option
@click.pass_context
def pause(ctx: click.Context, id: str, as_json: bool) -> None:
    """Pause a run; `maos resume` continues it.

    Its agents are stopped, and this waits until they have ended. The engine that executes the run stops them; if there
    is none, agents of the run that still work are stopped all the same. Messages and questions are kept.
    """

    async def work(m: Maos, target: Target) -> Run:
        return await m.runs.pause_and_wait(target.id)

    now = _request(ctx, id, work, as_json=as_json, workflow="workflow pause")
    if now is None:
        return
    what = "is paused" if now.run.status == "paused" else f"is {page.spoken(now)}, and none of its agents works"
    render.line((now.run.id, "bold"), f" {what if now.run.is_open else 'had ended before: ' + now.run.status}")
    if now.resumable:
        render.line(("resume with: ", "dim"), (now.resumable, "bold"))


@click.command(cls=LazyCommand, examples=["maos cancel r-1a2b3c", "maos cancel r-1a2b3c/api --json"])
@id_argument
@click.option("--why", default="cancelled", help="The reason; shown with the run.")
@json_option
@click.pass_context
def cancel(ctx: click.Context, id: str, why: str, as_json: bool) -> None:
    """Cancel a run, or one task of it.

    ID is RUN or RUN/TASK. Agents are stopped, and what is left is not started. A cancelled run can be resumed; a
    cancelled task counts as failed until it is retried or skipped.
    """

    async def work(m: Maos, target: Target) -> Run:
        return await m.runs.cancel(target.run or target.id, task=target.task, why=why)

    now = _request(ctx, id, work, as_json=as_json, workflow="workflow cancel", tasks=True)
    if now is not None:
        render.line((now.run.id, "bold"), f" is {page.spoken(now)}")


@click.command(cls=LazyCommand, examples=["maos retry r-1a2b3c", "maos retry r-1a2b3c/api --json"])
@id_argument
@json_option
@click.pass_context
def retry(ctx: click.Context, id: str, as_json: bool) -> None:
    """Retry the failed tasks of a run, or one of them.

    ID is RUN or RUN/TASK. The engine that executes the run retries them; if there is none, `maos resume` does.
    """

    async def work(m: Maos, target: Target) -> Run:
        return await m.runs.retry(target.run or target.id, tasks=[target.task] if target.task else ())

    _print_left(_request(ctx, id, work, as_json=as_json, tasks=True), "will be retried")


@click.command(
    cls=LazyCommand, examples=["maos skip r-1a2b3c/deploy --why 'deployed by hand'", "maos skip r-1a2b3c/deploy --json"]
)
@id_argument
@click.option("--why", default="", help="The reason; shown with the task.")
@json_option
@click.pass_context
def skip(ctx: click.Context, id: str, why: str, as_json: bool) -> None:
    """Skip a task, so that tasks that need it can start.

    ID is RUN/TASK. The task counts as done, without a result; its agent is stopped.
    """

    async def work(m: Maos, target: Target) -> Run:
        if not target.task:
            raise InvalidInput(f"{target.id} is a run", hint=f"name the task: `maos skip {target.id}/TASK`")
        return await m.runs.skip(target.run, target.task, reason=why)

    _print_left(_request(ctx, id, work, as_json=as_json, tasks=True), "is skipped")


def _request(
    ctx: click.Context,
    id: str,
    work: Callable[[Maos, Target], Awaitable[Run]],
    *,
    as_json: bool,
    workflow: str = "",
    tasks: bool = False,
) -> RunView | None:
    """Send a command to a run, or a task of it; the status of the run then, None when it was printed as JSON.

    `workflow` is the command for a workflow run, if there is one.
    """

    async def applied(m: Maos) -> RunView | Target:
        target = await m.find(id, RUN, *([AGENT] if tasks else []), *([WORKFLOW] if workflow else []))
        if target.kind not in (RUN, TASK):
            return target
        return await m.runs.status_of(await work(m, target))

    now = ctx.obj.write(applied)
    if isinstance(now, Target) and now.kind == WORKFLOW:
        forward(ctx, workflow, now.id, *(["--json"] if as_json else []))
    elif isinstance(now, Target):
        raise InvalidInput(f"{now.id} is an agent of no run", hint=f"`maos agent stop {now.id}` stops it")
    elif as_json:
        documents.show(page.summary(now))
    return None if as_json or isinstance(now, Target) else now


def _print_left(now: RunView | None, what: str) -> None:
    if now is not None:
        render.line((now.run.id, "bold"), f": {what}; the run is {page.spoken(now)}")
        if now.resumable:
            render.line(("resume with: ", "dim"), (now.resumable, "bold"))


@click.command(cls=LazyCommand, examples=["maos rm r-1a2b3c --dry-run", "maos rm r-1a2b3c --yes --json"])
@run_argument
@dry_run_option
@yes_option
@json_option
@click.pass_obj
def rm(database: DatabaseTarget, id: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove a run from lists, and its worktrees from the disk.

    The run must not be executed, and no worktree may have changes that no checkpoint has. Its history stays in the
    journal, and its commits in the repository.
    """
    if not dry_run:
        need_yes(f"removing {id} removes its worktrees", yes=yes, as_json=as_json)

    async def preview(m: Maos) -> Removal:
        return await m.runs.remove((await m.runs.find(id)).id, dry_run=True)

    async def work(m: Maos) -> Removal:
        return await m.runs.remove(found.run)

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
        found = database.write(work)
    if as_json:
        documents.show({"dry_run": dry_run, **documents.of(found)})
    else:
        render.line((found.run, "bold"), " would be removed" if dry_run else " is removed")
