"""`maos run`, `chat` and `resume`: from a request or a plan to finished work, also after minutes, days or weeks."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from maos.cli import commands, remote, render
from maos.cli.commands import (
    DURATION,
    LINES,
    FiniteRange,
    LazyCommand,
    dry_run_option,
    forward,
    is_given,
    json_command,
    seconds,
)
from maos.cli.database import DatabaseTarget, agree_to_settings
from maos.cli.failures import note
from maos.errors import InvalidInput, NotFound
from maos.ids import RUN, WORKFLOW, Target

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.events.parts import Limits
    from maos.model.run import Run
    from maos.runs.notify import Address

CONCURRENCY = 4
INTERRUPTED_SHOWN_MAX = 3


run_limits = commands.options(
    click.option("--budget", type=FiniteRange(min=0), metavar="USD",
                 help="Pause the run when it has cost so much; its agents are warned before. 0: no limit."),
    click.option("--tokens", type=click.IntRange(min=0), metavar="N",
                 help="Pause the run when it has used so many tokens. 0: no limit."),
    click.option("--run-time", type=DURATION, help="Pause the run after so long. 0s: no limit."),
)  # fmt: skip
limit_changes = commands.options(
    click.option("--concurrency", type=click.IntRange(min=1, max=1000), metavar="N",
                 help="How many agents work at once.  [default: as before]"),
    click.option("--time-limit", type=DURATION, help="For each agent; 0s: none.  [default: as before]"),
    run_limits,
)  # fmt: skip
"""What can be changed of a run that there is; `changes_of` makes one thing of it."""
new_run = commands.options(
    click.option("--concurrency", type=click.IntRange(min=1, max=1000), default=CONCURRENCY, show_default=True,
                 metavar="N", help="How many agents work at once."),
    click.option("--kind", default="claude", show_default=True, help="The kind of agents, unless the plan names one."),
    click.option("--model", default="", help="The model they use, unless the plan names another."),
    click.option("--permission", type=click.Choice(commands.PERMISSIONS), default="edits", show_default=True,
                 help="What agents may do without asking, unless their type says otherwise: nothing, or edit files."),
    click.option("--cwd", type=click.Path(exists=True, file_okay=False), default=".", help="The folder to work in."),
    click.option("--in-place", is_flag=True, help="Work in the folder itself, not in git worktrees."),
    click.option("--time-limit", type=DURATION, default=commands.TIME_LIMIT, show_default=True,
                 help="For each agent; 0s: none."),
    commands.workspace_options,
    run_limits,
)  # fmt: skip
"""What a run is made with; `_made_with` makes one thing of it."""
gate_option = click.option(
    "--gate", multiple=True, metavar="COMMAND",
    help="A check that the work of each task of a REQUEST must pass before the task is done, such as 'make test'. Can "
    "be repeated.",
)  # fmt: skip
summary_option = click.option(
    "--summary", type=click.Path(dir_okay=False, writable=True), default="", metavar="FILE",
    help="Also write the summary to a file, as Markdown.",
)  # fmt: skip
notify_option = click.option(
    "--notify", multiple=True, metavar="URL",
    help="An address for notifications: the run needs you, ends, or is paused by a limit. Can be repeated; other users "
    "can see it in the list of processes, so MAOS_NOTIFY is better.",
)  # fmt: skip
on_change_option = click.option(
    "--on-change", type=click.Choice(["keep", "replay", "refuse"]),
    help="When it has changed since: resume with the old one (keep), with the new one if that fits what was done "
    "(replay), or refuse.  [default: keep for a file, refuse for a function]",
)  # fmt: skip


def _made_with(database: DatabaseTarget, given: Mapping[str, Any]) -> dict[str, Any]:
    """The folder of a new run, its options as it keeps them, and the types of agents that it can name.

    The options are as the flags say, else the settings.
    """
    from maos.runs import agent_types
    from maos.runs.plan_input import with_defaults

    folder = Path(given["cwd"]).absolute()
    names = ("kind", "permission", "model", "concurrency", "time_limit")
    said = {name: given[name] for name in names if is_given(name)}
    if "time_limit" in said:
        said["time_limit_s"] = seconds(said.pop("time_limit")) or 0.0
    said |= {"in_place": given["in_place"], "budget": _limits(given), **commands.workspace_given(given)}
    if given.get("gate"):
        said["gates"] = commands.split_commands("--gate", given["gate"])
    options = with_defaults(database.settings.values, said)
    return {"folder": folder, "options": options, "types": agent_types.known(folder)}


def _limits(given: Mapping[str, Any]) -> dict[str, Any]:
    """The limits as a run keeps them; those that were not given are left out."""
    found = {"cost_usd": given["budget"], "tokens": given["tokens"], "time_s": seconds(given["run_time"])}
    return {name: value for name, value in found.items() if value is not None}


def changes_of(given: Mapping[str, Any]) -> Limits:
    """The limits of a run that the options of a command change."""
    from maos.model.events.parts import Limits

    return Limits(concurrency=given["concurrency"], time_limit_s=seconds(given["time_limit"]), **_limits(given))


def check_addresses(database: DatabaseTarget, urls: Sequence[str]) -> list[Address]:
    """The addresses that were given, and those of the settings; InvalidInput for a wrong one."""
    from maos.runs import notify

    return notify.addresses([*urls, *database.settings.values.notify.urls])


class StartCommand(LazyCommand):
    """A command that runs what stands after `--` as an agent: then it is `maos agent run`, with its options."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if "--" in args:
            from maos.cli.agent.lifecycle import run as run_agent

            return run_agent.make_context(info_name, args, parent, **extra)
        given = list(args)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            raise _with_dashes(error, given) from error


