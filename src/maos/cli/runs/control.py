"""Commands to a run, whichever process executes it, or none, and what a run or an agent did, does and changed.

`maos logs`, `attach`, `diff` and `merge` become commands of `maos agent` when the id names an agent. `maos admin pin`,
`cleanup` and `save-interval` decide what is kept of runs.
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from maos import settings
from maos.cli import commands, documents, remote, render, words
from maos.cli.agent.status import (
    diff_options,
    log_options,
    merge_options,
    show_files,
    show_merge,
    show_names,
    show_patch,
    show_stat,
)
from maos.cli.commands import (
    JSON,
    LINES,
    FiniteRange,
    dry_run_option,
    forward,
    id_argument,
    json_command,
    run_argument,
    yes_option,
)
from maos.cli.database import DatabaseTarget, ask, need_yes
from maos.cli.failures import note
from maos.cli.render import Column, Listing, clean
from maos.cli.runs import page
from maos.cli.runs.start import changes_of, limit_changes
from maos.cli.runs.travel import point, spoken
from maos.errors import InvalidInput, MaosError, NotFound
from maos.faults import crash_point
from maos.files import private_folder, replace_file
from maos.ids import AGENT, RUN, TASK, WORKFLOW, Target

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.cleanup import Statistics
    from maos.model.read_models import ChangedField
    from maos.model.run import Run
    from maos.runs.cleanup import Cleanup, Removal
    from maos.runs.pull_request import PullRequest
    from maos.runs.results import Blocked, Conflicted, Merged, TaskFiles
    from maos.runs.status import RunView
    from maos.travel.points_in_time import Difference, PointInTime
    from maos.web.client import Client
    from maos.web.documents import DifferenceInfo, MergeInfo, TaskFilesInfo, TaskFilesList
    from maos.workflows.status import WorkflowRetry

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

    if database.is_remote:
        return remote.steer(id, "pause", as_json=as_json)

    def said(now: RunView, _task: str) -> str:
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


@json_command(
    "maos update r-1a2b3c --budget 10 --concurrency 8",
    "maos update r-1a2b3c --time-limit 2h",
    "maos update r-1a2b3c --tokens 0 --json",
)
@run_argument
@limit_changes
def update(database: DatabaseTarget, /, id: str, as_json: bool, **given: Any) -> int:
    """Change the limits of a run, also while it is executed.

    The engine that executes the run applies them at once: agents that are being stopped for a limit that is raised
    continue, and --time-limit counts for agents at work too, unless their task or type has a limit of its own. A run
    that is paused keeps them for `maos resume`.
    """
    limits = changes_of(given)

    def said(now: RunView, _task: str) -> str:
        changed = [f"{words.LIMITS[name]} {words.limit(name, value)}" for name, value in limits.given.items()]
        left = words.left(now.left)
        return f": {', '.join(changed)}{f' ({left} left)' if left else ''}; the run is {page.spoken(now)}"

    return _request(database, id, lambda m, each: m.runs.update(each.id, limits), said, tasks=False, as_json=as_json)


@json_command("maos cancel r-1a2b3c", "maos cancel r-1a2b3c/api --json")
@id_argument
@click.option("--why", default="cancelled", help="The reason; shown with the run.")
def cancel(database: DatabaseTarget, id: str, why: str, as_json: bool) -> int:
    """Cancel a run, or one task of it.

    ID is RUN, RUN/TASK or a workflow run. Agents are stopped, what is left is not started, and worktrees in which
    everything is saved are removed. A cancelled run can be resumed; a cancelled task counts as failed until it is
    retried or skipped.
    """
    if database.is_remote:
        return remote.steer(id, "cancel", as_json=as_json, why=why)
    return _request(
        database,
        id,
        lambda m, each: m.runs.cancel(each.run or each.id, task=each.task, why=why),
        lambda now, task: f" is {f'cancelled; the run is {page.spoken(now)}' if task else page.spoken(now)}",
        workflow="maos.cli.workflow.runs:cancel",
        as_json=as_json,
        why=why,
    )


@json_command(
    "maos retry r-1a2b3c",
    "maos retry r-1a2b3c/api --command 'pytest -q tests/api'",
    "maos retry r-1a2b3c/docs --edit",
    "maos retry order-7",
    "maos retry order-7/3 --yes --json",
)
@id_argument
@click.option("--task", "text", default="", metavar="TEXT", help="Change what the task says, then retry it.")
@click.option("--command", default="", metavar="COMMAND", help="Change the command of the task, then retry it.")
@click.option("--edit", is_flag=True, help="Change its text or command in your editor ($VISUAL or $EDITOR).")
@yes_option
def retry(database: DatabaseTarget, id: str, text: str, command: str, edit: bool, yes: bool, as_json: bool) -> int:
    """Retry the failed tasks of a run, or a failed workflow run.

    ID is RUN or RUN/TASK, a workflow run, or WORKFLOW/STEP. The engine that executes the run retries its tasks; if
    there is none, `maos resume` does.

    A workflow run begins again at the step that failed, with its code as it is now; finished steps are kept. With
    WORKFLOW/STEP, that step and all that follow it are executed again, also finished ones, which needs --yes.
    """
    if sum(map(bool, (text, command, edit))) > 1:
        raise InvalidInput("--task, --command and --edit exclude each other", hint="use one of them")
    target = database.read(lambda m: m.ids.find(id, RUN, AGENT, WORKFLOW))
    if target.kind == WORKFLOW:
        if text or command or edit:
            raise InvalidInput(f"{target.id} is a workflow run: its code is what it does", hint="change its code")
        return _retry_workflow(database, target, yes=yes, as_json=as_json)

    def send(text: str, command: str) -> int:
        argv = _argv(command)
        return _request(
            database,
            id,
            lambda m, each: m.runs.retry(
                each.run or each.id, tasks=[each.task] if each.task else (), text=text, command=argv
            ),
            lambda now, task: f"{'' if task else ': its failed tasks'} will be retried; the run is {page.spoken(now)}",
            as_json=as_json,
        )

    if not edit:
        return send(text, command)
    with _edited(database, target) as (text, command):
        return send(text, command)


def _argv(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise InvalidInput(f"the command cannot be read: {error}", hint="quote it as in a shell") from error


@contextmanager
def _edited(database: DatabaseTarget, target: Target) -> Iterator[tuple[str, str]]:
    """The text or the command of a failed task, as a person has changed it in an editor.

    It is edited in a file that is removed once the block has succeeded: when the command is refused or killed, the next
    edit of the same failure begins with it.
    """
    if not target.task:
        raise InvalidInput(f"{target.id} is a run", hint=f"name the task: `maos retry {target.id}/TASK --edit`")
    task = database.read(lambda m: m.runs.get(target.run)).tasks[target.task]
    is_command = bool(task.plan.get("command"))
    before = shlex.join(task.plan["command"]) if is_command else str(task.plan.get("task", ""))
    folder = private_folder(settings.folder_of(str(database.name)) / "edits")
    file = folder / f"{target.id}.{task.attempts}.{'sh' if is_command else 'md'}"
    if task.status != "failed":
        file.unlink(missing_ok=True)  # of a command that was killed after it was recorded
        raise InvalidInput(f"{target.task} is {task.status}", hint="only a task that has failed can be retried")
    if file.exists():
        note(f"you continue an edit that was not recorded: {file}")
    else:
        replace_file(file, f"{before}\n".encode())
    said = _from_editor(file)
    if said in ("", before.strip()):
        file.unlink()
        raise InvalidInput("nothing was changed in the editor", hint="`maos retry` without --edit retries it as it is")
    crash_point("retry: edited")
    yield ("", said) if is_command else (said, "")
    file.unlink()


def _from_editor(file: Path) -> str:
    """The content of a file when a person has closed it in the editor; a failure of the editor discards the edit."""
    try:
        click.edit(filename=str(file))
    except click.ClickException as error:
        file.unlink(missing_ok=True)
        raise InvalidInput(error.format_message(), hint="nothing was changed; $VISUAL or $EDITOR names it") from error
    try:
        return file.read_text(encoding="utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file} is not UTF-8: {error.reason}", hint="repeat the command and change it") from error


def _retry_workflow(database: DatabaseTarget, target: Target, *, yes: bool, as_json: bool) -> int:
    found = database.read(lambda m: m.workflows.retry(target.id, step=target.task, dry_run=True))
    if found.finished:
        what = f"{render.many(len(found.finished), 'finished step')} of {target.id} would be executed again"
        need_yes(f"{what}: {', '.join(found.finished[:CHANGES_SHOWN_MAX])}", yes=yes, as_json=as_json, flags="--yes")
        if not yes:
            ask(f"{what}: {', '.join(found.finished)}. Execute them again?")
    found = database.write(lambda m: m.workflows.retry(target.id, step=target.task))
    what = f"step {', '.join(found.again)}" if found.again else "its code"
    return _show_retry(found, f"{what} will be executed again", as_json=as_json)


def _show_retry(found: WorkflowRetry, what: str, *, as_json: bool) -> int:
    resume = f"maos workflow resume {found.id}"
    text = f": {what}, {render.many(found.kept, 'step')} kept"
    render.show({**documents.of(found), "resumable": resume}, (clean(found.id), "bold"), text, as_json=as_json)
    if not as_json:
        render.line(("resume with: ", "dim"), (resume, "bold"))
    return 0


@json_command(
    "maos skip r-1a2b3c/deploy --why 'deployed by hand'", "maos skip order-7/3 --value '{\"receipt\": 12}' --json"
)
@id_argument
@click.option("--why", default="", help="The reason; shown with the task.")
@click.option("--value", metavar="JSON", type=JSON, help="Of a step: what it returns.  [default: null]")
def skip(database: DatabaseTarget, id: str, why: str, value: Any, as_json: bool) -> int:
    """Skip a task, so that tasks that need it can start.

    ID is RUN/TASK, or WORKFLOW/STEP. The task counts as done, without a result; its agent is stopped. A failed step of
    a workflow run counts as done with a value; `maos workflow resume` then continues after it.
    """

    def work(m: Maos, target: Target) -> Awaitable[Run]:
        if not target.task:
            raise InvalidInput(f"{target.id} is a run", hint=f"name the task: `maos skip {target.id}/TASK`")
        return m.runs.skip(target.run, target.task, reason=why)

    step = database.read(lambda m: m.ids.find(id, RUN, AGENT, WORKFLOW))
    if step.kind == WORKFLOW:
        if not step.task:
            raise InvalidInput(f"{step.id} is a workflow run", hint=f"name the step: `maos skip {step.id}/STEP`")
        found = database.write(lambda m: m.workflows.skip(step.id, step.task, value=value))
        return _show_retry(found, f"step {step.task} is skipped", as_json=as_json)
    return _request(
        database, id, work, lambda now, _task: f" is skipped; the run is {page.spoken(now)}", as_json=as_json
    )


def _request(
    database: DatabaseTarget,
    id: str,
    work: Callable[[Maos, Target], Awaitable[Run]],
    said: Callable[[RunView, str], str],
    *,
    as_json: bool,
    workflow: str = "",
    tasks: bool = True,
    **given: Any,
) -> int:
    """Send a command to a run, or a task of it, and print the status of the run then; return the exit code.

    `said` is what is printed after the id, of the run and the name of the task, if it is about one. `workflow` is where
    the command for a workflow run is, if there is one, and `given` are options for it.
    """

    async def applied(m: Maos) -> RunView | Target:
        target = await m.ids.find(id, RUN, *([AGENT] if tasks else []), *([WORKFLOW] if workflow else []))
        if target.kind not in (RUN, TASK):
            return target
        about.append(target)
        return await m.runs.status_of(await work(m, target))

    about: list[Target] = []
    now = database.write(applied)
    if isinstance(now, Target) and now.kind == WORKFLOW:
        if now.task:
            raise InvalidInput(f"{id} is a step of a workflow run", hint=f"name the workflow run: {now.id}")
        return forward(workflow, now.id, as_json=as_json, **given)
    if isinstance(now, Target):
        raise InvalidInput(f"{now.id} is an agent of no run", hint=f"`maos agent stop {now.id}` stops it")
    if as_json:
        documents.show(page.summary(now))
    else:
        task = about[-1].task
        render.line((f"{now.run.id}/{clean(task)}" if task else now.run.id, "bold"), said(now, task))
        if now.resumable:
            render.line(("resume with: ", "dim"), (now.resumable, "bold"))
    return 0


@json_command("maos rm r-1a2b3c --dry-run", "maos rm r-1a2b3c --yes --json", "maos rm order-7")
@id_argument
@dry_run_option
@yes_option
def rm(database: DatabaseTarget, id: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove a run from lists, and its worktrees from the disk.

    ID is a run or a workflow run. It must not be executed, and no worktree may have changes that no checkpoint has.
    Its history stays in the journal, and its commits in the repository.
    """
    if not dry_run:
        need_yes(f"removing {id} removes its worktrees", yes=yes, as_json=as_json)

    async def remove(m: Maos, *, dry_run: bool) -> Removal:
        target = await m.ids.find(id, RUN, WORKFLOW)
        service = m.workflows if target.kind == WORKFLOW else m.runs
        return await service.remove(target.id, dry_run=dry_run)

    found = database.read(lambda m: remove(m, dry_run=True))
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
        found = database.write(lambda m: remove(m, dry_run=False))
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
    "--older-than", "days", type=FiniteRange(min=0), metavar="DAYS",
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
    "maos logs",
    "maos logs r-1a2b3c -n 100",
    "maos logs r-1a2b3c/api -f",
    "maos logs r-1a2b3c --brief",
    "maos logs nightly --since 10m --json",
    json=LINES,
)
@newest_argument
@log_options
@click.option("--brief", is_flag=True, help="Of a run, only what the live view printed, without the agents' output.")
def logs(database: DatabaseTarget, /, id: str, brief: bool, **given: Any) -> int:
    """Print what a run or an agent did, in order.

    ID is RUN, RUN/TASK, an agent, or a unique prefix of one; without it, the newest run. Of a run it prints tasks that
    start and end, checks, questions, answers and messages, and the output of all its agents, each line with its task.
    Of an agent it prints all output, over all its attempts. Ctrl+C ends only the printing.
    """
    if database.is_remote:
        remote.refuse(brief="--brief")
        if not id or remote.call(lambda client: remote.find_run_or_agent(client, id))[0]:
            what = "on a server, `maos logs` prints what one agent did"
            raise InvalidInput(what, hint="name an agent or RUN/TASK; `maos agent list` lists agents")
        return forward("maos.cli.agent.live:logs", id, **given)

    async def work(m: Maos) -> Target | None:
        target = await _find(m, id)
        if target.kind == RUN and not (given["number"] or given["raw"]):
            from maos.cli.runs.live import print_run

            chosen = {"count": given["count"], "since_us": given["since"] or 0, "as_json": given["as_json"]}
            await print_run(m, target.id, follow=given["follow"], brief=brief, **chosen)
            return None
        return target

    target = database.read(work, waits=given["follow"])
    if target is None:
        return 0
    if target.kind == RUN:
        raise InvalidInput("--attempt and --raw are for one agent", hint=f"name a task: {target.id}/TASK")
    code = forward("maos.cli.agent.live:logs", target.id, **given)
    if target.kind == TASK and not given["raw"]:
        _print_outcome(database, target, as_json=given["as_json"])
    return code


