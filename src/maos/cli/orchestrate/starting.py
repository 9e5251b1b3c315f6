"""`maos orchestrate`: from a request or a plan to finished work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from maos.cli.agent.options import seconds
from maos.cli.arguments import DURATION
from maos.cli.commands import Command, json_lines_option
from maos.cli.database import Target
from maos.cli.orchestrate.options import limits, run_limits, summary_option
from maos.errors import InvalidInput

if TYPE_CHECKING:
    from maos.app import Maos

PERMISSIONS = ("ask", "edits", "deny")
TIME_LIMIT = "10m"
CONCURRENCY = 4


@click.command(
    cls=Command,
    examples=[
        "maos orchestrate 'Add a --verbose option, with tests and documentation'",
        "maos orchestrate --plan plan.toml",
        "maos orchestrate --plan plan.json --auto --concurrency 8 --budget 5",
        "maos orchestrate --plan plan.toml --auto --json | jq .kind",
    ],
)
@click.argument("request", metavar="[REQUEST]", required=False, default="")
@click.option("--plan", "file", metavar="FILE", help="The plan, as TOML or JSON; - reads it from standard input.")
@click.option("--auto", is_flag=True, help="Carry it out without asking.")
@click.option(
    "--concurrency", type=click.IntRange(min=1, max=1000), default=CONCURRENCY, show_default=True, metavar="N",
    help="How many agents work at once.",
)  # fmt: skip
@click.option("--kind", default="claude", show_default=True, help="The agents' kind, unless the plan says another.")
@click.option("--model", default="", help="The model they use, unless the plan says another.")
@click.option("--permission", type=click.Choice(PERMISSIONS), default="edits", show_default=True,
              help="What agents may do unasked, unless their type says another: nothing, or edit files.")  # fmt: skip
@click.option("--cwd", type=click.Path(exists=True, file_okay=False), default=".", help="The folder to work in.")
@click.option("--in-place", is_flag=True, help="All work in the folder itself, not in git worktrees of their own.")
@click.option("--time-limit", type=DURATION, default=TIME_LIMIT, show_default=True, help="For each agent; 0s: none.")
@run_limits
@summary_option
@json_lines_option
@click.pass_context
def orchestrate(
    ctx: click.Context,
    request: str,
    file: str | None,
    auto: bool,
    concurrency: int,
    kind: str,
    model: str,
    permission: str,
    cwd: str,
    in_place: bool,
    time_limit: int,
    budget: float | None,
    tokens: int | None,
    run_time: int | None,
    summary: str,
    as_json: bool,
) -> None:
    """Carry out a request or a plan with many agents.

    An agent makes a plan of a REQUEST: what is to be done, and by which type of agent; it cannot have commands run. The
    plan is shown, and begins when you say yes. Each agent works in a git worktree of its own; what a task has done is
    merged, checked and given to the tasks that need it. Your own files stay as they are until you merge.

    Ctrl+C pauses: the agents are stopped, and `maos resume` goes on. A second Ctrl+C only lets go of them. If this
    process dies, nothing is lost, and the agents go on; `maos resume` takes them up again.
    """
    from pathlib import Path

    from maos import settings
    from maos.cli.orchestrate import planning, plans
    from maos.engine import agent_types
    from maos.engine.runs import new_id

    database: Target = ctx.obj

    if bool(request) == bool(file):
        raise InvalidInput("it takes a request or a plan", hint="`maos orchestrate 'REQUEST'`, or --plan FILE")
    folder = Path(cwd).absolute()
    types = agent_types.known(folder, settings.config_folder())
    options: dict[str, Any] = {
        "kind": kind, "model": model, "permission": permission, "in_place": in_place, "concurrency": concurrency,
        "time_limit_s": seconds(time_limit) or 0.0, "budget": limits(budget, tokens, run_time),
    }  # fmt: skip
    id = new_id()
    if file:
        draft = plans.read(file)
    else:
        draft = planning.ask(database, request, id, folder=folder, options=options, types=types, as_json=as_json)
    approved = plans.approve(draft, types, options, auto=auto, as_json=as_json)

    async def work(m: Maos) -> int:
        from maos.cli.orchestrate import interrupted
        from maos.cli.orchestrate.conducting import Conductor
        from maos.engine import orchestration

        if file and not as_json:
            await interrupted.tell(m)
        run = await orchestration.order(
            m.attempts, m.runs, approved.plan, folder=folder, options=options, types=approved.types, id=id
        )
        return await Conductor(m, run, as_json=as_json, summary=summary).carry_out()

    ctx.exit(database.write(work, create=True))
