"""`maos workflow resume`: go on with a workflow, whatever happened to it and to its definition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli.commands import LazyCommand, dry_run_option, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.workflow.changes import on_change_option
from maos.cli.workflow.running import until_ended
from maos.errors import InvalidInput

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.run import Run
    from maos.model.workflow import WorkflowRun


@click.command(
    cls=LazyCommand,
    examples=[
        "maos workflow resume",
        "maos workflow resume nightly-1 --dry-run",
        "maos workflow resume r-1a2b3c --on-change replay",
    ],
)
@click.argument("id", metavar="[ID]", required=False, default="")
@click.option("--workflow-id", default="", help="The same as ID.")
@click.option("--from", "step_id", default="", metavar="FILE.py", help="Where its definition is now, if it was moved.")
@on_change_option
@click.option("--trust", is_flag=True, help="Agree to go on with a workflow that came with a file.")
@dry_run_option
@json_option
@click.pass_context
def resume(
    ctx: click.Context,
    id: str,
    workflow_id: str,
    step_id: str,
    on_change: str | None,
    trust: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Go on with a workflow that was paused or interrupted, or with a file whose run failed.

    Without ID, the latest that has not ended. Steps with an outcome are not called again. A step that was interrupted
    is called again if it is idempotent; else you are asked what became of it.

    A run has its plan from the file as it was, so a file that has changed since is no obstacle: it is said, and with
    --on-change replay the run goes on with the new one, if every step that was done or begun is the same in it. Of a
    function only the results are recorded: one that has changed is refused, unless it makes the same calls (replay).
    """
    from maos.model.run import Run

    if id and workflow_id and id != workflow_id:
        raise InvalidInput(f"{id} and {workflow_id} are two workflows", hint="name one")
    id = id or workflow_id
    database: DatabaseTarget = ctx.obj
    found = database.read(lambda m: _find(m, id))
    if isinstance(found, Run):
        from maos.cli.orchestrate import resuming

        if step_id:
            raise InvalidInput(f"{found.id} was made from a file", hint="--from is for functions")
        resuming.go_on(
            ctx, found.id, trust=trust, dry_run=dry_run, as_json=as_json, on_change=on_change or "keep"
        )  # fmt: skip
        return
    _go_on(ctx, found, step_id, on_change or "refuse", trust=trust, dry_run=dry_run, as_json=as_json)


async def _waits(m: Maos, flow: WorkflowRun) -> str:
    from maos.engine import consent

    return await consent.waits(m.journal, flow.id)


async def _find(m: Maos, id: str) -> WorkflowRun | Run:
    from maos.cli.workflow import finding

    return await finding.by_id(m, id) if id else await finding.latest(m)


def _go_on(
    ctx: click.Context, flow: WorkflowRun, step_id: str, on_change: str, *, trust: bool, dry_run: bool, as_json: bool
) -> None:
    """Go on with a function."""
    from maos.cli.workflow import loading

    if on_change == "keep":
        raise InvalidInput(
            f"{flow.id} is a function, and its code as it was is not kept",
            hint="put the old one beside the new one, each with a version=; or use replay",
        )
    database: DatabaseTarget = ctx.obj
    waits = database.read(lambda m: _waits(m, flow))
    if waits and flow.is_open and not (trust or dry_run):
        from maos.engine.consent import NotAgreed

        raise NotAgreed(waits)
    if step_id:
        loading.by_name(step_id)
    # nothing is loaded because a file from elsewhere names it, only what the person does
    where = {} if waits and not trust else flow.options.get("where", {})
    if dry_run:
        from maos.cli.workflow import foreseeing

        known = database.read(lambda m: foreseeing.settled(m, flow))
        foreseeing.show(flow, on_change, known, where, as_json=as_json)
        return
    definition = loading.recorded(flow.name, flow.definition, where)

    async def work(m: Maos) -> int:
        if trust:
            from maos.clock import SystemClock
            from maos.engine import consent

            await consent.agree(m.journal, SystemClock(), flow.id)
        handle = await m.workflows.resume(flow.id, workflow=definition, on_change=on_change)
        return await until_ended(handle, as_json=as_json)

    ctx.exit(database.write(work))