def _print_outcome(database: DatabaseTarget, target: Target, *, as_json: bool) -> None:
    """Print what became of a task that is not done although its agent may be: a check failed, or a person is asked."""
    run = database.read(lambda m: m.runs.get(target.run))
    task = run.tasks[target.task]
    if task.status not in ("gated", "failed", "skipped"):
        return
    if as_json:
        documents.show_line({"kind": "task", **page.task_document(task, run)})
        return
    why = words.one_line(task.why.strip().partition("\n")[0], None)
    status = f"{page.TASK_MARKS[task.status]} {clean(task.name)} {words.task_status(task)}"
    render.line((f"{status}{f': {why}' if why else ''}", "dim"))


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

    target = database.read(work, waits=True)
    return 0 if target is None else forward("maos.cli.agent.lifecycle:attach", target.id, as_json=as_json)


async def _find(m: Maos, id: str) -> Target:
    if not id:
        return Target(RUN, (await m.runs.newest()).id)
    try:
        return await m.ids.find(id, RUN, AGENT)
    except NotFound as error:
        with suppress(MaosError):
            found = await m.ids.find(id, WORKFLOW)
            error.hint = f"{found.id} is a workflow run: `maos workflow show {found.id}` shows its steps"
        raise


def _spoken(status: str) -> str:
    """The status of a task, or the answer to a question, as people say it."""
    return "checking" if status == "gated" else status or "-"


