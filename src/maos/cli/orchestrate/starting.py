"""`maos orchestrate`: from a request or a plan to finished work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from maos.cli.commands import LazyCommand, json_lines_option
from maos.cli.database import DatabaseTarget
from maos.cli.orchestrate.options import new_run, notify_addresses, notify_option, run_options, summary_option
from maos.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from maos.app import Maos
    from maos.cli.orchestrate.plans import PlanDraft
    from maos.engine.agent_types import AgentType


@click.command(
    cls=LazyCommand,
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
    """Carry out a request or a plan with many agents.

    An agent makes a plan of a REQUEST: what is to be done, and by which type of agent; it cannot have commands run. The
    plan is shown, and begins when you say yes. Each agent works in a git worktree of its own; what a task has done is
    merged, checked and given to the tasks that need it. Your own files stay as they are until you merge.

    Ctrl+C pauses: the agents are stopped, and `maos resume` goes on. A second Ctrl+C only lets go of them. If this
    process dies, nothing is lost, and the agents go on; `maos resume` takes them up again.
    """
    from maos.cli.orchestrate import planning, plans

    if bool(request) == bool(file):
        raise InvalidInput("it takes a request or a plan", hint="`maos orchestrate 'REQUEST'`, or --plan FILE")

    def draft(begun: Beginning) -> PlanDraft:
        if file:
            return plans.read(file)
        return planning.ask(
            ctx.obj, request, begun.id, folder=begun.folder, options=begun.options, types=begun.types, as_json=as_json
        )

    execute(
        ctx, draft, auto=auto, tells_others=bool(file), summary=summary, notify=notify, as_json=as_json, given=given
    )


class Beginning(NamedTuple):
    """What is known of a run before it has a plan."""

    id: str
    folder: Path
    options: dict[str, Any]
    types: Mapping[str, AgentType]


def execute(
    ctx: click.Context,
    draft: Callable[[Beginning], PlanDraft],
    *,
    auto: bool,
    tells_others: bool,
    summary: str,
    notify: Sequence[str],
    as_json: bool,
    given: Mapping[str, Any],
    more: Mapping[str, Any] | None = None,
) -> NoReturn:
    """Have a plan approved, and carry it out; `more` are options that its run keeps."""
    from pathlib import Path

    from maos import settings
    from maos.cli.orchestrate import plans
    from maos.engine import agent_types
    from maos.engine.runs import new_id

    told = notify_addresses(notify)
    folder = Path(given["cwd"]).absolute()
    types = agent_types.known(folder, settings.config_folder())
    begun = Beginning(new_id(), folder, {**run_options(given), **(more or {})}, types)
    approved = plans.approve(draft(begun), types, begun.options, auto=auto, as_json=as_json)

    async def work(m: Maos) -> int:
        from maos.cli.orchestrate import interrupted
        from maos.cli.orchestrate.conducting import Conductor
        from maos.engine import orchestration

        if tells_others and not as_json:
            await interrupted.tell(m)
        run = await orchestration.order(
            m.attempts, m.runs, approved.plan, folder=folder, options=begun.options, types=approved.types, id=begun.id
        )
        return await Conductor(m, run, as_json=as_json, summary=summary, notify=told).execute()

    database: DatabaseTarget = ctx.obj
    ctx.exit(database.write(work, create=True, in_memory=True))