def _with_dashes(error: click.UsageError, given: list[str]) -> Exception:
    """Return a better error for a command without `--` before it, and for a request without quotes."""
    if len(given) < 2 or " " in given[0] or isinstance(error, click.BadParameter):
        return error
    if shutil.which(given[0]):
        what = error.format_message().rstrip(".")
        hint = f"to run a command, put -- before it: `maos run -- {shlex.join(given)}`"
        return InvalidInput(what[:1].lower() + what[1:], hint=hint)
    if isinstance(error, click.NoSuchOption) or given[0].startswith("-"):
        return error
    return InvalidInput("a request is one text", hint=f"put it into quotes: `maos run {shlex.quote(' '.join(given))}`")


@json_command(
    "maos run 'Add a --verbose option, with tests and documentation'",
    "maos run -f plan.yaml --var version=1.2",
    "maos run -f plan.json --auto --concurrency 8 --budget 5",
    "maos run -- make test",
    "maos run --name nightly --time-limit 2h -- ./nightly.sh --all",
    "maos run -f plan.toml --auto --json | jq .kind",
    "maos run --detach 'Add a --verbose option'",
    json=LINES,
    cls=StartCommand,
)
@click.argument("request", metavar="[REQUEST | -- COMMAND...]", required=False, default="")
@click.option(
    "-f", "--file", "--plan", "file", metavar="FILE", default="",
    help="A plan or workflow file in YAML, TOML or JSON; - reads it from standard input.",
)  # fmt: skip
@click.option("--var", "variables", multiple=True, metavar="NAME=VALUE", help="A variable of a file. Can be repeated.")
@click.option("--auto", is_flag=True, help="Run the plan without asking.")
@commands.detach_option
@gate_option
@new_run
@summary_option
@notify_option
def run(database: DatabaseTarget, /, request: str, file: str, variables: tuple[str, ...], **given: Any) -> int:
    """Run a request, a plan file, or one command.

    REQUEST: an agent makes a plan of it, which cannot contain commands. The plan is shown, and starts when you say yes;
    say no to end the run, edit to change the plan in your editor, or say what to change.
    -f: the plan is in a file. Each agent works in a git worktree of its own; what a task has done is merged, checked
    and given to the tasks that need it. Your own files stay as they are until you merge.

    -- COMMAND: one agent runs it, as with `maos agent run`, whose options can be used.

    --detach: the server (`maos serve`) executes it; without one, nothing is started.

    Ctrl+C pauses: the agents are stopped, and `maos resume` continues. A second Ctrl+C only detaches. If this process
    dies, nothing is lost and the agents keep running; `maos resume` attaches to them.
    """
    if bool(request) == bool(file):
        raise InvalidInput("it takes a request or a plan", hint="`maos run 'REQUEST'`, `-f FILE` or `-- COMMAND`")
    if variables and not file:
        raise InvalidInput("a request has no variables", hint="--var goes with -f FILE")
    if file and given["gate"]:
        hint = "write `gates` into its tasks; --gate is for a request"
        raise InvalidInput("a plan file has gates of its own", hint=hint)
    if database.is_remote and given["detach"] and request:
        return remote.start(request, _remote_options(given), as_json=given["as_json"])
    return start(database, given, request=request, file=file, variables=variables)