def _changed(noun: str) -> Listing[ChangedField]:
    return Listing(
        f"{noun}s",
        (
            Column(noun, lambda each: each.name, style="bold"),
            Column("before", lambda each: _spoken(each.before), yields=1),
            Column("after", lambda each: _spoken(each.after), yields=1),
            Column("said before", lambda each: words.one_line(each.said_before, 80), style="dim", yields=3),
            Column("says after", lambda each: words.one_line(each.said_after, 80), style="dim", yields=2),
        ),
    )


TASKS, QUESTIONS = _changed("task"), _changed("question")


@json_command(
    "maos diff r-1a2b3c",
    "maos diff r-1a2b3c --stat",
    "maos diff r-1a2b3c/api --patch",
    "maos diff r-1a2b3c --name-only",
    "maos diff r-1a2b3c --from before-refactoring --to 20",
    "maos diff r-1a2b3c r-4d5e6f",
)
@id_argument
@click.argument("first", metavar="[OTHER]", required=False)
@click.argument("second", metavar="", required=False)
@click.option("--from", "start", metavar="POINT", help="The earlier point in time.  [default: the start of the run]")
@click.option("--to", "end", metavar="POINT", help="The later point in time.  [default: now]")
@diff_options
def diff(
    database: DatabaseTarget,
    /,
    id: str,
    stat: bool,
    name_only: bool,
    patch: bool,
    as_json: bool,
    **points: str | None,
) -> int:
    """Show what a run or an agent changed, or compare two runs.

    ID is RUN, RUN/TASK, an agent, or a unique prefix of one. Of a run: tasks and their results, questions, findings,
    messages, and merged files. With --stat, --name-only or --patch: the files alone, task by task.

    POINT is a checkpoint's name, a version, @POSITION or a time. With OTHER, another run, this shows what is different
    in that one.
    """
    start, end = points["start"] or points["first"], points["end"] or points["second"]

    async def work(m: Maos) -> Difference | Target | list[TaskFiles]:
        target = await m.ids.find(id, RUN, AGENT)
        if target.kind != RUN:
            return target
        if (stat or name_only or patch) and not (start or end):
            return await m.runs.task_files(target.id, patch=patch)
        run = await m.runs.get(target.id)
        one, other = await _points(m, run, start or FIRST_VERSION, end)
        return await m.travel.diff(run.id, one, other, other=other.run, patch=patch)

    if database.is_remote:
        return _diff_remotely(id, start, end, stat=stat, name_only=name_only, patch=patch, as_json=as_json)
    found = database.read(work)
    if isinstance(found, Target):
        if start or end:
            raise InvalidInput("points in time are those of a run", hint=f"`maos diff {id}` shows its files")
        shown = {"stat": stat, "name_only": name_only, "patch": patch}
        return forward("maos.cli.agent.status:diff", found.id, as_json=as_json, **shown)
    if isinstance(found, list):
        _show_tasks(found, name_only=name_only, patch=patch, as_json=as_json)
        return 0
    if as_json:
        documents.show(_difference(found))
    elif name_only:
        show_names(found.files or ())
    elif stat:
        show_stat(found.files or ())
    else:
        _show_difference(found)
    return 0


