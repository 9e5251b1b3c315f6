"""`maos workflow resume`: go on with a workflow, whatever happened to it and to its definition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli.commands import LazyCommand, dry_run_option, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.plain import clean
from maos.cli.workflow.changes import on_change_option
from maos.cli.workflow.running import until_ended
from maos.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.run import Run
    from maos.model.workflow import WorkflowRun
    from maos.workflows.status import WorkflowPreview


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
        from maos.cli.runs.resume import resume_run

        if step_id:
            raise InvalidInput(f"{found.id} was made from a file", hint="--from is for functions")
        resume_run(
            ctx, found.id, trust=trust, dry_run=dry_run, as_json=as_json, on_change=on_change or "keep"
        )  # fmt: skip
        return
    _go_on(ctx, found, step_id, on_change or "refuse", trust=trust, dry_run=dry_run, as_json=as_json)


async def _find(m: Maos, id: str) -> WorkflowRun | Run:
    from maos.cli.workflow import finding

    return await finding.by_id(m, id) if id else await finding.latest(m)


def _go_on(
    ctx: click.Context, flow: WorkflowRun, step_id: str, on_change: str, *, trust: bool, dry_run: bool, as_json: bool
) -> None:
    """Resume a function."""
    from maos.workflows import loader

    if on_change == "keep":
        raise InvalidInput(
            f"{flow.id} is a function, and its code as it was is not kept",
            hint="put the old one beside the new one, each with a version=; or use replay",
        )
    database: DatabaseTarget = ctx.obj
    refuse = flow.is_open and not (trust or dry_run)
    is_foreign = database.read(lambda m: m.workflows.needs_consent(flow.id, refuse=refuse))
    if step_id:
        loader.load(step_id)
    # nothing is loaded because a file from elsewhere names it, only what the person does
    where = {} if is_foreign and not trust else flow.options.get("where", {})
    try:
        definition = loader.load_recorded(flow.name, flow.definition, where)
    except (NotFound, InvalidInput):
        if not dry_run:
            raise
        definition = None
    if dry_run:
        found = database.read(lambda m: m.workflows.preview(flow.id, workflow=definition, on_change=on_change))
        render_preview(found, on_change, str(where.get("file", "")), as_json=as_json)
        return

    async def work(m: Maos) -> int:
        handle = await m.workflows.resume(flow.id, workflow=definition, on_change=on_change, trust=trust)
        return await until_ended(m, handle, as_json=as_json)

    ctx.exit(database.write(work))


NEXT = {
    "again": "was interrupted, and is called again: it is idempotent",
    "probe": "was interrupted: its probe is asked what became of it",
    "unknown": "nobody knows whether it took effect, and you are asked",
    "interrupted": "was interrupted: called again if it is idempotent, else its probe or you are asked",
    "later": "failed, and is tried again",
    "resolved": "continues with the outcome that you gave it",
    "waits": "is waited for",
    "resumed": "is resumed",
}


def render_preview(found: WorkflowPreview, on_change: str, file: str, *, as_json: bool) -> None:
    """Whether the definition is the same, which calls are not made again, and what happens to those under way."""
    flow = found.status.run
    if as_json:
        calls = [
            {"call": each.step_id, "kind": each.step.kind, "name": each.step.name, "next": each.next,
             "given": each.step.about.get("given")}
            for each in found.pending
        ]  # fmt: skip
        shared.show(
            {"kind": "dry_run", "id": flow.id, "status": found.status.name, "definition": found.definition,
             "on_change": on_change, "refused": found.is_refused, "calls_done": flow.done, "calls": calls,
             "unknown": found.unknown}
        )  # fmt: skip
        return
    from maos.cli import render
    from maos.cli.workflow import showing

    render.line((clean(flow.id), "bold"), f" is {showing.spoken(flow)}, {render.many(flow.done, 'call')} done")
    if not flow.is_open:
        render.line("  it has ended, and only tells its result")
        return
    if found.definition == "gone":
        where = clean(file) or "it came from elsewhere"
        render.line(("  its definition is not there: ", "yellow"), where, "; name it with --from")
    elif found.definition == "changed":
        meant = "it is refused; --on-change replay goes on with it if it makes the same calls"
        if on_change == "replay":
            meant = "it goes on with the new code as long as that makes the calls that were made"
        render.line(("  its code has changed since: ", "yellow"), meant)
    for each in found.pending:
        style = "yellow" if each.next in ("unknown", "interrupted") else ""
        render.line(f"  {each.step_id}  ", (clean(showing.what(each.step)), "bold"), "  ", (NEXT[each.next], style))
        if each.next == "unknown":
            render.line(f"     maos workflow settle {flow.id} {each.step_id} done --value JSON | failed | again")