def _remote_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a run that a server elsewhere starts, as far as they were given."""
    refused = ("cwd", "in_place", "time_limit", "run_time", "summary", "notify", "gate")
    for name in refused:
        if is_given(name):
            hint = f"leave out --{name.replace('_', '-')}: the server decides it"
            raise InvalidInput(f"--{name.replace('_', '-')} does not go with MAOS_URL", hint=hint)
    names = {"kind": "kind", "model": "model", "permission": "permission", "concurrency": "concurrency",
             "budget": "budget_usd", "tokens": "budget_tokens", "auto": "approved"}  # fmt: skip
    return {field: given[name] for name, field in names.items() if is_given(name)}


def start(
    database: DatabaseTarget,
    given: Mapping[str, Any],
    *,
    request: str = "",
    file: str = "",
    variables: Sequence[str] = (),
) -> int:
    """Start a run of the plan in a file, once a person has approved it, or of a request, which is planned first.

    The run is executed here until it ends or is paused; returns the exit code.
    """
    from maos.cli.runs import foreground, plans
    from maos.runs.file_changes import origin_of

    check_addresses(database, given["notify"])
    as_json, is_detached = given["as_json"], given["detach"]
    if is_detached:
        _check_detachable(database, given)
    agree_to_settings(database, as_json=as_json)
    made_with = _made_with(database, given)
    folder, options = made_with["folder"], made_with["options"]
    approved = None
    if file:
        draft = plans.read(file, variables)
        values = database.settings.values
        approved = plans.approve(draft, made_with["types"], options, values, auto=given["auto"], as_json=as_json)
        if file != "-" and approved.parsed:
            options |= origin_of(approved.parsed).option()

    async def work(m: Maos) -> int:
        if not as_json:
            await _tell_interrupted(m)
        how: dict[str, Any] = {"folder": folder, "options": options, "is_claimed": not is_detached}
        if approved is not None:
            run = await m.runs.start(approved, **how)
        else:
            run = await m.runs.start_request(request, is_approved=given["auto"], **how)
        if is_detached:
            server = await m.supervisor.check_server()
            found = {"kind": "handed_over", "run": run.id, "server": server.url}
            commands.show_handed_over(found, run.id, f"maos attach {run.id}", as_json=as_json)
            return 0
        return await foreground.ForegroundRun(m, run, given).execute()

    return database.write(work, create=True, in_memory=True, waits=True)


def _check_detachable(database: DatabaseTarget, given: Mapping[str, Any]) -> None:
    """Refuse to hand a run over when no server is there, before a person is asked anything."""
    for name in ("summary", "notify"):
        if given[name]:
            hint = "it belongs to the process that executes the run; set notify.urls in the settings"
            raise InvalidInput(f"--{name} does not go with --detach", hint=hint)
    database.read(lambda m: m.supervisor.check_server())


@json_command(
    "maos chat", "maos chat r-1a2b3c", "printf 'Add a --verbose option\\nyes\\n' | maos chat --json", json=LINES
)
@click.argument("id", metavar="[ID]", required=False, default="", shell_complete=commands.complete_runs)
@click.option("--auto", is_flag=True, help="Execute plans, and resume, without asking.")
@gate_option
@new_run
@notify_option
def chat(database: DatabaseTarget, /, id: str, **given: Any) -> int:
    """Begin a run and steer it in conversation.

    Say what is to be done. An agent plans it; say yes, no, or what to change. While the agents work, you see what they
    do, answer what they ask, send them messages (@NAME TEXT), and give them more work (/add TEXT). /help lists all.

    Ctrl+C pauses and leaves. With ID, the conversation about an earlier run continues, days later too, or about one
    that another process executes. Without ID, you are asked whether to resume the newest unfinished run. Lines may also
    come from a pipe.
    """
    check_addresses(database, given["notify"])
    agree_to_settings(database, as_json=given["as_json"])
    made_with = _made_with(database, given)

    async def work(m: Maos) -> int:
        from maos.cli.chat.loop import ChatLoop

        return await ChatLoop(m, made_with, given).hold(id)

    return database.write(work, create=not id, waits=True)


async def _tell_interrupted(m: Maos, *, but: str = "") -> None:
    """Name the runs whose engine has exited, and how to resume them."""
    found = [run for run in await m.runs.interrupted() if run.id != but]
    for run in found[:INTERRUPTED_SHOWN_MAX]:
        note(f"{run.id} was interrupted, {run.done} of {len(run.tasks)} tasks done: `maos resume {run.id}` resumes it")
    if len(found) > INTERRUPTED_SHOWN_MAX:
        note(f"{len(found) - INTERRUPTED_SHOWN_MAX} more were interrupted: `maos ps --status interrupted`")


@json_command(
    "maos resume",
    "maos resume r-1a2b --dry-run",
    "maos resume r-1a2b --task 'docs after api: Document the new calls' --auto",
    "maos resume r-1a2b --cwd .",
    json=LINES,
)
@click.argument("id", metavar="[ID]", required=False, default="", shell_complete=commands.complete_runs)
@click.option(
    "--task", "tasks", multiple=True, metavar="TEXT",
    help="More work: TEXT, 'NAME: TEXT', 'NAME after A, B: TEXT', or @FILE for a plan. Can be repeated.",
)  # fmt: skip
@click.option("--auto", is_flag=True, help="Add the work without asking.")
@limit_changes
@summary_option
@notify_option
@click.option("--now", is_flag=True, help="Do not wait for the end of a rate limit; also while an engine runs it.")
@click.option(
    "--cwd", type=click.Path(exists=True, file_okay=False), metavar="DIRECTORY",
    help="Where its folder is now, if it was moved, or this machine has a copy of it.",
)  # fmt: skip
@on_change_option
@click.option("--trust", is_flag=True, help="Agree to what an imported run will start here, without being asked.")
@dry_run_option
def resume(database: DatabaseTarget, /, id: str, **given: Any) -> int:
    """Resume a paused, interrupted or failed run.

    ID is a run, a workflow run, or a unique prefix of one; without it, the latest run that is not completed, or if
    there is none, the latest workflow run that was interrupted or paused. Finished tasks are not run again. Agents that
    still work are attached to; those that were interrupted resume their own sessions, and their prompts say what
    happened. Failed tasks are retried.

    --task adds work to a run that is completed, paused or interrupted; it starts with the files that the run has made.
    """
    from maos.cli.runs import foreground, plans

    async def find(m: Maos) -> Run:
        return await (m.runs.find(id) if id else m.runs.latest())

    async def target_of(m: Maos) -> Target:
        if id:
            return await m.ids.find(id, RUN, WORKFLOW)
        try:
            return Target(RUN, (await m.runs.latest()).id)
        except NotFound:
            stopped = [each.id for each in (await m.overview()).flows if each.needs_resume or each.status == "paused"]
            if not stopped:
                raise
            return Target(WORKFLOW, stopped[0])

    on_change, as_json = given["on_change"] or "keep", given["as_json"]
    if database.is_remote and id and not any(is_given(name) for name in given if name != "as_json"):
        return remote.steer(id, "resume", as_json=as_json)
    if id or not given["tasks"]:
        target = database.read(target_of)
        id = target.id
        if target.kind == WORKFLOW:
            same = {name: given[name] for name in ("trust", "dry_run", "as_json", "on_change")}
            return forward("maos.cli.workflow.runs:resume", id, **same)
    check_addresses(database, given["notify"])
    added = None
    if given["tasks"] or given["dry_run"]:
        run = database.read(find)
        id = run.id
        added = plans.addition(run, given["tasks"]) if given["tasks"] else None
        if given["dry_run"]:
            database.read(lambda m: foreground.preview(m, run, added, given["cwd"], on_change, as_json=as_json))
            return 0
        assert added is not None
        plans.approve_added(run, added, auto=given["auto"], as_json=as_json)
    limits = changes_of(given)

    async def work(m: Maos) -> int:
        run = await find(m)
        if not as_json:
            await _tell_interrupted(m, but=run.id)
        dialogue = foreground.Dialogue(on_change, trust=given["trust"], as_json=as_json)
        resumed = await m.runs.resume(
            run.id, dialogue, folder=given["cwd"], on_change=on_change, add=added, limits=limits, now=given["now"]
        )
        if resumed is None:
            done = "is requested to add the tasks" if added is not None else "is woken"
            render.line(f"{run.id} {done}; another engine executes it")
            return 0
        return await foreground.ForegroundRun(m, resumed, given).execute()

    return database.write(work, waits=True)