def _diff_remotely(
    id: str, start: str | None, end: str | None, *, stat: bool, name_only: bool, patch: bool, as_json: bool
) -> int:
    """`maos diff` of a run of a server, or of an agent."""
    from maos.web.documents import DifferenceInfo

    async def work(client: Client) -> str | TaskFilesList | DifferenceInfo:
        run, agent = await remote.find_run_or_agent(client, id)
        if agent:
            return agent
        if (stat or name_only or patch) and not (start or end):
            return await client.task_files(run, patch=patch)
        other = "" if end or not start else await _other_run(client, start)
        points = ("", "") if other else (remote.point_text(start), remote.point_text(end))
        return await client.compare(run, *points, other=other, patch=patch)

    found = remote.call(work)
    if isinstance(found, str):
        if start or end:
            raise InvalidInput("points in time are those of a run", hint=f"`maos diff {id}` shows its files")
        shown = {"stat": stat, "name_only": name_only, "patch": patch}
        return forward("maos.cli.agent.status:diff", found, as_json=as_json, **shown)
    if isinstance(found, DifferenceInfo):
        if as_json:
            documents.show(documents.of(found))
        elif name_only:
            show_names(found.files or ())
        elif stat:
            show_stat(found.files or ())
        else:
            sides = [f"{each.run}, {spoken(each)}" for each in (found.before, found.after)]
            _show_changed(sides, found, ())
        return 0
    _show_tasks(found.tasks, name_only=name_only, patch=patch, as_json=as_json)
    return 0


