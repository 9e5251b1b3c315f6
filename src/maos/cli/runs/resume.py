"""`maos resume`: resume a run, after minutes, days or weeks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

from maos.cli import completion, render
from maos.cli import documents as shared
from maos.cli.agent import words
from maos.cli.arguments import DURATION, seconds
from maos.cli.commands import LazyCommand, dry_run_option, forward, json_lines_option
from maos.cli.database import DatabaseTarget
from maos.cli.failures import FAILED
from maos.cli.plain import clean
from maos.cli.runs import bundles, plans
from maos.cli.runs.bundles import trust_option
from maos.cli.runs.options import check_addresses, limits, notify_option, run_limits, summary_option
from maos.cli.runs.start import tell_interrupted
from maos.cli.workflow import changes
from maos.errors import InvalidInput
from maos.ids import RUN, WORKFLOW

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.run import Run
    from maos.runs.plan_input import Addition
    from maos.runs.status import Next

SAID = {
    "kept": "done; will not run again",
    "taken_up": "agent still running; will attach",
    "recorded": "agent finished; will record that",
    "resumed": "will resume",
    "checked": "will run its checks",
    "begun": "not started",
}


@click.command(
    cls=LazyCommand,
    examples=[
        "maos resume",
        "maos resume r-1a2b --dry-run",
        "maos resume r-1a2b --task 'docs after api: Document the new calls' --auto",
        "maos resume r-1a2b --cwd .",
    ],
)
@click.argument("id", metavar="[ID]", required=False, default="", shell_complete=completion.runs)
@click.option(
    "--task", "tasks", multiple=True, metavar="TEXT",
    help="More work: TEXT, 'NAME: TEXT', 'NAME after A, B: TEXT', or @FILE for a plan. Can be repeated.",
)  # fmt: skip
@click.option("--auto", is_flag=True, help="Add the work without asking.")
@click.option(
    "--concurrency", type=click.IntRange(min=1, max=1000), metavar="N",
    help="How many agents work at once.  [default: as before]",
)  # fmt: skip
@click.option("--time-limit", type=DURATION, help="For each agent.  [default: as before]")
@run_limits
@summary_option
@notify_option
@click.option("--now", is_flag=True, help="Do not wait for the end of a rate limit; also while an engine runs it.")
@click.option(
    "--cwd", type=click.Path(exists=True, file_okay=False), metavar="DIRECTORY",
    help="Where its folder is now, if it was moved, or this machine has a copy of it.",
)  # fmt: skip
@changes.on_change_option
@trust_option
@dry_run_option
@json_lines_option
@click.pass_context
def resume(ctx: click.Context, /, id: str, on_change: str | None, **given: Any) -> None:
    """Resume a paused, interrupted or failed run.

    ID is a run, a workflow run, or a unique prefix of one; without it, the latest run that is not completed. Finished
    tasks are not run again. Agents that still work are attached to; those that were interrupted resume their own
    sessions, and are told what happened. Failed tasks are retried.

    --task adds work to a run that is completed, paused or interrupted; it starts with the files that the run has made.
    """
    target = ctx.obj.read(lambda m: m.find(id, RUN, WORKFLOW)) if id else None
    if target is not None and target.kind == WORKFLOW:
        flags = [f"--{name.replace('_', '-')}" for name in ("trust", "dry_run") if given[name]]
        flags += ["--json"] if given["as_json"] else []
        forward(ctx, "workflow resume", target.id, *flags, *(["--on-change", on_change] if on_change else []))
        return
    resume_run(ctx, target.id if target else "", on_change=on_change or "keep", **given)


def resume_run(
    ctx: click.Context,
    id: str,
    *,
    trust: bool,
    dry_run: bool,
    as_json: bool,
    tasks: Sequence[str] = (),
    auto: bool = False,
    concurrency: int | None = None,
    time_limit: int | None = None,
    budget: float | None = None,
    tokens: int | None = None,
    run_time: int | None = None,
    summary: str = "",
    notify: Sequence[str] = (),
    now: bool = False,
    cwd: str | None = None,
    on_change: str = "keep",
) -> NoReturn:
    """Resume a run in the foreground, and exit; `on_change` is what to do when its plan file has changed."""
    database: DatabaseTarget = ctx.obj
    options = _options(concurrency, time_limit, limits(budget, tokens, run_time))
    check_addresses(notify)
    added: Addition | None = None
    if tasks or dry_run:
        run = database.read(lambda m: _find(m, id))
        id = run.id
        added = _added(run, tasks) if tasks else None
        if dry_run:
            ctx.exit(database.read(lambda m: _preview(m, run, added, cwd, on_change, as_json=as_json)))
        assert added is not None
        _approve(run, added, auto=auto, as_json=as_json)

    async def work(m: Maos) -> int:
        from maos.cli.runs.foreground import Dialogue, ForegroundRun

        run = await _find(m, id)
        if not as_json:
            await tell_interrupted(m, but=run.id)
        dialogue = Dialogue(on_change, trust=trust, as_json=as_json)
        resumed = await m.runs.resume(
            run.id, dialogue, folder=cwd, on_change=on_change, add=added, options=options, now=now
        )
        if resumed is None:
            render.line(f"{run.id} is woken; another engine executes it")
            return 0
        return await ForegroundRun(m, resumed, as_json=as_json, summary=summary, notify=notify).execute()

    ctx.exit(database.write(work))


async def _find(m: Maos, id: str) -> Run:
    return await (m.runs.find(id) if id else m.runs.latest())


def _options(concurrency: int | None, time_limit: int | None, budget: dict[str, float]) -> dict[str, Any]:
    """Options of the run that change."""
    given = {"concurrency": concurrency, "time_limit_s": seconds(time_limit), "budget": budget or None}
    return {name: value for name, value in given.items() if value is not None}


# --- more work ---------------------------------------------------------------------------------------------------


def _added(run: Run, texts: Sequence[str]) -> Addition:
    """The tasks that are to be added; what is wrong with them is reported, and the command ends."""
    from maos.model.plan import BadPlan

    try:
        return plans.addition(run, texts)
    except BadPlan as error:
        plans.refuse("the new work", error.problems)


def show_added(run: Run, added: Addition) -> None:
    """The tasks that are to be added."""
    from maos.runs import agent_types

    kinds = agent_types.kinds(added.plan, {**run.options, **added.options})
    render.line((f"{render.many(len(added.plan.tasks), 'more task')} for {run.id}", "bold"))
    for task in added.plan.tasks:
        plans.show_task(task, kinds[task.name], "", last=task is added.plan.tasks[-1], width=0)
    sys.stdout.flush()


def _approve(run: Run, added: Addition, *, auto: bool, as_json: bool) -> None:
    """Show what is to be added, and have a person say yes to it."""
    if not as_json:
        show_added(run, added)
    if auto:
        return
    if as_json or sys.stdin is None or not sys.stdin.isatty():
        raise InvalidInput("the new work is not approved, and no person can be asked", hint="repeat it with --auto")
    if not click.confirm("Add it and resume?", err=True):
        click.echo("nothing was changed", err=True)
        raise click.exceptions.Exit(FAILED)


# --- a dry run ---------------------------------------------------------------------------------------------------


async def _preview(m: Maos, run: Run, added: Addition | None, cwd: str | None, on_change: str, *, as_json: bool) -> int:
    """What would be resumed, what would not run again, what is unknown, and what each agent would be told."""
    from maos.cli.runs.foreground import show_moved
    from maos.runs.status import is_executing, is_interrupted

    if cwd is not None:
        show_moved(await m.runs.move(run.id, cwd, dry_run=True), as_json=as_json, dry_run=True)
    found = await m.runs.preview(run)
    new = [] if added is None else added.plan.tasks
    foreign = await m.runs.acts(run.id) if await m.runs.needs_consent(run.id) else None
    if as_json:
        tasks = [
            {**each._asdict(), "unknown": [{"name": tool.name, "input": tool.input} for tool in each.unknown]}
            for each in found
        ]
        more = [{"task": task.name, "what": "added", "words": task.task, "needs": task.needs} for task in new]
        starts = {} if foreign is None else {"agreed": False, "starts": shared.of(foreign)}
        document = {"kind": "dry_run", "run": run.id, "executing": is_executing(run), "tasks": [*tasks, *more],
                    **starts, **changes.document(run, on_change)}  # fmt: skip
        shared.show_line(document)
        return 0
    status = "interrupted" if is_interrupted(run) else run.status
    render.line((clean(run.id), "bold"), f" is {status}, {run.done} of {len(run.tasks)} tasks done")
    if is_executing(run):
        render.line(f"  process {run.owner.get('pid')} on {clean(str(run.owner.get('host')))} executes it")
    width = max(len(name) for name in run.tasks)
    for each in found:
        _show_next(each, width)
    for task in new:
        render.line("  ", (clean(task.name).ljust(width), "bold"), "  is added: ", words.one_line(task.task, 80))
    changes.show(run, on_change)
    if foreign is not None:
        render.line(("it was imported, and is not agreed to yet", "yellow"))
        bundles.show_acts(run, foreign)
    return 0


def _show_next(each: Next, width: int) -> None:
    why = f" ({words.one_line(each.why, 100)})" if each.why and each.what != "begun" else ""
    style = "dim" if each.what in ("kept", "begun") else ""
    render.line("  ", (clean(each.task).ljust(width), "bold"), "  ", (f"{SAID[each.what]}{why}", style))
    for tool in each.unknown:
        render.line((f"    unknown whether it took effect: {words.tool(tool.name, tool.input)}", "yellow"))
    if each.what == "resumed" and each.words:
        render.line(("    and will be told:", "dim"))
        for line in each.words.splitlines():
            render.line(("    │ ", "dim"), clean(line))
