"""`maos orchestrate`: from a request or a plan to finished work."""

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


@click.command(
    cls=LazyCommand,
    examples=[
        "maos orchestrate 'Add a --verbose option, with tests and documentation'",
        "maos orchestrate --plan plan.yaml",
        "maos orchestrate --plan plan.json --auto --concurrency 8 --budget 5",
        "maos orchestrate --plan plan.toml --auto --json | jq .kind",
    ],
)
@click.argument("request", metavar="[REQUEST]", required=False, default="")
@click.option("--plan", "file", metavar="FILE", help="The plan, in YAML, TOML or JSON; - reads it from standard input.")
@click.option("--auto", is_flag=True, help="Carry it out without asking.")
@new_run
@summary_option
@notify_option
@json_lines_option
@click.pass_context
def orchestrate(
    ctx: click.Context,
    /,
    request: str,
    file: str | None,
    auto: bool,
    summary: str,
    notify: tuple[str, ...],
    as_json: bool,
    **given: Any,
) -> None:
    """Run a plan, or plan and run a request, with agents.

    An agent makes a plan of a REQUEST: what is to be done, and by which type of agent; it cannot have commands run. The
    plan is shown, and begins when you say yes. Each agent works in a git worktree of its own; what a task has done is
    merged, checked and given to the tasks that need it. Your own files stay as they are until you merge.

    Ctrl+C pauses: the agents are stopped, and `maos resume` goes on. A second Ctrl+C only lets go of them. If this
    process dies, nothing is lost, and the agents go on; `maos resume` takes them up again.
    """
    if bool(request) == bool(file):
        raise InvalidInput("it takes a request or a plan", hint="`maos orchestrate 'REQUEST'`, or --plan FILE")

    def draft(begun: Beginning) -> Source:
        return plans.read(file) if file else _ask_planner(ctx.obj, request, begun, as_json=as_json)

    start(ctx, draft, auto=auto, tells_others=bool(file), summary=summary, notify=notify, as_json=as_json, given=given)


class Beginning(NamedTuple):
    """What is known of a run before it has a plan."""

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
    """Name the runs whose engine is gone, and how to resume them."""
    found = [run for run in await m.runs.interrupted() if run.id != but]
    for run in found[:INTERRUPTED_SHOWN_MAX]:
        note(f"{run.id} was interrupted, {run.done} of {len(run.tasks)} tasks done: `maos resume {run.id}` goes on")
    if len(found) > INTERRUPTED_SHOWN_MAX:
        note(f"so were {len(found) - INTERRUPTED_SHOWN_MAX} more: `maos orchestration list` shows them")


def _ask_planner(database: DatabaseTarget, request: str, begun: Beginning, *, as_json: bool) -> Source:
    """The plan that an agent makes; one that cannot be used is reported, and the command ends."""
    from maos.model.plan import BadPlan
    from maos.plans.parser import to_source
    from maos.runs.planner import PlanningFailed, planner_of

    planner = planner_of(begun.id)

    async def work(m: Maos) -> Source:
        if not as_json:
            await tell_interrupted(m)
            note(f"{begun.options['kind']} plans; `maos agent logs -f {planner}` shows how")
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