async def _other_run(client: Client, text: str) -> str:
    """The run that a text names; empty when it names none, and is a point in time."""
    try:
        return (await remote.find_run(client, text)).id
    except (InvalidInput, NotFound):
        return ""


def _show_tasks(found: Sequence[TaskFiles | TaskFilesInfo], *, name_only: bool, patch: bool, as_json: bool) -> None:
    """Print what each task changed, below its title."""
    if as_json:
        documents.show({"tasks": [documents.of(each) for each in found]})
        return
    if name_only:
        show_names([file for each in found for file in each.files or ()])
        return
    for number, each in enumerate(found):
        if number:
            render.line()
        render.line((f"{each.commit[:12]} ", "yellow"), (clean(each.subject), "bold"))
        if patch:
            show_patch(each.patch or "")
        else:
            show_stat(each.files or ())
    if not found:
        render.line("no task has changed a file")


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
    messages = [[(each.sender, each.text) for each in side] for side in found.messages]
    _show_changed(sides, found, (("finding", found.findings), ("message", messages)))


def _show_changed(
    sides: Sequence[str], found: Difference | DifferenceInfo, said: Sequence[tuple[str, Sequence[Any]]]
) -> None:
    """Print how two points in time differ: tasks, questions, what agents `said` in each, and files."""
    render.line((clean(" → ".join(sides)), "bold"))
    for listing, changed in ((TASKS, found.tasks), (QUESTIONS, found.questions)):
        if changed:
            listing.table(changed, shown_max=CHANGES_SHOWN_MAX)
    for noun, (gone, new) in said:
        for sign, style, rows in (("-", "red", gone), ("+", "green", new)):
            for who, text in rows[:CHANGES_SHOWN_MAX]:
                render.line((f"{sign} {noun} ", style), f"{clean(who)}: {words.one_line(text, 80)}")
            if len(rows) > CHANGES_SHOWN_MAX:
                render.line((f"… and {len(rows) - CHANGES_SHOWN_MAX} more (--json prints all)", "dim"))
    show_files(found.files or ())
    if found.patch:
        show_patch(found.patch)
    elif found.files and render.terminal():
        render.line(("their lines: ", "dim"), f"maos diff {sides[1].partition(',')[0]} --patch")
    if not (found.tasks or found.questions or any(any(each) for _noun, each in said) or found.files):
        render.line("no difference")


