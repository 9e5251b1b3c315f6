"""`maos run`, `chat` and `resume`: from a request or a plan to finished work, also after minutes, days or weeks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from maos.cli import commands, render, words
from maos.cli.agent.status import code_of
from maos.cli.commands import DURATION, LINES, LazyCommand, dry_run_option, forward, is_given, json_command, seconds
from maos.cli.database import DatabaseTarget
from maos.cli.failures import note, report
from maos.errors import InvalidInput
from maos.ids import RUN, WORKFLOW

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.run import Run
    from maos.plans.source import Source
    from maos.runs.notify import Address

CONCURRENCY = 4
INTERRUPTED_SHOWN_MAX = 3


run_limits = commands.options(
    click.option("--budget", type=click.FloatRange(min=0, min_open=True), metavar="USD",
                 help="Pause the run when it has cost so much; its agents are warned before."),
    click.option("--tokens", type=click.IntRange(min=1), metavar="N",
                 help="Pause the run when it has used so many tokens."),
    click.option("--run-time", type=DURATION, help="Pause the run after so long."),
)  # fmt: skip
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
    run_limits,
)  # fmt: skip
"""What a run is made with; `_made_with` makes one thing of it."""
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
    said |= {"in_place": given["in_place"], "budget": _limits(given)}
    options = with_defaults(database.settings.values, said)
    return {"folder": folder, "options": options, "types": agent_types.known(folder)}


def _limits(given: Mapping[str, Any]) -> dict[str, float]:
    """The limits as a run keeps them; those that were not given are left out."""
    found = {"cost_usd": given["budget"], "tokens": given["tokens"], "time_s": seconds(given["run_time"])}
    return {name: value for name, value in found.items() if value}


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
        return super().make_context(info_name, args, parent, **extra)


@json_command(
    "maos run 'Add a --verbose option, with tests and documentation'",
    "maos run -f plan.yaml --var version=1.2",
    "maos run -f plan.json --auto --concurrency 8 --budget 5",
    "maos run -- make test",
    "maos run --name nightly --time-limit 2h -- ./nightly.sh --all",
    "maos run -f plan.toml --auto --json | jq .kind",
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
@new_run
@summary_option
@notify_option
def run(database: DatabaseTarget, /, request: str, file: str, variables: tuple[str, ...], **given: Any) -> int:
    """Run a request, a plan file, or one command.

    REQUEST: an agent makes a plan of it, which cannot contain commands. The plan is shown, and starts when you say yes.
    -f: the plan is in a file. Each agent works in a git worktree of its own; what a task has done is merged, checked
    and given to the tasks that need it. Your own files stay as they are until you merge.

    -- COMMAND: one agent runs it, as with `maos agent run`, whose options can be used.

    Ctrl+C pauses: the agents are stopped, and `maos resume` continues. A second Ctrl+C only detaches. If this process
    dies, nothing is lost and the agents keep running; `maos resume` attaches to them.
    """
    if bool(request) == bool(file):
        raise InvalidInput("it takes a request or a plan", hint="`maos run 'REQUEST'`, `-f FILE` or `-- COMMAND`")
    if variables and not file:
        raise InvalidInput("a request has no variables", hint="--var goes with -f FILE")
    return start(database, given, request=request, file=file, variables=variables)


def start(
    database: DatabaseTarget,
    given: Mapping[str, Any],
    *,
    request: str = "",
    file: str = "",
    variables: Sequence[str] = (),
) -> int:
    """Have the plan in a file, or of a request, approved; start a run of it and execute it; return the exit code."""
    from maos.cli.runs import foreground, plans
    from maos.runs.file_changes import origin_of
    from maos.runs.service import new_id

    check_addresses(database, given["notify"])
    as_json = given["as_json"]
    id, made_with = new_id(), _made_with(database, given)
    folder, options = made_with["folder"], made_with["options"]
    if file:
        draft = plans.read(file, variables)
    else:
        draft = _ask_planner(database, request, {"run": id, **made_with}, as_json=as_json)
    approved = plans.approve(draft, made_with["types"], options, auto=given["auto"], as_json=as_json)
    if file and file != "-" and approved.parsed:
        options |= origin_of(approved.parsed).option()

    async def work(m: Maos) -> int:
        if file and not as_json:
            await _tell_interrupted(m)
        run = await m.runs.start(approved, folder=folder, options=options, id=id)
        return await foreground.ForegroundRun(m, run, given).execute()

    return database.write(work, create=True, in_memory=True)


def _ask_planner(database: DatabaseTarget, request: str, asked: Mapping[str, Any], *, as_json: bool) -> Source:
    """The plan that an agent makes; one that cannot be used is reported, and the command ends."""
    from maos.plans.parser import to_source
    from maos.runs.planner import PlanningFailed, planner_of

    planner = planner_of(asked["run"])

    async def work(m: Maos) -> Source:
        if not as_json:
            await _tell_interrupted(m)
            note(f"{asked['options']['kind']} is planning; follow it with `maos logs -f {planner}`")
        plan = await m.runs.plan(request, **asked)
        if not as_json:
            attempts = await m.agents.history(planner)
            took_us = attempts[-1].ended_us - attempts[0].planned_us
            cost_usd = sum(each.total_cost_usd for each in attempts)
            note(f"planned in {words.duration(took_us / 1e6)}{f', {words.money(cost_usd)}' if cost_usd else ''}")
        return to_source(plan, "the plan of the agent")

    try:
        return database.write(work, create=True)
    except PlanningFailed as error:
        report(error.what, error.hint)
        raise click.exceptions.Exit(code_of(error.failure)) from error


@json_command(
    "maos chat", "maos chat r-1a2b3c", "printf 'Add a --verbose option\\nyes\\n' | maos chat --json", json=LINES
)
@click.argument("id", metavar="[ID]", required=False, default="", shell_complete=commands.complete_runs)
@click.option("--auto", is_flag=True, help="Execute plans, and resume, without asking.")
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
    made_with = _made_with(database, given)

    async def work(m: Maos) -> int:
        from maos.cli.chat.loop import ChatLoop

        return await ChatLoop(m, made_with, given).hold(id)

    return database.write(work, create=not id)


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
@on_change_option
@click.option("--trust", is_flag=True, help="Agree to what an imported run will start here, without being asked.")
@dry_run_option
def resume(database: DatabaseTarget, /, id: str, **given: Any) -> int:
    """Resume a paused, interrupted or failed run.

    ID is a run, a workflow run, or a unique prefix of one; without it, the latest run that is not completed. Finished
    tasks are not run again. Agents that still work are attached to; those that were interrupted resume their own
    sessions, and their prompts say what happened. Failed tasks are retried.

    --task adds work to a run that is completed, paused or interrupted; it starts with the files that the run has made.
    """
    from maos.cli.runs import foreground, plans

    async def find(m: Maos) -> Run:
        return await (m.runs.find(id) if id else m.runs.latest())

    on_change, as_json = given["on_change"] or "keep", given["as_json"]
    if id:
        target = database.read(lambda m: m.ids.find(id, RUN, WORKFLOW))
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
    changed = {"concurrency": given["concurrency"], "time_limit_s": seconds(given["time_limit"]),
               "budget": _limits(given) or None}  # fmt: skip
    options = {name: value for name, value in changed.items() if value is not None}

    async def work(m: Maos) -> int:
        run = await find(m)
        if not as_json:
            await _tell_interrupted(m, but=run.id)
        dialogue = foreground.Dialogue(on_change, trust=given["trust"], as_json=as_json)
        resumed = await m.runs.resume(
            run.id, dialogue, folder=given["cwd"], on_change=on_change, add=added, options=options, now=given["now"]
        )
        if resumed is None:
            render.line(f"{run.id} is woken; another engine executes it")
            return 0
        return await foreground.ForegroundRun(m, resumed, given).execute()

    return database.write(work)
