"""`maos run`: from a request or a plan to finished work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from maos.cli.agent import words
from maos.cli.agent.status import code_of
from maos.cli.commands import LazyCommand, json_lines_option
from maos.cli.database import DatabaseTarget
from maos.cli.failures import note, report
from maos.cli.runs import plans
from maos.cli.runs.options import check_addresses, new_run, notify_option, run_options, summary_option
from maos.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from maos.app import Maos
    from maos.plans.source import Source
    from maos.runs.agent_types import AgentType

INTERRUPTED_SHOWN_MAX = 3


class StartCommand(LazyCommand):
    """A command that runs what stands after `--` as an agent: then it is `maos agent run`, with its options."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if "--" in args:
            from maos.cli.agent.lifecycle import run as run_agent

            return run_agent.make_context(info_name, args, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command(
    cls=StartCommand,
    examples=[
        "maos run 'Add a --verbose option, with tests and documentation'",
        "maos run -f plan.yaml --var version=1.2",
        "maos run -f plan.json --auto --concurrency 8 --budget 5",
        "maos run -- make test",
        "maos run --name nightly --time-limit 2h -- ./nightly.sh --all",
        "maos run -f plan.toml --auto --json | jq .kind",
    ],
)
@click.argument("request", metavar="[REQUEST | -- COMMAND...]", required=False, default="")
@click.option(
    "-f", "--file", "--plan", "file", metavar="FILE",
    help="A plan or workflow file in YAML, TOML or JSON; - reads it from standard input.",
)  # fmt: skip
@click.option("--var", "variables", multiple=True, metavar="NAME=VALUE", help="A variable of a file. Can be repeated.")
@click.option("--auto", is_flag=True, help="Run the plan without asking.")
@new_run
@summary_option
@notify_option
@json_lines_option
@click.pass_context
def run(
    ctx: click.Context,
    /,
    request: str,
    file: str | None,
    variables: tuple[str, ...],
    auto: bool,
    summary: str,
    notify: tuple[str, ...],
    as_json: bool,
    **given: Any,
) -> None:
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

    def draft(begun: Beginning) -> Source:
        return plans.read(file, variables) if file else _ask_planner(ctx.obj, request, begun, as_json=as_json)

    start(ctx, draft, auto=auto, tells_others=bool(file), summary=summary, notify=notify, as_json=as_json, given=given,
          keeps_file=bool(file) and file != "-")  # fmt: skip


class Beginning(NamedTuple):
    """A run before it has a plan."""

    id: str
    folder: Path
    options: dict[str, Any]
    types: Mapping[str, AgentType]


def start(
    ctx: click.Context,
    draft: Callable[[Beginning], Source],
    *,
    auto: bool,
    tells_others: bool,
    summary: str,
    notify: Sequence[str],
    as_json: bool,
    given: Mapping[str, Any],
    keeps_file: bool = False,
) -> NoReturn:
    """Have a plan approved, start a run of it and execute it; the run may keep which file it was made from."""
    from pathlib import Path

    from maos import settings
    from maos.runs import agent_types
    from maos.runs.service import new_id

    check_addresses(notify)
    folder = Path(given["cwd"]).absolute()
    types = agent_types.known(folder, settings.config_folder())
    begun = Beginning(new_id(), folder, run_options(given), types)
    approved = plans.approve(draft(begun), types, begun.options, auto=auto, as_json=as_json)

    async def work(m: Maos) -> int:
        from maos.cli.runs.foreground import ForegroundRun
        from maos.workflows.file_changes import origin_of

        if tells_others and not as_json:
            await tell_interrupted(m)
        made_from = origin_of(approved.parsed).option() if keeps_file and approved.parsed else {}
        run = await m.runs.start(approved, folder=folder, options={**begun.options, **made_from}, id=begun.id)
        return await ForegroundRun(m, run, as_json=as_json, summary=summary, notify=notify).execute()

    database: DatabaseTarget = ctx.obj
    ctx.exit(database.write(work, create=True, in_memory=True))


async def tell_interrupted(m: Maos, *, but: str = "") -> None:
    """Name the runs whose engine has exited, and how to resume them."""
    found = [run for run in await m.runs.interrupted() if run.id != but]
    for run in found[:INTERRUPTED_SHOWN_MAX]:
        note(f"{run.id} was interrupted, {run.done} of {len(run.tasks)} tasks done: `maos resume {run.id}` resumes it")
    if len(found) > INTERRUPTED_SHOWN_MAX:
        note(f"{len(found) - INTERRUPTED_SHOWN_MAX} more were interrupted: `maos ps --status interrupted`")


def _ask_planner(database: DatabaseTarget, request: str, begun: Beginning, *, as_json: bool) -> Source:
    """The plan that an agent makes; one that cannot be used is reported, and the command ends."""
    from maos.model.plan import BadPlan
    from maos.plans.parser import to_source
    from maos.runs.planner import PlanningFailed, planner_of

    planner = planner_of(begun.id)

    async def work(m: Maos) -> Source:
        if not as_json:
            await tell_interrupted(m)
            note(f"{begun.options['kind']} is planning; follow it with `maos logs -f {planner}`")
        plan = await m.runs.plan(request, run=begun.id, folder=begun.folder, options=begun.options, types=begun.types)
        if not as_json:
            attempts = await m.agents.history(planner)
            took_us = attempts[-1].ended_us - attempts[0].planned_us
            cost_usd = sum(each.total_cost_usd for each in attempts)
            note(f"planned in {words.duration(took_us / 1e6)}{f', {words.money(cost_usd)}' if cost_usd else ''}")
        return to_source(plan, "the plan of the agent")

    try:
        return database.write(work, create=True)
    except BadPlan as error:
        plans.refuse("the plan of the agent", error.problems)
    except PlanningFailed as error:
        report(error.what, error.hint)
        raise click.exceptions.Exit(code_of(error.failure)) from error