def _difference(found: Difference) -> documents.Document:
    from maos.model.branch import digest

    before, after = (
        {**documents.of(side.point), "commit": commit or None, "state": digest(side.run)}
        for side, commit in zip((found.before, found.after), found.commits, strict=True)
    )
    return {**documents.of(found, *found._fields[2:]), "before": before, "after": after}


@json_command(
    "maos merge r-1a2b3c",
    "maos merge r-1a2b3c --dry-run",
    "maos merge r-1a2b3c --branch new-parser --pr-text pull-request.md",
    "maos merge r-1a2b3c --squash --message 'New parser' --json",
    "maos merge fixer",
)
@id_argument
@merge_options
@click.option("--into", type=click.Path(exists=True, file_okay=False),
              help="The folder.  [default: that of the run; the current one for an agent]")  # fmt: skip
@click.option("--squash", is_flag=True, help="One commit for the whole run, instead of one for each task.")
@click.option("--pr-text", "text_file", type=click.Path(dir_okay=False, allow_dash=True), metavar="FILE",
              help="Write the text of a pull request for the run, as Markdown; - for standard output.")  # fmt: skip
def merge(database: DatabaseTarget, /, id: str, text_file: str | None, as_json: bool, **given: Any) -> int:
    """Merge the work of a run or an agent into your branch.

    ID is RUN, RUN/TASK, an agent, or a unique prefix of one. The work of each task becomes a commit, with the task, the
    run, the agent and the cost in its message. All of it is merged or nothing: files that both sides changed are shown
    with both sides, and uncommitted changes that are in the way are named. It can be repeated when the run has done
    more, and after a crash.

    With --branch your files are not touched: the branch is created from the commit that the run began with, or
    continued if it exists.
    """
    into, squash = given.pop("into"), given.pop("squash")
    if database.is_remote:
        remote.refuse(into="--into", text_file="--pr-text")
        return _merge_remotely(id, squash=squash, as_json=as_json, **given)

    async def work(m: Maos) -> tuple[Run, Merged | Conflicted | Blocked, PullRequest | None] | Target:
        target = await m.ids.find(id, RUN, AGENT)
        if target.kind != RUN:
            return target
        done = await m.runs.merge(target.id, into=into or "", squash=squash, **given)
        is_wanted = text_file is not None and not getattr(done, "hint", "") and hasattr(done, "branch")
        return await m.runs.get(target.id), done, await m.runs.pull_request(target.id) if is_wanted else None

    found = database.write(work)
    if isinstance(found, Target):
        if squash or text_file:
            raise InvalidInput("--squash and --pr-text are for a run", hint=f"`maos merge {id}` makes one commit")
        return forward("maos.cli.agent.status:merge", found.id, into=into or ".", as_json=as_json, **given)
    run, done, text = found
    if text is not None and text_file not in (None, "-"):
        Path(str(text_file)).write_text(text.body, encoding="utf-8")
    by_hand = [
        f"maos merge {run.id} --branch NAME: puts the work on a branch of its own, where nothing conflicts",
        f"merge by hand: the work is commit {run.commit[:12]}, its files are in {run.options['workspace']['tree']}",
        "change your branch and merge again: it merges all, or nothing",
    ]
    return show_merge("run", run.id, done, by_hand, pull_request=text, text_file=text_file or "", as_json=as_json)


def _merge_remotely(id: str, *, as_json: bool, **given: Any) -> int:
    """`maos merge` of a run of a server."""

    async def work(client: Client) -> tuple[str, MergeInfo]:
        run, agent = await remote.find_run_or_agent(client, id)
        if agent:
            what = f"on a server, the work of a run is merged, and {agent} is an agent"
            raise InvalidInput(what, hint="name its run, or merge it where its repository is, with --db")
        return run, await client.merge(run, **given)

    run, done = remote.call(work)
    return remote.show_merge(run, done, dry_run=given["dry_run"], as_json=as_json)
